"""How far each input was read, and which records of it are not durable yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from landfall.edge.journal import SourceState


@dataclass(frozen=True)
class Origin:
    """Where a record stands: from `start` to before `end` of a source."""

    source: str
    start: int
    end: int


class Source:
    """One input, read in ascending order. Batches close in any order: durable has gaps."""

    def __init__(self, state: SourceState) -> None:
        self.label = state.label
        self._position = state.position
        # What the last run had taken but not made durable, as far as this one has not passed it.
        self._gaps = deque(sorted(state.open))
        self._open: dict[int, int] = {}
        self._passed = 0

    @property
    def resume_at(self) -> int:
        """From here on it must be read again after a restart."""
        gap = self._gaps[0][0] if self._gaps else self._position
        return min(gap, next(iter(self._open), gap))

    @property
    def has_gaps(self) -> bool:
        """Whether something that the last run took is still to be taken again."""
        return bool(self._gaps)

    def needs(self, start: int) -> bool:
        """Whether the record that begins there is to be taken: False if it is durable already."""
        if start < self._passed:
            raise ValueError(f"{self.label}: position {start} comes after {self._passed}")
        self._pass(start)
        return start >= self._position or bool(self._gaps and self._gaps[0][0] <= start)

    def take(self, origin: Origin) -> None:
        self._open[origin.start] = origin.end
        self.skip(origin)

    def skip(self, origin: Origin) -> None:
        """Nothing to keep there, such as an empty line."""
        self._position = max(self._position, origin.end)
        self._pass(origin.end)

    def _pass(self, position: int) -> None:
        self._passed = position
        while self._gaps and self._gaps[0][1] <= position:
            self._gaps.popleft()
        if self._gaps and self._gaps[0][0] < position:
            self._gaps[0] = (position, self._gaps[0][1])

    def state(self, settled: set[int]) -> SourceState:
        """What a commit must note that makes the records with these starts durable."""
        still = [(start, end) for start, end in self._open.items() if start not in settled]
        return SourceState(self.label, self._position, tuple(_joined([*still, *self._gaps])))

    def settle(self, settled: set[int]) -> None:
        """These records are durable now."""
        for start in settled:
            del self._open[start]


def _joined(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same ranges in order, neighbours made one."""
    joined: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if joined and joined[-1][1] >= low:
            joined[-1] = (joined[-1][0], max(high, joined[-1][1]))
        else:
            joined.append((low, high))
    return joined
