"""The ledger's tables, made and migrated by numbered steps. A step never destroys anything.

Each step may run on a ledger that has it already, or in part: MotherDuck's scheduled-ingest Flight
makes `ingest_runs` with six columns, and that table is taken over as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from landfall.errors import ConfigError, WarehouseError
from landfall.sql import Destination, identifier, table_kind, without_keys

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from landfall.warehouse.base import Warehouse

PARTITIONS = "ingest_partitions"
FILES = "ingest_files"
MIGRATIONS = "landfall_migrations"
WATERMARKS = "ingestion_watermarks"
REJECTS = "ingest_rejects"
LAKE_LOCK = "landfall_lock"

Step = Callable[[Destination, str], list[str]]


def _runs(destination: Destination, ledger: str) -> list[str]:
    table = destination.beside(ledger, what="ledger")
    flight = (
        "run_at TIMESTAMPTZ, source_glob VARCHAR, destination_table VARCHAR, "
        "partition_column VARCHAR, load_partition VARCHAR, row_count BIGINT"
    )
    added = (
        *(f"{name} VARCHAR" for name in ("run_id", "dataset", "dag_id", "dag_run_id")),
        "try_number INTEGER",
        *(f"{name} VARCHAR" for name in ("attempt", "mode", "status")),
        *(f"rows_{what} BIGINT" for what in ("read", "filtered", "deduplicated", "rejected")),
        *(f"{name} BIGINT" for name in ("rows_deleted", "files", "bytes")),
        *(f"{name} VARCHAR" for name in ("source_fingerprint", "schema_hash")),
        *(f"{name} TIMESTAMPTZ" for name in ("started_at", "finished_at")),
        "error VARCHAR",
    )
    return [
        f"CREATE TABLE IF NOT EXISTS {table} ({flight})",
        *(f"ALTER TABLE {table} ADD COLUMN IF NOT EXISTS {column}" for column in added),
    ]


def _partitions(destination: Destination, _: str) -> list[str]:
    columns = (
        "destination_table VARCHAR, partition VARCHAR, dataset VARCHAR, staged_at TIMESTAMPTZ, "
        "run_id VARCHAR, attempt VARCHAR, attempt_uri VARCHAR, rows BIGINT, files BIGINT, "
        "bytes BIGINT, source_fingerprint VARCHAR, schema_hash VARCHAR, config_hash VARCHAR, "
        "loaded_at TIMESTAMPTZ, PRIMARY KEY (destination_table, partition)"
    )
    return [f"CREATE TABLE IF NOT EXISTS {destination.beside(PARTITIONS)} ({columns})"]


def _files(destination: Destination, _: str) -> list[str]:
    columns = (
        "destination_table VARCHAR, partition VARCHAR, run_id VARCHAR, key VARCHAR, size BIGINT, "
        "etag VARCHAR, rows BIGINT, loaded_at TIMESTAMPTZ"
    )
    return [f"CREATE TABLE IF NOT EXISTS {destination.beside(FILES)} ({columns})"]


def _upserts(destination: Destination, ledger: str) -> list[str]:
    """Watermarks, rejects, and what they add to the older tables.

    MotherDuck's guides make `ingestion_watermarks` with `pipeline_name` and a column of their own:
    that table is taken over as it is.
    """
    marks, rejects = destination.beside(WATERMARKS), destination.beside(REJECTS)
    texts = ("dataset", "destination_table", "partition", "watermark_column", "watermark_type",
             "last_watermark", "run_id")  # fmt: skip
    kept = (f"{name} VARCHAR" for name in ("destination_table", "dataset", "partition", "run_id",
            "attempt", "reason", "source_file", "row_json"))  # fmt: skip
    counts = ("rows_inserted", "rows_updated", "rows_unchanged", "rows_late", "rows_outside",
              "total_rows")  # fmt: skip
    added = {
        marks: (
            *(f"{name} VARCHAR" for name in texts),
            "staged_at TIMESTAMPTZ",
            "updated_at TIMESTAMPTZ",
        ),
        destination.beside(ledger, what="ledger"): (
            *(f"{name} BIGINT" for name in counts),
            *(f"{name} VARCHAR" for name in ("watermark", "read_from", "read_until")),
        ),
        destination.beside(FILES): (
            "staged_at TIMESTAMPTZ",
            *(f"{name} VARCHAR" for name in ("watermark_min", "watermark_max", "read_until")),
        ),
    }
    return [
        f"CREATE TABLE IF NOT EXISTS {marks} (pipeline_name VARCHAR PRIMARY KEY)",
        f"CREATE TABLE IF NOT EXISTS {rejects} ({', '.join(kept)}, rejected_at TIMESTAMPTZ)",
        *(
            f"ALTER TABLE {table} ADD COLUMN IF NOT EXISTS {column}"
            for table, columns in added.items()
            for column in columns
        ),
    ]


def _snapshots(destination: Destination, ledger: str) -> list[str]:
    table = destination.beside(ledger, what="ledger")
    return [f"ALTER TABLE {table} ADD COLUMN IF NOT EXISTS snapshot_id BIGINT"]


STEPS: tuple[Step, ...] = (_runs, _partitions, _files, _upserts, _snapshots)


def ensure(
    warehouse: Warehouse, con: DuckDBPyConnection, destination: Destination, ledger: str
) -> None:
    """The ledger's tables exist and are as this Landfall needs them afterwards."""
    _refuse_name(destination, ledger)
    done = _steps_done(con, destination, ledger)
    if done > len(STEPS):
        raise WarehouseError(
            f"the ledger was made by a newer Landfall (step {done}; this one knows {len(STEPS)}).",
            where=destination.text,
            fix="install the newer Landfall here too.",
        )
    if done == len(STEPS):
        return
    migrations = destination.beside(MIGRATIONS)
    fits = without_keys if warehouse.lake else str
    con.execute(
        fits(
            f"CREATE TABLE IF NOT EXISTS {migrations} "
            "(ledger VARCHAR, step INTEGER, applied_at TIMESTAMPTZ, PRIMARY KEY (ledger, step))"
        )
    )
    for number, step in enumerate(STEPS[done:], start=done + 1):
        with warehouse.transaction(con):
            for statement in step(destination, ledger):
                con.execute(fits(statement))
            con.execute(
                f"INSERT INTO {migrations} SELECT ?, ?, now() WHERE NOT EXISTS "  # noqa: S608
                f"(SELECT 1 FROM {migrations} WHERE ledger = ? AND step = ?)",
                [ledger.lower(), number] * 2,
            )


def exists(con: DuckDBPyConnection, destination: Destination, table: str) -> bool:
    return con.execute(*table_kind(destination, table)).fetchone() is not None


def _steps_done(con: DuckDBPyConnection, destination: Destination, ledger: str) -> int:
    if not exists(con, destination, MIGRATIONS) or not exists(con, destination, ledger):
        return 0
    row = con.execute(
        f"SELECT max(step) FROM {destination.beside(MIGRATIONS)} WHERE ledger = ?",  # noqa: S608
        [ledger.lower()],
    ).fetchone()
    return int(row[0] or 0) if row else 0


def _refuse_name(destination: Destination, ledger: str) -> None:
    identifier(ledger, what="ledger")
    own = (PARTITIONS, FILES, MIGRATIONS, WATERMARKS, REJECTS, LAKE_LOCK)
    names = [destination.table.lower(), ledger.lower(), *own]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ConfigError(
            f"the name {twice!r} is taken by one of the ledger's tables.",
            where=destination.text,
            fix="give load.destination and load.ledger names of their own.",
        )
