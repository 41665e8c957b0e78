"""The buffer's memory: which batches there are, what was shipped, how far the inputs were read.

One SQLite file, so that a batch, the positions it covers and its dead letters count at one moment.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

_TABLES = """
CREATE TABLE IF NOT EXISTS batches (
    count INTEGER PRIMARY KEY, key TEXT NOT NULL, records INTEGER NOT NULL, bytes INTEGER NOT NULL,
    md5 TEXT NOT NULL, created_at TEXT NOT NULL, shipped_at TEXT
);
CREATE INDEX IF NOT EXISTS waiting ON batches (count) WHERE shipped_at IS NULL;
CREATE TABLE IF NOT EXISTS deliveries (
    count INTEGER NOT NULL, output TEXT NOT NULL, PRIMARY KEY (count, output)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS sources (
    source TEXT PRIMARY KEY, label TEXT NOT NULL, position INTEGER NOT NULL, open TEXT NOT NULL,
    seen_at TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS outputs (
    output TEXT PRIMARY KEY, shipped_at TEXT, error TEXT, error_at TEXT
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
"""
_COLUMNS = "count, key, records, bytes, md5, created_at"


@dataclass(frozen=True)
class BatchRow:
    """A durable batch; its file in the buffer is named after its count."""

    count: int
    key: str
    records: int
    bytes: int
    md5: str
    created_at: datetime


@dataclass(frozen=True)
class SourceState:
    """All before `position` was taken; of that, only the `open` ranges are not durable yet."""

    label: str
    position: int
    open: tuple[tuple[int, int], ...] = ()


class Journal:
    """Safe for several threads of one process."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self._lock = threading.RLock()
        self._con = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode={'ro' if read_only else 'rwc'}",
            uri=True,
            isolation_level=None,
            check_same_thread=False,
            timeout=30,
        )
        if read_only:
            return
        self._con.execute("PRAGMA journal_mode = WAL")
        self._con.executescript(f"BEGIN IMMEDIATE; {_TABLES} COMMIT;")

    @property
    def is_made(self) -> bool:
        """False for an instant, while the first writer makes it."""
        return bool(self._rows("SELECT 1 FROM sqlite_master WHERE name = 'facts'"))

    def close(self) -> None:
        with self._lock:
            self._con.close()

    @contextmanager
    def transaction(self, *, durable: bool = True) -> Iterator[None]:
        """All of it or nothing; a durable one outlives a crash."""
        with self._lock:
            self._con.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            self._con.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._con.execute("COMMIT")
            except BaseException:
                if self._con.in_transaction:
                    self._con.execute("ROLLBACK")
                raise

    def _rows(self, query: str, *values: Any) -> list[Any]:
        with self._lock:
            return self._con.execute(query, values).fetchall()

    def fact(self, name: str, default: Any = None) -> Any:
        rows = self._rows("SELECT value FROM facts WHERE name = ?", name)
        return rows[0][0] if rows else default

    def set_fact(self, name: str, value: Any) -> None:
        self._rows("INSERT OR REPLACE INTO facts VALUES (?, ?)", name, value)

    def add(self, name: str, number: int) -> None:
        self.set_fact(name, self.fact(name, 0) + number)

    def insert_batch(self, batch: BatchRow) -> None:
        self._rows(
            f"INSERT INTO batches ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)",  # noqa: S608
            batch.count,
            batch.key,
            batch.records,
            batch.bytes,
            batch.md5,
            _text(batch.created_at),
        )

    def counts(self) -> set[int]:
        return {row[0] for row in self._rows("SELECT count FROM batches")}

    def sums(self) -> dict[bool, tuple[int, int, int]]:
        """Batches, records and bytes in the buffer: of the shipped ones, and of the others."""
        rows = self._rows(
            "SELECT shipped_at IS NOT NULL, count(*), sum(records), sum(bytes) "
            "FROM batches GROUP BY 1"
        )
        return {bool(shipped): (n, records, size) for shipped, n, records, size in rows}

    def waiting(self, output: str, *, without: Collection[int], limit: int = 1) -> list[BatchRow]:
        """The oldest batches that this output does not have."""
        rows = self._rows(
            f"SELECT {_COLUMNS} FROM batches b WHERE shipped_at IS NULL AND NOT EXISTS ("  # noqa: S608
            "SELECT 1 FROM deliveries d WHERE d.count = b.count AND d.output = ?) "
            "AND count NOT IN (SELECT value FROM json_each(?)) ORDER BY count LIMIT ?",
            output,
            json.dumps(sorted(without)),
            limit,
        )
        return [_batch(row) for row in rows]

    def waiting_number(self, output: str) -> int:
        rows = self._rows(
            "SELECT count(*) FROM batches b WHERE shipped_at IS NULL AND NOT EXISTS ("
            "SELECT 1 FROM deliveries d WHERE d.count = b.count AND d.output = ?)",
            output,
        )
        return int(rows[0][0])

    def oldest_waiting(self) -> BatchRow | None:
        rows = self._rows(
            f"SELECT {_COLUMNS} FROM batches WHERE shipped_at IS NULL ORDER BY count LIMIT 1"  # noqa: S608
        )
        return _batch(rows[0]) if rows else None

    def deliver(self, batch: BatchRow, output: str, outputs: Collection[str], at: datetime) -> bool:
        """Notes that the output has the batch; whether all of them have it by now.

        A crash may forget it: the batch is shipped again then, and found to be there.
        """
        with self.transaction(durable=False):
            self._rows("INSERT OR IGNORE INTO deliveries VALUES (?, ?)", batch.count, output)
            self._rows(
                "INSERT INTO outputs (output, shipped_at) VALUES (?, ?) "
                "ON CONFLICT DO UPDATE SET shipped_at = excluded.shipped_at",
                output,
                _text(at),
            )
            have = {
                row[0]
                for row in self._rows("SELECT output FROM deliveries WHERE count = ?", batch.count)
            }
            if not have >= set(outputs):
                return False
            self._ship(batch, at)
            return True

    def settle(self, outputs: Collection[str], at: datetime) -> None:
        """Notes as shipped what all of these outputs have: others may have been taken away."""
        with self.transaction():
            rows = self._rows(
                f"SELECT {_COLUMNS} FROM batches b WHERE shipped_at IS NULL AND NOT EXISTS ("  # noqa: S608
                "SELECT 1 FROM json_each(?) o WHERE NOT EXISTS (SELECT 1 FROM deliveries d "
                "WHERE d.count = b.count AND d.output = o.value))",
                json.dumps(sorted(outputs)),
            )
            for row in rows:
                self._ship(_batch(row), at)

    def _ship(self, batch: BatchRow, at: datetime) -> None:
        self._rows("UPDATE batches SET shipped_at = ? WHERE count = ?", _text(at), batch.count)
        self._rows("DELETE FROM deliveries WHERE count = ?", batch.count)
        self.add("shipped_batches", 1)
        self.add("shipped_records", batch.records)
        self.add("shipped_bytes", batch.bytes)

    def unship(self) -> int:
        """Lets every batch that is kept be shipped again; how many there are."""
        with self.transaction():
            number, records, size = self.sums().get(True, (0, 0, 0))
            self._rows("UPDATE batches SET shipped_at = NULL")
            self.add("shipped_batches", -number)
            self.add("shipped_records", -records)
            self.add("shipped_bytes", -size)
        return number

    def shipped(self, *, before: datetime | None, limit: int) -> list[BatchRow]:
        """The oldest shipped batches that are kept; only those shipped before a time."""
        rows = self._rows(
            f"SELECT {_COLUMNS} FROM batches WHERE shipped_at IS NOT NULL "  # noqa: S608
            "AND (?1 IS NULL OR shipped_at < ?1) ORDER BY count LIMIT ?2",
            _text(before) if before else None,
            limit,
        )
        return [_batch(row) for row in rows]

    def forget(self, batch: BatchRow) -> None:
        self._rows("DELETE FROM batches WHERE count = ?", batch.count)

    def sources(self) -> dict[str, SourceState]:
        rows = self._rows("SELECT source, label, position, open FROM sources")
        return {
            source: SourceState(label, position, tuple(map(tuple, json.loads(ranges))))
            for source, label, position, ranges in rows
        }

    def set_sources(self, states: Mapping[str, SourceState], at: datetime) -> None:
        for source, state in states.items():
            self._rows(
                "INSERT OR REPLACE INTO sources VALUES (?, ?, ?, ?, ?)",
                source,
                state.label,
                state.position,
                json.dumps(state.open),
                _text(at),
            )

    def sources_before(self, moment: datetime) -> list[str]:
        """Sources of which nothing was taken since."""
        rows = self._rows("SELECT source FROM sources WHERE seen_at < ?", _text(moment))
        return [row[0] for row in rows]

    def forget_source(self, source: str) -> None:
        self._rows("DELETE FROM sources WHERE source = ?", source)

    def note_error(self, output: str, error: str, at: datetime) -> None:
        self._rows(
            "INSERT INTO outputs (output, error, error_at) VALUES (?, ?, ?) "
            "ON CONFLICT DO UPDATE SET error = excluded.error, error_at = excluded.error_at",
            output,
            error,
            _text(at),
        )

    def outputs(self) -> dict[str, tuple[datetime | None, str | None, datetime | None]]:
        """Of each output: when it last took a batch, its last error, and when that was."""
        rows = self._rows("SELECT output, shipped_at, error, error_at FROM outputs")
        return {name: (_time(shipped), error, _time(at)) for name, shipped, error, at in rows}


def _batch(row: tuple[Any, ...]) -> BatchRow:
    count, key, records, size, md5, created_at = row
    return BatchRow(count, key, records, size, md5, datetime.fromisoformat(created_at))


def _text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
