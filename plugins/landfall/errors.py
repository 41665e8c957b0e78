"""Every error Landfall raises, in two kinds: terminal ones are not retried, transient ones are."""

from __future__ import annotations

from typing import Any


class LandfallError(Exception):
    """What happened, where, and what to do. `str()` of it is the message for people."""

    terminal = True
    recorded = False
    """Whether the ledger has a row for it already."""

    def __init__(self, what: str, *, where: str | None = None, fix: str | None = None) -> None:
        self.what = what
        self.where = where
        self.fix = fix
        super().__init__(self.message)

    @property
    def message(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        return f"{text} Fix: {self.fix}" if self.fix else text

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": type(self).__name__,
            "what": self.what,
            "where": self.where,
            "fix": self.fix,
        }


class TerminalError(LandfallError):
    """Trying again would fail the same way."""


class TransientError(LandfallError):
    """Trying again may succeed."""

    terminal = False


class ConfigError(TerminalError):
    """A dataset file, a connection or a trigger's conf is wrong."""


class SourceError(TerminalError):
    """The landing cannot be read as it is: corrupt, of incompatible types, or not permitted."""


class ContractError(TerminalError):
    """The data breaks what the dataset file or the destination table demands."""


class ManifestError(TerminalError):
    """What was staged does not add up, or was never published."""


class WarehouseError(TerminalError):
    """The warehouse refuses the load for a reason that stays."""


class SourceChanged(TransientError):
    """A source file changed, vanished or arrived while it was being read."""


class Unreachable(TransientError):
    """A service did not answer, or answered that it is busy."""


class Conflict(TransientError):
    """Another writer holds what this one needs."""


_KINDS: dict[str, type[LandfallError]] = {
    kind.__name__: kind
    for kind in (
        TerminalError,
        TransientError,
        ConfigError,
        SourceError,
        ContractError,
        ManifestError,
        WarehouseError,
        SourceChanged,
        Unreachable,
        Conflict,
    )
}


def from_json(document: dict[str, Any]) -> LandfallError:
    """The error that `to_json` described, in another process."""
    kind = _KINDS.get(str(document.get("kind")), TransientError)
    return kind(str(document["what"]), where=document.get("where"), fix=document.get("fix"))
