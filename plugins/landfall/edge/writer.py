"""The edge writer: records in, durable batches out.

with EdgeWriter(config) as writer:
    writer.write(record)
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Mapping
from types import TracebackType
from typing import Any, Self

from landfall.edge.batches import OpenBatch, Taken
from landfall.edge.buffer import Buffer, CannotWrite, Commit
from landfall.edge.clock import Clock
from landfall.edge.config import EdgeConfig
from landfall.edge.home import EdgeBufferError
from landfall.edge.intake import Intake
from landfall.edge.journal import SourceState
from landfall.edge.shipper import Shipper
from landfall.edge.sources import Origin, Source
from landfall.edge.unfit import Unfit
from landfall.errors import ConfigError

log = logging.getLogger("landfall.edge")

DRAIN_SECONDS = 10.0
_STOP_SECONDS = 2.0
_RETRY_SECONDS = 1.0
_EXPIRE_SECONDS = 3600.0
_LITTLE_ROOM = 100_000


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
        self._lock = threading.RLock()
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
        names = [output.name for output in config.outputs]
        try:
            self.buffer.settle(names)
            self.buffer.expire()
            types = config.columns or self.buffer.columns
            self._intake = Intake(config, self._clock, types, self._commit)
            self._sources = {
                name: Source(state) for name, state in self.buffer.journal.sources().items()
            }
        except CannotWrite as error:
            self.buffer.close()
            raise EdgeBufferError(
                f"the buffer cannot be written: {error}.",
                where=str(config.buffer.folder),
                fix="make room on its disk.",
            ) from error
        except BaseException:
            self.buffer.close()
            raise
        self._expired = self._clock.monotonic()
        self._shippers = [
            Shipper(output, self.buffer, self._clock, names) for output in config.outputs
        ]
        for shipper in self._shippers:
            shipper.start()
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
        origin = None
        if source is not None and position is not None:
            origin = Origin(source, position, position + 1)
        return self.take(_copied(record), origin)

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
            self._intake.sort(Taken(record, origin))
            return True

    def skip(self, origin: Origin, *, label: str = "") -> None:
        """Notes that there is no record at a place."""
        with self._lock:
            source = self._source(origin, label)
            if source.needs(origin.start):
                source.skip(origin)

    def unfinished(self, prefix: str) -> dict[str, str]:
        """Sources with this prefix of which the last run took more than it made durable."""
        with self._lock:
            return {
                name: source.label
                for name, source in self._sources.items()
                if name.startswith(prefix) and source.has_gaps
            }

    def forget_all_but(self, present: Collection[str], prefix: str) -> list[str]:
        """Forgets sources with this prefix that are gone and were not read for long."""
        with self._lock:
            gone = [
                name
                for name in self.buffer.forgettable_sources()
                if name.startswith(prefix) and name not in present
            ]
            for name in gone:
                self.buffer.journal.forget_source(name)
                self._sources.pop(name, None)
            return gone

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

    def tick(self) -> None:
        """Makes durable what is old enough."""
        with self._lock:
            self._check()
            self._intake.tick()
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
            self._intake.flush()

    def _commit(self, batches: list[OpenBatch]) -> None:
        """Makes these batches, the dead letters and the positions of both durable."""
        sealed = self._intake.seal(
            batches,
            at=self._clock.now(),
            count=self.buffer.next_count,
            writer=self.buffer.writer,
        )
        starts = self._intake.starts(batches)
        commit = Commit(
            batches=sealed,
            letters=[_letter(taken, reason, self._clock) for taken, reason in self._intake.letters],
            sources={name: self._sources[name].state(some) for name, some in starts.items()},
            columns=self._intake.new_columns,
        )
        self._commit_when_possible(commit)
        for name, some in starts.items():
            self._sources[name].settle(some)
        self._intake.closed(batches)

    def _commit_when_possible(self, commit: Commit) -> None:
        waited = False
        while True:
            try:
                self.buffer.commit(commit)
                break
            except CannotWrite as error:
                needed = sum(len(batch.body) for batch in commit.batches)
                if self.buffer.make_room(max(2 * needed, _LITTLE_ROOM)):
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

    def wait_while_shipping(self) -> bool:
        """Waits until all is shipped, or only refused batches are left, or it is stopped."""
        while not self.wait_until_shipped(_RETRY_SECONDS):
            refused = all(shipper.only_refused_left for shipper in self._shippers)
            if refused or self.stopping.is_set():
                return False
        return True

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


def _copied(given: Any) -> dict[str, Any] | Unfit:
    """The caller may change its record afterwards."""
    return dict(given) if isinstance(given, Mapping) else Unfit("is not a record", repr(given))


def _letter(taken: Taken, reason: str, clock: Clock) -> dict[str, Any]:
    """What the dead-letter file says of a record."""
    letter: dict[str, Any] = {"at": clock.now().isoformat(), "reason": reason}
    if taken.origin is not None:
        letter |= {"source": taken.origin.source, "position": taken.origin.start}
    if isinstance(taken.record, Unfit):
        return letter | {"line": taken.record.line}
    return letter | {"record": taken.record}
