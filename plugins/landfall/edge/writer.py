"""The edge writer: records in, durable batches out.

with EdgeWriter(config) as writer:
    writer.write(record)
"""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from types import TracebackType
from typing import Any, Self

from landfall.edge.batches import OpenBatch, Taken, parquet
from landfall.edge.buffer import Buffer, CannotWrite, Commit, Sealed
from landfall.edge.clock import Clock
from landfall.edge.column_types import inferred
from landfall.edge.columns import Columns, weigh
from landfall.edge.config import EdgeConfig
from landfall.edge.journal import SourceState
from landfall.edge.path import utc_day
from landfall.edge.shipper import Shipper
from landfall.edge.sources import Origin, Source
from landfall.edge.unfit import Unfit
from landfall.errors import ConfigError

log = logging.getLogger("landfall.edge")

DRAIN_SECONDS = 10.0
_STOP_SECONDS = 2.0
_RETRY_SECONDS = 1.0
_EXPIRE_SECONDS = 3600.0
# Many folders at once: together they hold no more than this.
_OPEN_BYTES = 64_000_000


class Stopping(Exception):
    """The writer is stopping and took no more."""


class EdgeWriter:
    """A record is accepted once its batch is durable: at the latest `batch.age` after `write`, or
    when `flush` or `close` returns. Accepted records reach every output exactly once."""

    def __init__(
        self,
        config: EdgeConfig,
        *,
        clock: Clock | None = None,
        writer: str | None = None,
        ticking: bool = True,
    ) -> None:
        """`writer` sets the id in the names of a new buffer. `ticking`: batches close by age by
        themselves; otherwise only when `tick` is called."""
        if config.buffer.folder is None:
            raise ConfigError("buffer.folder is missing.", fix="name a folder for the buffer.")
        self._config = config
        self._clock = clock or Clock()
        self._template = config.template
        self._by_event = config.by_event
        self._in_path = config.in_path
        self._lock = threading.RLock()
        self._open: dict[str, OpenBatch] = {}
        self._letters: list[tuple[Taken, str]] = []
        self._letters_since = 0.0
        self._undecided: list[tuple[Taken, float]] = []
        self._loose_bytes = 0
        """Of dead letters and undecided records."""
        self._open_bytes = 0
        self._columns_are_new = False
        self._failure: BaseException | None = None
        self.stopping = threading.Event()
        """Set it, from a signal handler or another thread, and `write` raises `Stopping` where it
        would wait."""
        self.buffer = Buffer(
            config.buffer.folder,
            max_bytes=config.buffer.max_bytes,
            retention=config.buffer.retention,
            clock=self._clock,
            writer=writer,
        )
        types = config.columns or self.buffer.columns
        self._columns = Columns(types, config.required) if types else None
        self._sources = {
            name: Source(state) for name, state in self.buffer.journal.sources().items()
        }
        names = [output.name for output in config.outputs]
        self._shippers = [
            Shipper(output, self.buffer, self._clock, names) for output in config.outputs
        ]
        for shipper in self._shippers:
            shipper.start()
        self._expired = self._clock.monotonic()
        self.buffer.expire()
        self._done = threading.Event()
        self._ticker = threading.Thread(target=self._tick_on, name="tick", daemon=True)
        if ticking:
            self._ticker.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def write(
        self, record: Mapping[str, Any], *, source: str | None = None, position: int | None = None
    ) -> bool:
        """Takes a record, and waits while the buffer is full.

        A source with ascending positions can be resumed: go on at `resume_at(source)`; what is
        durable already is left out, and False is returned.
        """
        if source is None or position is None:
            return self.take(record, None)
        return self.take(record, Origin(source, position, position + 1))

    def resume_at(self, source: str) -> int:
        """The first position of a source that may not be durable."""
        with self._lock:
            return self._sources[source].resume_at if source in self._sources else 0

    def take(self, record: Any, origin: Origin | None, *, label: str = "") -> bool:
        """Takes what should be a record; what is none becomes a dead letter."""
        with self._lock:
            self._check()
            source = self._source(origin, label) if origin else None
            if origin and source and not source.needs(origin.start):
                return False
            self._wait_for_room()
            if origin and source:
                source.take(origin)
            self._sort(Taken(record, origin))
            return True

    def skip(self, origin: Origin, *, label: str = "") -> None:
        """Notes that there is no record at a place."""
        with self._lock:
            source = self._source(origin, label)
            if source.needs(origin.start):
                source.skip(origin)

    def forget_all_but(self, present: Collection[str], prefix: str) -> None:
        """Forgets sources with this prefix that are gone and were not read for long."""
        with self._lock:
            for name in self.buffer.forgettable_sources():
                if name.startswith(prefix) and name not in present:
                    self.buffer.journal.forget_source(name)
                    self._sources.pop(name, None)

    def _source(self, origin: Origin, label: str) -> Source:
        if origin.source not in self._sources:
            self._sources[origin.source] = Source(SourceState(label or origin.source, 0))
        return self._sources[origin.source]

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._done.is_set():
            raise ValueError("the writer is closed")

    def _wait_for_room(self) -> None:
        if self.buffer.has_room():
            return
        log.warning(
            "the buffer is full (buffer.max_bytes %d): no input is taken until there is room",
            self._config.buffer.max_bytes,
        )
        while not self.buffer.has_room():
            if self.stopping.is_set():
                raise Stopping
            self.tick()
            with self.buffer.changed:
                self.buffer.changed.wait(_RETRY_SECONDS)
        log.warning("there is room in the buffer: input is taken again")

    def _sort(self, taken: Taken) -> None:
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

    def _is_full(self, count: int, size: int) -> bool:
        return count >= self._config.batch.count or size >= self._config.batch.bytes

    def _decide(self) -> None:
        """The first batch says what the columns are; they are held from then on."""
        if self._columns is None and self._undecided:
            fields = inferred(t.record for t, _ in self._undecided)
            for hidden in self._config.hidden & fields.keys():
                log.error("records with %r go to the dead letters: the path's %s= would hide it",
                          hidden, hidden)  # fmt: skip
                del fields[hidden]
            self._columns = Columns(fields, self._config.required)
            self._columns_are_new = True
            log.info("columns, from the first batch: %s", fields)
        undecided, self._undecided = self._undecided, []
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
            self._commit([batch])
        elif self._open_bytes >= _OPEN_BYTES:
            self._commit(list(self._open.values()))

    def _folder(self, record: Mapping[str, Any]) -> str:
        day = None
        if self._by_event:
            day = utc_day(self._config.event_time, record.get(self._config.event_time))
        elif self._template.uses_date:
            day = self._clock.now().date()
        return self._template.folder(record, day)

    def _bury(self, taken: Taken, reason: str) -> None:
        if not self._letters:
            self._letters_since = self._clock.monotonic()
        self._letters.append((taken, reason))
        unread = isinstance(taken.record, Unfit)
        self._loose_bytes += len(taken.record.line) if unread else weigh(taken.record.values())
        if self._is_full(len(self._letters), self._loose_bytes):
            self._commit([])

    def tick(self) -> None:
        """Makes durable what is old enough."""
        with self._lock:
            self._check()
            oldest = self._clock.monotonic() - self._config.batch.age
            if self._undecided and self._undecided[0][1] <= oldest:
                self._decide()
            due = [batch for batch in self._open.values() if batch.opened <= oldest]
            if due or (self._letters and self._letters_since <= oldest):
                self._commit(due)
            if self._clock.monotonic() - self._expired >= _EXPIRE_SECONDS:
                self._expired = self._clock.monotonic()
                self._expire()

    def _expire(self) -> None:
        removed = self.buffer.expire()
        if removed:
            log.info("%d shipped batches were removed: their retention is over", removed)

    def _tick_on(self) -> None:
        pause = min(1.0, max(0.02, self._config.batch.age / 10))
        while not self._done.wait(pause):
            try:
                self.tick()
            except Stopping:
                pass  # `close` makes the last try, and tells
            except BaseException as error:
                log.exception("the writer cannot go on")
                self._failure = error
                return

    def flush(self) -> None:
        """Makes all that was taken durable: accepted when this returns."""
        with self._lock:
            self._check()
            self._decide()
            if self._open or self._letters:
                self._commit(list(self._open.values()))

    def _commit(self, batches: list[OpenBatch]) -> None:
        sealed = [one for one in map(self._seal, batches) if one is not None]
        numbered = self._named(sealed)
        settled = self._settled(batches)
        commit = Commit(
            batches=numbered,
            letters=[_letter(taken, reason, self._clock) for taken, reason in self._letters],
            sources={name: self._sources[name].state(starts) for name, starts in settled.items()},
            columns=self._columns.types if self._columns and self._columns_are_new else None,
        )
        self._commit_when_possible(commit)
        for name, starts in settled.items():
            self._sources[name].settle(starts)
        for batch in batches:
            del self._open[batch.folder]
            self._open_bytes -= batch.bytes
        self._letters = []
        self._loose_bytes = 0
        self._columns_are_new = False

    def _seal(self, batch: OpenBatch) -> tuple[str, int, bytes] | None:
        """Folder, records and Parquet; what Arrow refuses goes to the dead letters."""
        assert self._columns is not None
        body = parquet(batch.rows, self._columns.schema, self._in_path)
        if body is None:
            self._letters += batch.refuse(self._columns.schema)
            if not batch.rows:
                return None
            body = parquet(batch.rows, self._columns.schema, self._in_path)
            assert body is not None
        return batch.folder, len(batch.rows), body

    def _named(self, sealed: Iterable[tuple[str, int, bytes]]) -> list[Sealed]:
        now, first, writer = self._clock.now(), self.buffer.next_count, self.buffer.writer
        return [
            Sealed(
                f"{folder}/{self._template.name(at=now, count=first + number, writer=writer)}"
                .removeprefix("/"),
                records,
                body,
                now,
            )
            for number, (folder, records, body) in enumerate(sealed)
        ]  # fmt: skip

    def _settled(self, batches: Iterable[OpenBatch]) -> dict[str, set[int]]:
        """The starts, by source, of all that a commit of these batches makes durable."""
        settled: dict[str, set[int]] = defaultdict(set)
        for taken in [t for batch in batches for t in batch.taken] + [t for t, _ in self._letters]:
            if taken.origin is not None:
                settled[taken.origin.source].add(taken.origin.start)
        return settled

    def _commit_when_possible(self, commit: Commit) -> None:
        waited = False
        while True:
            try:
                self.buffer.commit(commit)
                break
            except CannotWrite as error:
                needed = sum(len(batch.body) for batch in commit.batches)
                if self.buffer.make_room(2 * needed):
                    continue
                if not waited:
                    log.error("the buffer cannot be written: %s; no input is taken until it can",
                              error)  # fmt: skip
                waited = True
                if self.stopping.wait(_RETRY_SECONDS):
                    raise Stopping from error
        if waited:
            log.warning("the buffer can be written again: input is taken again")

    def wait_until_shipped(self, seconds: float | None = None) -> bool:
        """Waits until every output has every batch, at most this long; whether they have."""
        until = None if seconds is None else time.monotonic() + seconds
        return all(shipper.wait_until_shipped(until) for shipper in self._shippers)

    def close(self, drain_seconds: float = DRAIN_SECONDS) -> bool:
        """Flushes, ships for a while, and ends; whether all was shipped.

        What was not waits in the buffer, and the next writer of it ships it.
        """
        if self._done.is_set():
            return True
        try:
            self.flush()
            return self.wait_until_shipped(drain_seconds)
        finally:
            self._done.set()
            for shipper in self._shippers:
                shipper.stop(_STOP_SECONDS)
            if self._ticker.is_alive():
                self._ticker.join(_STOP_SECONDS)
            with self.buffer.changed:
                self.buffer.close()


def _letter(taken: Taken, reason: str, clock: Clock) -> dict[str, Any]:
    """What the dead-letter file says of a record."""
    letter: dict[str, Any] = {"at": clock.now().isoformat(), "reason": reason}
    if taken.origin is not None:
        letter |= {"source": taken.origin.source, "position": taken.origin.start}
    if isinstance(taken.record, Unfit):
        return letter | {"line": taken.record.line}
    return letter | {"record": taken.record}
