"""A landing in memory and a stand-in for the Spark job, so that upserts run without Spark.

The stand-in follows the job's contract (tests/spark holds the job to it); everything before and
after it is the real thing.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from landfall.dataset import Dataset
from landfall.listing import Listing, SourceFile
from landfall.load import LoadRequest, RunInfo
from landfall.manifest import Column, Manifest, OpenFile, StagedFile, StagedSource, Upserted
from landfall.partition import Partition
from landfall.reading import Reading, plan_reading, read_known
from landfall.sql import Destination
from landfall.warehouse.base import Warehouse
from landfall.warehouse.duckdb import DuckDBWarehouse
from tests.loading import Watched

EVENTS = Destination("retail", "main", "events")
START = datetime(2026, 2, 12, tzinfo=UTC)
SHAPE = pa.schema({"id": pa.int64(), "at": pa.int64(), "value": pa.int64()})
REJECTED = pa.schema(
    {
        **{name: SHAPE.field(name).type for name in SHAPE.names},
        "__landfall_reason": pa.string(),
        "__landfall_row": pa.string(),
        "__landfall_file": pa.string(),
    }
)


class Row(NamedTuple):
    """A source row. `gone` marks the deletion of its id."""

    id: int
    at: int | None
    value: int
    gone: bool = False


def events(**watermark: Any) -> Dataset:
    """An upsert dataset of integers, as a dataset file would give it."""
    return Dataset.model_validate(
        {
            "dataset": "events",
            "start_date": "2026-01-01",
            "source": {"uri": "s3://landing/events"},
            "load": {
                "destination": EVENTS.text,
                "mode": "upsert",
                "key": ["id"],
                "watermark": {"column": "at", **watermark},
                "deleted": "gone",
            },
        }
    )


@dataclass
class File:
    seq: int
    rows: list[Row]

    def source(self, key: str) -> SourceFile:
        return SourceFile(key, 100 + len(self.rows), f"etag-{self.seq}")


@dataclass
class Landing:
    """Files by key; a file that is written again has a new etag and a later time."""

    files: dict[str, File] = field(default_factory=dict)
    seqs: Iterator[int] = field(default_factory=itertools.count)

    def put(self, key: str, rows: list[Row]) -> None:
        self.files[key] = File(next(self.seqs), list(rows))

    def listing(self) -> Listing:
        files = tuple(sorted(file.source(key) for key, file in self.files.items()))
        return Listing(("events/",), files, ())


@dataclass
class Runs:
    """Stages runs of one dataset below a folder. The clock moves by a second with each."""

    folder: Path
    warehouse: Warehouse
    dataset: Dataset
    landing: Landing = field(default_factory=Landing)
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def reading(self, conf: Mapping[str, Any] | None = None) -> Reading:
        assert self.dataset.upsert is not None
        known = read_known(self.warehouse, self.dataset, Partition(()))
        number = next(self.numbers)
        moment = START + timedelta(seconds=number)
        return plan_reading(self.dataset.upsert, known, self.landing.listing(), conf, moment)

    def stage(self, conf: Mapping[str, Any] | None = None) -> LoadRequest:
        reading = self.reading(conf)
        attempt = reading.staged_at.strftime("%Y%m%dT%H%M%S")
        folder = self.folder / attempt
        folder.mkdir(parents=True)
        return request(
            f"{folder}/manifest.json", stage(self.dataset, self.landing, reading, folder)
        )


def request(uri: str, manifest: Manifest) -> LoadRequest:
    from landfall.dataset import OnSchemaChange

    run = RunInfo("events", manifest.dag_run_id, 1, START)
    return LoadRequest(manifest, uri, EVENTS, "ingest_runs", OnSchemaChange.EVOLVE, False, run)


def stage(dataset: Dataset, landing: Landing, reading: Reading, folder: Path) -> Manifest:
    """What the Spark job does with the same files and the same range."""
    mark = dataset.upsert
    assert mark is not None
    late_before = None if reading.late_before is None else int(reading.late_before)
    read = outside = late = dropped = 0
    best: dict[int, tuple[Any, Row]] = {}
    rejects: list[dict[str, Any]] = []
    sources = []
    for opened in reading.files:
        file = landing.files[opened.key]
        marks = [row.at for row in file.rows if row.at is not None]
        sources.append(
            StagedSource(
                *(opened.key, opened.size, opened.etag, len(file.rows)),
                watermark_min=str(min(marks)) if marks else None,
                watermark_max=str(max(marks)) if marks else None,
                read_until=reading.until,
            )
        )
        for row in file.rows:
            read += 1
            if not _in_range(row, opened, reading):
                outside += 1
                continue
            is_late = row.at is not None and late_before is not None and row.at < late_before
            late += is_late
            reason = "late" if is_late and mark.late == "reject" else None
            reason = "no watermark" if row.at is None and mark.on_null == "reject" else reason
            if reason is not None:
                said = json.dumps(row._asdict())
                hidden = (reason, said, opened.key)
                rejects.append(dict(zip(REJECTED.names, (*row[:3], *hidden), strict=True)))
                continue
            rank = (row.at is not None, row.at or 0, file.seq, row.gone, row)
            if row.id in best:
                dropped += 1
            if row.id not in best or best[row.id][0] < rank:
                best[row.id] = (rank, row)
    chosen = [row for _, row in best.values()]
    rows = [row for row in chosen if not row.gone]
    reached = [row.at for row in chosen if row.at is not None]
    return Manifest(
        dataset="events",
        partition=Partition(()),
        dag_run_id="manual",
        attempt=folder.name,
        staged_at=reading.staged_at.isoformat(timespec="microseconds"),
        source_uri="s3://landing/events",
        sources=tuple(sources),
        staged=_write(folder / "rows.parquet", [_plain(row) for row in rows], SHAPE),
        rows_read=read,
        rows_filtered=0,
        rows_deduplicated=dropped,
        rows_rejected=len(rejects),
        rows_staged=len(rows),
        columns=tuple(Column(name, "bigint") for name in SHAPE.names) if reading.files else (),
        config_hash="c",
        committer="magic",
        upsert=Upserted(
            key=("id",),
            column="at",
            kind="integer",
            start=reading.start,
            late_before=reading.late_before,
            until=reading.until,
            replay=reading.replay,
            reached=str(max(reached)) if reached else None,
            rows_outside=outside,
            rows_late=late,
            deletes=_write(folder / "d.parquet", [_plain(r) for r in chosen if r.gone], SHAPE),
            rejects=_write(folder / "rejects.parquet", rejects, REJECTED),
        ),
    ).check()


def _in_range(row: Row, opened: OpenFile, reading: Reading) -> bool:
    if row.at is None:
        return not reading.replay and not opened.known
    lowest = [int(text) for text in (reading.start, opened.read_until) if text is not None]
    if any(row.at < low for low in lowest):
        return False
    return reading.until is None or row.at < int(reading.until)


def _plain(row: Row) -> dict[str, Any]:
    return {"id": row.id, "at": row.at, "value": row.value}


def _write(path: Path, rows: list[dict[str, Any]], shape: pa.Schema) -> tuple[StagedFile, ...]:
    if not rows:
        return ()
    pq.write_table(pa.Table.from_pylist(rows, schema=shape), path)
    return (StagedFile(str(path), len(rows), path.stat().st_size),)


class MemoryWarehouse(DuckDBWarehouse):
    """One database in memory, as many connections as wanted; each statement can be watched."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._shared = duckdb.connect(":memory:")
        self._shared.execute("ATTACH ':memory:' AS retail")
        self.before: Callable[[str], None] = lambda _: None
        self.after: Callable[[str], None] = lambda _: None

    def _open(self, database: str, *, read_only: bool) -> Any:
        return Watched(self._shared.cursor(), lambda t: self.before(t), lambda t: self.after(t))

    @contextmanager
    def unwatched(self) -> Iterator[None]:
        watched = self.before, self.after
        self.before = self.after = lambda _: None
        try:
            yield
        finally:
            self.before, self.after = watched

    def close(self) -> None:
        self._shared.close()


def table(warehouse: Warehouse) -> dict[int, tuple[int | None, int]]:
    """The loaded rows by id; none where there is no table yet."""
    with warehouse.connect("retail", read_only=True) as con:
        there = con.execute("SELECT 1 FROM duckdb_tables() WHERE table_name = 'events'").fetchone()
        if there is None:
            return {}
        rows = con.execute('SELECT id, "at", value FROM retail.main.events').fetchall()
    return {row[0]: (row[1], row[2]) for row in rows}


def query(warehouse: Warehouse, text: str) -> list[Any]:
    with warehouse.connect("retail", read_only=True) as con:
        return con.execute(text).fetchall()
