"""The ledger, the partition state with its fence, and the file history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass, fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from landfall.errors import Conflict
from landfall.lake_rows import is_lake, put_row, take_fence
from landfall.ledger_rows import FileRow, LedgerRow, PartitionState, RunStatus, WatermarkRow
from landfall.ledger_schema import FILES, PARTITIONS, ensure, exists
from landfall.sql import Destination, describe_table, quoted

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from landfall.manifest import StagedSource

__all__ = [
    "Fence",
    "FileRow",
    "LedgerRow",
    "PartitionState",
    "RunStatus",
    "WatermarkRow",
    "ensure",
    "exists",
    "fence",
    "file_history",
    "find_run",
    "last_runs",
    "partitions",
    "record",
    "record_files",
    "select_rows",
]

_FILES_A_STATEMENT = 1_000


@dataclass(frozen=True)
class Fence:
    """What the partition state said before. `superseded`: a newer stage is loaded already."""

    previous: PartitionState | None
    superseded: bool


Row = TypeVar("Row", LedgerRow, PartitionState, FileRow, WatermarkRow)


def fence(con: DuckDBPyConnection, destination: Destination, state: PartitionState) -> Fence:
    """Takes the partition for this transaction, which must have written nothing before.

    Of two transactions that do so at once, one fails here or at its COMMIT. That needs the run's id
    to be a new one: where two updates change nothing, DuckDB sees no conflict.
    """
    import duckdb

    lake = is_lake(con, destination.database)
    if lake:
        take_fence(con, destination, state.run_id)
    found = partitions(con, destination, state.partition)
    previous = found[0] if found else None
    if previous is not None and state.staged_at < previous.staged_at:
        return Fence(previous, superseded=True)
    if lake:
        key = {"destination_table": destination.text, "partition": state.partition}
        put_row(con, destination.beside(PARTITIONS), key, asdict(state))
        return Fence(previous, superseded=False)
    names = [field.name for field in fields(PartitionState)]
    update = ", ".join(f"{name} = excluded.{name}" for name in names[2:])
    try:
        con.execute(
            f"INSERT INTO {destination.beside(PARTITIONS)} ({', '.join(names)}) "  # noqa: S608
            f"VALUES ({_marks(names)}) "
            f"ON CONFLICT (destination_table, partition) DO UPDATE SET {update}",
            list(astuple(state)),
        )
    except duckdb.ConstraintException as error:
        raise Conflict(
            f"another run loaded {state.partition} in the same moment.",
            where=destination.text,
            fix="try again.",
        ) from error
    return Fence(previous, superseded=False)


def record(con: DuckDBPyConnection, destination: Destination, ledger: str, row: LedgerRow) -> None:
    names = [field.name for field in fields(LedgerRow)]
    con.execute(
        f"INSERT INTO {destination.beside(ledger, what='ledger')} ({', '.join(names)}) "  # noqa: S608
        f"VALUES ({_marks(names)})",
        list(astuple(row)),
    )


def record_files(
    con: DuckDBPyConnection,
    destination: Destination,
    state: PartitionState,
    sources: Sequence[StagedSource],
) -> None:
    for start in range(0, len(sources), _FILES_A_STATEMENT):
        some = sources[start : start + _FILES_A_STATEMENT]
        con.execute(
            f"INSERT INTO {destination.beside(FILES)} "
            "(destination_table, partition, run_id, loaded_at, staged_at, key, size, etag, rows, "
            "watermark_min, watermark_max, read_until) "
            "SELECT ?, ?, ?, ?, ?, unnest(?), unnest(?), unnest(?), unnest(?), "
            "unnest(?::VARCHAR[]), unnest(?::VARCHAR[]), unnest(?::VARCHAR[])",
            [
                *(state.destination_table, state.partition, state.run_id),
                *(state.loaded_at, state.staged_at),
                [source.key for source in some],
                [source.size for source in some],
                [source.etag for source in some],
                [source.rows for source in some],
                [source.watermark_min for source in some],
                [source.watermark_max for source in some],
                [source.read_until for source in some],
            ],
        )


def find_run(
    con: DuckDBPyConnection, destination: Destination, ledger: str, run_id: str
) -> LedgerRow | None:
    """The row of a run that has ended."""
    rows = select_rows(con, destination, ledger, LedgerRow, "WHERE run_id = ?", [run_id])
    return rows[0] if rows else None


def last_runs(
    con: DuckDBPyConnection,
    destination: Destination,
    ledger: str,
    *,
    dataset: str | None = None,
    partition: str | None = None,
    limit: int = 20,
) -> list[LedgerRow]:
    """The table's runs, newest first; `partition` is the ledger's `load_partition`.

    Reads only, and finds nothing where nothing exists yet. Rows of a Flight belong to any dataset.
    """
    return select_rows(
        con,
        destination,
        ledger,
        LedgerRow,
        "WHERE destination_table = ? AND (? IS NULL OR coalesce(dataset, ?) = ?) "
        "AND (? IS NULL OR load_partition = ?) ORDER BY run_at DESC LIMIT ?",
        [destination.text, dataset, dataset, dataset, partition, partition, limit],
    )


def partitions(
    con: DuckDBPyConnection, destination: Destination, partition: str | None = None
) -> list[PartitionState]:
    """What is loaded now: of the whole table, or of the partition with this label."""
    return select_rows(
        con,
        destination,
        PARTITIONS,
        PartitionState,
        "WHERE destination_table = ? AND (? IS NULL OR partition = ?) ORDER BY partition",
        [destination.text, partition, partition],
    )


def file_history(
    con: DuckDBPyConnection,
    destination: Destination,
    partition: str,
    *,
    run_id: str | None = None,
) -> list[FileRow]:
    """The source files of a partition: of one run, or of every load of it, newest first."""
    return select_rows(
        con,
        destination,
        FILES,
        FileRow,
        "WHERE destination_table = ? AND partition = ? AND (? IS NULL OR run_id = ?) "
        "ORDER BY loaded_at DESC, key",
        [destination.text, partition, run_id, run_id],
    )


def select_rows(
    con: DuckDBPyConnection,
    destination: Destination,
    table: str,
    row_type: type[Row],
    tail: str,
    parameters: list[Any],
) -> list[Row]:
    """The rows of one of the ledger's tables; none where there is no such table yet."""
    if not exists(con, destination, table):
        return []
    named = Destination(destination.database, destination.schema, table)
    have = dict(con.execute(*describe_table(named)).fetchall())
    columns = ", ".join(_read(f.name, have.get(f.name)) for f in fields(row_type))
    text = f"SELECT * FROM (SELECT {columns} FROM {named.qualified}) {tail}"  # noqa: S608
    return [row_type(*map(_typed, row)) for row in con.execute(text, parameters).fetchall()]


def _read(name: str, kind: str | None) -> str:
    """The column as Python reads it; NULL in a ledger that does not have it yet."""
    if kind is None:
        return f"NULL::VARCHAR AS {quoted(name)}"
    if kind == "TIMESTAMP WITH TIME ZONE":  # which Python reads with a further package only
        return f"{quoted(name)} AT TIME ZONE 'UTC' AS {quoted(name)}"
    return quoted(name)


def _typed(value: Any) -> Any:
    return value.replace(tzinfo=UTC) if isinstance(value, datetime) else value


def _marks(names: Sequence[str]) -> str:
    return ", ".join("?" * len(names))
