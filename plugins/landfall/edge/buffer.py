"""The buffer: batches become durable here before anything is shipped."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import sqlite3
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from landfall.edge import home
from landfall.edge.clock import Clock
from landfall.edge.column_types import TypeText
from landfall.edge.files import append_durably, write_durably
from landfall.edge.journal import BatchRow, Journal, SourceState

log = logging.getLogger("landfall.edge")

_AT_ONCE = 200
_ROOM_TO_NOTE = 100_000
_UNWRITABLE = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY}


class CannotWrite(Exception):
    """The disk is full or refuses; trying again may succeed. Nothing was changed."""


class Damaged(Exception):
    """A batch in the buffer is not what was written."""


@dataclass(frozen=True)
class Sealed:
    """A batch as it will be shipped."""

    key: str
    records: int
    body: bytes = field(repr=False)
    created_at: datetime


@dataclass(frozen=True)
class Commit:
    """What counts at one moment: batches, dead letters, and how far the inputs were read."""

    batches: Sequence[Sealed] = ()
    letters: Sequence[Mapping[str, Any]] = ()
    sources: Mapping[str, SourceState] = field(default_factory=dict)
    columns: Mapping[str, TypeText] | None = None


class Buffer:
    """One folder, one writer. `changed` is notified of every commit and every delivery."""

    def __init__(
        self, folder: Path, *, max_bytes: int, retention: float, clock: Clock, writer: str | None
    ) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        self._retention = timedelta(seconds=retention)
        self._clock = clock
        self.changed = threading.Condition()
        self._handle = home.lock(folder)
        try:
            self.writer = home.open_folder(folder, writer)
            self.journal = Journal(folder / home.JOURNAL_FILE)
            self._clean_up()
        except sqlite3.DatabaseError as error:
            self._handle.close()
            raise home.EdgeBufferError(
                f"{home.JOURNAL_FILE} cannot be read: {error}.",
                where=str(folder),
                fix="free the disk if it is full; else move the folder aside: batches/ in it has "
                "the batches that may not have been shipped.",
            ) from error
        except OSError as error:
            self._handle.close()
            raise home.unwritable(folder, error) from error
        except BaseException:
            self._handle.close()
            raise
        self._count()

    def close(self) -> None:
        self.journal.close()
        self._handle.close()

    def _count(self) -> None:
        sums = self.journal.sums()
        self._waiting, self._kept = (sums.get(kind, (0, 0, 0))[2] for kind in (False, True))

    def settle(self, outputs: Collection[str]) -> None:
        """What all of these outputs have is shipped, even if another one is no more."""
        with _writing():
            self.journal.settle(outputs, self._clock.now())
        self._count()

    def _clean_up(self) -> None:
        """Removes what a crash left before it counted."""
        counted = self.journal.counts()
        for path in (self._folder / "batches").glob("*.parquet"):
            if int(path.stem) not in counted:
                path.unlink()
        for batch in self.journal.shipped(before=None, limit=-1):
            if not self._path(batch.count).exists():
                self.journal.forget(batch)
        name, length = self.journal.fact("dead_file"), self.journal.fact("dead_length", 0)
        path = self._folder / "dead_letters" / str(name)
        if name and path.exists() and path.stat().st_size > length:
            os.truncate(path, length)

    @property
    def size(self) -> int:
        """Bytes of all batches, waiting and kept."""
        return self._waiting + self._kept

    @property
    def bytes_waiting(self) -> int:
        return self._waiting

    @property
    def next_count(self) -> int:
        return int(self.journal.fact("next_count", 1))

    @property
    def columns(self) -> dict[str, TypeText] | None:
        """The columns that the first batch had."""
        text = self.journal.fact("columns")
        return json.loads(text) if text else None

    def commit(self, commit: Commit) -> None:
        """Durable, all of it, or CannotWrite and none of it."""
        first = self.next_count
        rows = [_row(first + n, sealed) for n, sealed in enumerate(commit.batches)]
        with _writing():
            for row, sealed in zip(rows, commit.batches, strict=True):
                write_durably(self._path(row.count), sealed.body)
            dead = self._append(commit.letters) if commit.letters else None
            with self.journal.transaction():
                for row in rows:
                    self.journal.insert_batch(row)
                self.journal.set_sources(commit.sources, self._clock.now())
                self.journal.set_fact("next_count", first + len(rows))
                self.journal.add("accepted", sum(row.records for row in rows))
                if dead is not None:
                    self.journal.add("dead_letters", len(commit.letters))
                    self.journal.set_fact("dead_length", dead)
                if commit.columns is not None:
                    self.journal.set_fact("columns", json.dumps(commit.columns))
        with self.changed:
            self._waiting += sum(row.bytes for row in rows)
            self.changed.notify_all()

    def _append(self, letters: Sequence[Mapping[str, Any]]) -> int:
        """Adds to the day's dead letters; the journal knows the file before it is written to."""
        name = f"{self._clock.now():%Y-%m-%d}.jsonl"
        path = self._folder / "dead_letters" / name
        if name != self.journal.fact("dead_file"):
            with self.journal.transaction():
                self.journal.set_fact("dead_file", name)
                self.journal.set_fact("dead_length", path.stat().st_size if path.exists() else 0)
        elif path.exists() and path.stat().st_size > self.journal.fact("dead_length", 0):
            os.truncate(path, self.journal.fact("dead_length", 0))  # of a try that did not count
        lines = [f"{json.dumps(letter, default=str)}\n" for letter in letters]
        return append_durably(path, "".join(lines).encode())

    def read(self, batch: BatchRow) -> bytes:
        """The batch's bytes, checked."""
        try:
            body = self._path(batch.count).read_bytes()
        except OSError as error:
            raise Damaged(f"{self._path(batch.count)}: {error.strerror}") from error
        if _md5(body) != batch.md5:
            raise Damaged(f"{self._path(batch.count)} is not what was written to it")
        return body

    def deliver(self, batch: BatchRow, output: str, outputs: Collection[str]) -> None:
        """Notes that an output has a batch."""
        try:
            shipped = self._deliver(batch, output, outputs)
        except CannotWrite:
            if not self.make_room(_ROOM_TO_NOTE):
                raise
            shipped = self._deliver(batch, output, outputs)
        with self.changed:
            if shipped:
                self._waiting -= batch.bytes
                self._kept += batch.bytes
            self.changed.notify_all()

    def _deliver(self, batch: BatchRow, output: str, outputs: Collection[str]) -> bool:
        with _writing():
            return self.journal.deliver(batch, output, outputs, self._clock.now())

    def ship_again(self) -> int:
        """Offers every kept batch to the outputs again; how many there are."""
        with self.changed:
            again = self.journal.unship()
            self._waiting, self._kept = self.size, 0
            self.changed.notify_all()
        return again

    def forgettable_sources(self) -> list[str]:
        """Sources of which nothing was taken for as long as batches are kept."""
        return self.journal.sources_before(self._clock.now() - self._retention)

    def has_room(self) -> bool:
        """Whether more input may be taken. Shipped batches give way, oldest first."""
        if self.size >= self._max_bytes:
            self.make_room(self.size - self._max_bytes + 1)
        return self.size < self._max_bytes

    def make_room(self, wanted: int) -> int:
        """Removes shipped batches before their time; how many bytes that freed."""
        freed = 0
        gone: list[BatchRow] = []
        for batch in self.journal.shipped(before=None, limit=_AT_ONCE):
            if freed >= wanted:
                break
            freed += self._unlink(batch)
            gone.append(batch)
        self._forget(gone)
        if freed:
            log.warning("%d bytes of shipped batches were removed early, to make room", freed)
        return freed

    def expire(self) -> int:
        """Removes shipped batches whose time is over; how many."""
        before = self._clock.now() - self._retention
        removed = 0
        while shipped := self.journal.shipped(before=before, limit=_AT_ONCE):
            for batch in shipped:
                self._unlink(batch)
            if not self._forget(shipped):
                break
            removed += len(shipped)
        return removed

    def _unlink(self, batch: BatchRow) -> int:
        try:
            self._path(batch.count).unlink()
            return batch.bytes
        except FileNotFoundError:
            return 0

    def _forget(self, gone: Sequence[BatchRow]) -> bool:
        """After their files: on a full disk only that makes room to note it. Whether it could."""
        try:
            with _writing(), self.journal.transaction(durable=False):
                for batch in gone:
                    self.journal.forget(batch)
        except CannotWrite as error:
            log.warning("removed batches are noted later: %s", error)
            return False
        with self.changed:
            self._kept -= sum(batch.bytes for batch in gone)
        return True

    def _path(self, count: int) -> Path:
        return self._folder / "batches" / f"{count:012d}.parquet"


def _row(count: int, sealed: Sealed) -> BatchRow:
    body = sealed.body
    return BatchRow(count, sealed.key, sealed.records, len(body), _md5(body), sealed.created_at)


def _md5(body: bytes) -> str:
    return hashlib.md5(body, usedforsecurity=False).hexdigest()


@contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CannotWrite(f"{error.strerror} ({error.filename or 'buffer'})") from error
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF in _UNWRITABLE:
            raise CannotWrite(f"{error} ({home.JOURNAL_FILE})") from error
        raise
