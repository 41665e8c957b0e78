"""Ships what the buffer holds to one output: oldest first, for as long as it takes."""

from __future__ import annotations

import logging
import random
import sqlite3
import threading
import time
from collections.abc import Collection

from landfall.edge.buffer import Buffer, CannotWrite, Damaged
from landfall.edge.clock import Clock
from landfall.edge.config import Output
from landfall.edge.journal import BatchRow
from landfall.edge.outputs import OutputDown, Refused, Target, open_target

log = logging.getLogger("landfall.edge")

_REPEAT_SECONDS = 60.0
_LOOK_SECONDS = 60.0
_PAUSE_SECONDS = 1.0


class Shipper:
    """Some threads. An output that fails is left alone for a while, then tried with one batch."""

    def __init__(
        self, output: Output, buffer: Buffer, clock: Clock, outputs: Collection[str]
    ) -> None:
        self._output = output
        self._buffer = buffer
        self._clock = clock
        self._outputs = outputs
        self._target: Target = open_target(output)
        self._in_flight: set[int] = set()
        self._held: dict[int, tuple[float, int]] = {}
        """Batches that the output refused: when to try again, and how often it was tried."""
        self._failures = 0
        self._failing_since = 0.0
        self._not_before = 0.0
        self._said = ("", 0.0)
        self._stopping = False
        self._threads = [
            threading.Thread(target=self._work, name=f"ship-{number}", daemon=True)
            for number in range(output.max_in_flight)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self, seconds: float) -> None:
        """Ships no more. What is in flight gets this long, and else is shipped again later."""
        with self._buffer.changed:
            self._stopping = True
            self._buffer.changed.notify_all()
        deadline = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def wait_until_shipped(self, until: float | None) -> bool:
        """Waits until nothing is left, or until this time (monotonic); whether nothing is."""
        with self._buffer.changed:
            while self._buffer.journal.waiting_number(self._output.name):
                left = None if until is None else until - time.monotonic()
                if self._stopping or (left is not None and left <= 0):
                    return False
                self._buffer.changed.wait(left)
        return True

    @property
    def only_refused_left(self) -> bool:
        """Whether nothing waits but what the output refused or cannot be read."""
        with self._buffer.changed:
            return self._buffer.journal.waiting_number(self._output.name) <= len(self._held)

    def _work(self) -> None:
        """A thread that ended by an error would stop shipping, silently: none ends it."""
        while True:
            try:
                batch = self._next()
            except sqlite3.Error:
                log.exception("the buffer's journal cannot be read")
                with self._buffer.changed:
                    self._buffer.changed.wait(_PAUSE_SECONDS)
                continue
            if batch is None:
                return
            self._ship(batch)

    def _ship(self, batch: BatchRow) -> None:
        try:
            self._target.put(batch, self._buffer.read(batch))
            self._delivered(batch)
        except (Refused, Damaged) as error:
            self._hold(batch, str(error))
        except (OutputDown, CannotWrite) as error:
            self._back_off(batch, str(error))
        except Exception as error:
            log.exception("unexpected error while shipping %s", batch.key)
            self._back_off(batch, f"{type(error).__name__}: {error}")

    def _next(self) -> BatchRow | None:
        """The oldest batch that may go now; waits for one. None: stop."""
        changed = self._buffer.changed
        with changed:
            while not self._stopping:
                now = time.monotonic()
                probing = self._failures > 0 and bool(self._in_flight)
                if now >= self._not_before and not probing:
                    held = {count for count, (due, _) in self._held.items() if due > now}
                    found = self._buffer.journal.waiting(
                        self._output.name, without=self._in_flight | held
                    )
                    if found:
                        self._in_flight.add(found[0].count)
                        return found[0]
                due = [due for due, _ in self._held.values() if due > now]
                due += [self._not_before] if self._not_before > now else []
                changed.wait(min(due, default=now + _LOOK_SECONDS) - now)
            return None

    def _delivered(self, batch: BatchRow) -> None:
        with self._buffer.changed:
            if self._stopping:
                return  # the journal may be closed; shipping it again does no harm
            self._buffer.deliver(batch, self._output.name, self._outputs)
            self._in_flight.discard(batch.count)
            self._held.pop(batch.count, None)
            if self._failures:
                took = time.monotonic() - self._failing_since
                log.info("%s works again after %.0f s", self._output.name, took)
            self._failures = 0
            self._not_before = 0.0
            self._said = ("", 0.0)

    def _hold(self, batch: BatchRow, error: str) -> None:
        """This batch waits; others go on."""
        with self._buffer.changed:
            self._in_flight.discard(batch.count)
            tries = self._held.get(batch.count, (0.0, 0))[1] + 1
            self._held[batch.count] = (time.monotonic() + self._pause(tries), tries)
            log.error("batch %s stays in the buffer: %s", batch.key, error)
            self._note(f"{batch.key}: {error}")

    def _back_off(self, batch: BatchRow, error: str) -> None:
        """The whole output waits."""
        with self._buffer.changed:
            self._in_flight.discard(batch.count)
            now = time.monotonic()
            if not self._failures:
                self._failing_since = now
            if now >= self._not_before:  # else another one in flight failed at the same time
                self._failures += 1
                self._not_before = now + self._pause(self._failures)
            said, at = self._said
            if error != said or now - at >= _REPEAT_SECONDS:
                self._said = (error, now)
                waiting = self._buffer.bytes_waiting
                log.error("%s; %d bytes wait in the buffer, trying on", error, waiting)
                self._note(error)
            self._buffer.changed.notify_all()

    def _pause(self, tries: int) -> float:
        backoff = self._output.backoff
        longest: float = min(backoff.longest, backoff.first * 2 ** min(tries - 1, 30))
        return longest * random.uniform(0.5, 1.0)  # noqa: S311

    def _note(self, error: str) -> None:
        """For `edge status`."""
        if self._stopping:
            return
        try:
            self._buffer.journal.note_error(self._output.name, error, self._clock.now())
        except sqlite3.OperationalError as unwritable:
            log.warning("the error could not be noted in the buffer: %s", unwritable)
