"""Sorts records into open batches, one for each folder, and unfit ones to the dead letters."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

from landfall.edge.batches import OpenBatch, Taken, parquet
from landfall.edge.buffer import Sealed
from landfall.edge.clock import Clock
from landfall.edge.column_types import TypeText, inferred
from landfall.edge.columns import Columns, weigh
from landfall.edge.config import EdgeConfig
from landfall.edge.path import utc_day
from landfall.edge.unfit import Unfit

log = logging.getLogger("landfall.edge")

# Many folders at once: together they hold no more than this.
_OPEN_BYTES = 64_000_000


class Intake:
    """Holds what is not durable yet, and calls `close` with the batches that are to become it.

    `close` commits them together with `letters`, then calls `closed`.
    """

    def __init__(
        self,
        config: EdgeConfig,
        clock: Clock,
        types: Mapping[str, TypeText] | None,
        close: Callable[[list[OpenBatch]], None],
    ) -> None:
        self._limits = config.batch
        self._config = config
        self._template = config.template
        self._by_event = config.by_event
        self._in_path = config.in_path
        self._clock = clock
        self._close = close
        self._columns = Columns(types, config.required) if types else None
        self._open: dict[str, OpenBatch] = {}
        self._open_bytes = 0
        self.letters: list[tuple[Taken, str]] = []
        """What did not fit, and why."""
        self._letters_since = 0.0
        self._undecided: list[tuple[Taken, float]] = []
        self._loose_bytes = 0
        """Of dead letters and undecided records."""
        self.new_columns: dict[str, TypeText] | None = None
        """As the first batch had them, until that is durable."""

    def sort(self, taken: Taken) -> None:
        """Into the batch of its folder, or to the dead letters."""
        if isinstance(taken.record, Unfit):
            self._bury(taken, str(taken.record))
        elif self._columns is None:
            self._undecided.append((taken, self._clock.monotonic()))
            self._loose_bytes += weigh(taken.record.values())
            if self._is_full(len(self._undecided), self._loose_bytes):
                self._decide()
        else:
            self._add(taken, self._columns, self._clock.monotonic())

    def tick(self) -> None:
        """Closes what is old enough."""
        oldest = self._clock.monotonic() - self._limits.age
        if self._undecided and self._undecided[0][1] <= oldest:
            self._decide()
        due = [batch for batch in self._open.values() if batch.opened <= oldest]
        if due or (self.letters and self._letters_since <= oldest):
            self._close(due)

    def flush(self) -> None:
        """Closes everything."""
        self._decide()
        if self._open or self.letters:
            self._close(list(self._open.values()))

    def _is_full(self, count: int, size: int) -> bool:
        return count >= self._limits.count or size >= self._limits.bytes

    def _decide(self) -> None:
        """The first batch says what the columns are; they are held from then on."""
        undecided, self._undecided = self._undecided, []
        if self._columns is None and undecided:
            types = inferred(taken.record for taken, _ in undecided)
            for hidden in self._config.hidden & types.keys():
                log.error("records with %r go to the dead letters: the path's %s= would hide it",
                          hidden, hidden)  # fmt: skip
                del types[hidden]
            log.info("columns, from the first batch: %s", types)
            self._columns = Columns(types, self._config.required)
            self.new_columns = types
        for taken, arrived in undecided:
            assert self._columns is not None
            self._add(taken, self._columns, arrived)

    def _add(self, taken: Taken, columns: Columns, arrived: float) -> None:
        try:
            row = columns.row(taken.record)
            folder = self._folder(taken.record)
        except Unfit as reason:
            self._bury(taken, str(reason))
            return
        if folder not in self._open:
            self._open[folder] = OpenBatch(folder, arrived)
        batch = self._open[folder]
        size = weigh(row)
        batch.add(row, taken, size)
        self._open_bytes += size
        if self._is_full(len(batch.rows), batch.bytes):
            self._close([batch])
        elif self._open_bytes >= _OPEN_BYTES:
            self._close(list(self._open.values()))

    def _folder(self, record: Mapping[str, Any]) -> str:
        day = None
        if self._by_event:
            day = utc_day(self._config.event_time, record.get(self._config.event_time))
        elif self._template.uses_date:
            day = self._clock.now().date()
        return self._template.folder(record, day)

    def _bury(self, taken: Taken, reason: str) -> None:
        if not self.letters:
            self._letters_since = self._clock.monotonic()
        self.letters.append((taken, reason))
        unread = isinstance(taken.record, Unfit)
        self._loose_bytes += len(taken.record.line) if unread else weigh(taken.record.values())
        if self._is_full(len(self.letters), self._loose_bytes):
            self._close([])

    def seal(
        self, batches: Iterable[OpenBatch], *, at: datetime, count: int, writer: str
    ) -> list[Sealed]:
        """The batches as files, counted from `count` on. What Arrow refuses is a dead letter."""
        sealed: list[Sealed] = []
        for batch in batches:
            body = self._parquet(batch)
            if body is not None:
                name = self._template.name(at=at, count=count + len(sealed), writer=writer)
                key = f"{batch.folder}/{name}" if batch.folder else name
                sealed.append(Sealed(key, len(batch.rows), body, at))
        return sealed

    def _parquet(self, batch: OpenBatch) -> bytes | None:
        assert self._columns is not None
        schema = self._columns.schema
        body = parquet(batch.rows, schema, self._in_path)
        if body is None:
            self.letters += batch.refuse(schema)
            body = parquet(batch.rows, schema, self._in_path) if batch.rows else None
        return body

    def starts(self, batches: Iterable[OpenBatch]) -> dict[str, set[int]]:
        """Where, by source, all begins that becomes durable with these batches."""
        starts: dict[str, set[int]] = defaultdict(set)
        for taken in [t for batch in batches for t in batch.taken] + [t for t, _ in self.letters]:
            if taken.origin is not None:
                starts[taken.origin.source].add(taken.origin.start)
        return starts

    def closed(self, batches: Iterable[OpenBatch]) -> None:
        """These batches and all dead letters are durable."""
        for batch in batches:
            del self._open[batch.folder]
            self._open_bytes -= batch.bytes
        self.letters = []
        self._loose_bytes = 0
        self.new_columns = None
