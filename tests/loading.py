"""Stages made by DuckDB itself, and other writers of the same database."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import duckdb

from landfall import ledger
from landfall.dataset import OnSchemaChange
from landfall.ledger import LedgerRow, PartitionState
from landfall.load import LoadRequest, RunInfo
from landfall.manifest import Column, Manifest, StagedFile, StagedSource
from landfall.partition import Partition
from landfall.sql import Destination
from landfall.warehouse.base import Warehouse
from landfall.warehouse.duckdb import DuckDBWarehouse

DESTINATION = Destination("retail", "main", "transactions")
DAY: Mapping[str, str | Sequence[str]] = {"region": "*", "date": "2026-02-11"}
TYPES = {"region": "string", "date": "date"}

ROWS = (
    "SELECT i AS id, CASE WHEN i % 2 = 0 THEN 'MW' ELSE 'NE' END AS region, "
    "DATE '{day}' AS date, i * {factor} AS amount FROM range({rows}) r(i)"
)


def rows(day: str = "2026-02-11", rows: int = 10, factor: int = 1) -> str:
    return ROWS.format(day=day, rows=rows, factor=factor)


@dataclass(frozen=True)
class Stage:
    """Writes attempts below a folder, as Spark does below a prefix."""

    folder: Path

    def request(
        self,
        *queries: str,
        partition: Mapping[str, str | Sequence[str]] = DAY,
        types: Mapping[str, str] = TYPES,
        staged_at: str = "2026-02-12T06:30:00.000000+00:00",
        attempt: str | None = None,
        destination: Destination = DESTINATION,
        ledger: str = "ingest_runs",
        policy: OnSchemaChange = OnSchemaChange.EVOLVE,
        allow_empty: bool = False,
        rows_staged: int | None = None,
        columns: tuple[Column, ...] | None = None,
    ) -> LoadRequest:
        """One staged file for each query."""
        attempt = attempt or uuid4().hex[:8]
        folder = self.folder / attempt
        folder.mkdir(parents=True)
        files = [_write(folder / f"part-{n}.parquet", q) for n, q in enumerate(queries)]
        count = sum(file.rows for file in files) if rows_staged is None else rows_staged
        manifest = Manifest(
            dataset="retail_transactions",
            partition=Partition.of(partition, types),
            dag_run_id="scheduled__2026-02-12",
            attempt=attempt,
            staged_at=staged_at,
            source_uri="s3://landing/transactions",
            sources=(StagedSource("transactions/a.parquet", 100, "e1", count + 3),),
            staged=tuple(files),
            rows_read=count + 3,
            rows_filtered=1,
            rows_deduplicated=1,
            rows_rejected=1,
            rows_staged=count,
            columns=_columns(queries) if columns is None else columns,
            config_hash="c0ffee",
            committer="magic",
        )
        run = RunInfo(
            "retail", "scheduled__2026-02-12", 1, datetime(2026, 2, 12, 6, 30, tzinfo=UTC)
        )
        uri = f"{folder}/manifest.json"
        return LoadRequest(manifest, uri, destination, ledger, policy, allow_empty, run)


def _write(path: Path, query: str) -> StagedFile:
    with duckdb.connect() as con:
        con.execute(f"COPY ({query}) TO '{path}' (FORMAT parquet)")
        row = con.execute("SELECT count(*) FROM read_parquet(?)", [str(path)]).fetchone()
    assert row is not None
    return StagedFile(str(path), row[0], path.stat().st_size)


def _columns(queries: Sequence[str]) -> tuple[Column, ...]:
    found: dict[str, str] = {}
    with duckdb.connect() as con:
        for query in queries:
            found.update({r[0]: r[1] for r in con.execute(f"DESCRIBE {query}").fetchall()})
    return tuple(Column(name, kind) for name, kind in found.items())


def fetch(warehouse: Warehouse, query: str, database: str = "retail") -> list[Any]:
    with warehouse.connect(database, read_only=True) as con:
        return con.execute(query).fetchall()


def table(warehouse: Warehouse, where: str = "TRUE") -> list[Any]:
    query = f"SELECT * FROM retail.main.transactions WHERE {where} ORDER BY ALL"
    return fetch(warehouse, query)


def runs(warehouse: Warehouse, name: str = "ingest_runs") -> list[LedgerRow]:
    with warehouse.connect("retail", read_only=True) as con:
        return ledger.last_runs(con, DESTINATION, name)


def states(warehouse: Warehouse) -> list[PartitionState]:
    with warehouse.connect("retail", read_only=True) as con:
        return ledger.partitions(con, DESTINATION)


class SharedWarehouse(DuckDBWarehouse):
    """Threads of one process on one database: what MotherDuck is to several workers."""

    def __init__(self, directory: Path, database: str = "retail") -> None:
        super().__init__(directory)
        self._shared = super()._open(database, read_only=False)

    def _open(self, database: str, *, read_only: bool) -> Any:
        return self._shared.cursor()

    @contextmanager
    def closing(self) -> Iterator[None]:
        try:
            yield
        finally:
            self._shared.close()


_HOLD = """
import sys, duckdb
con = duckdb.connect(sys.argv[1])
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def holding(file: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the file as its writer; it ends when its input does."""
    command = [sys.executable, "-c", _HOLD, str(file)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            yield process
        finally:
            process.kill()
