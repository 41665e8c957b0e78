"""The one way in which a record is refused: it goes to the dead letters, with this reason."""

from __future__ import annotations


class Unfit(Exception):
    """A record does not fit; `str()` of it is the reason. `line` is what could not be read."""

    def __init__(self, reason: str, line: str = "") -> None:
        super().__init__(reason)
        self.line = line
