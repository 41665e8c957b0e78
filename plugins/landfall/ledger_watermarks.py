"""The watermarks: how far each pipeline has been read, and which files it knows."""

from __future__ import annotations

from dataclasses import asdict, astuple, dataclass, fields, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from landfall.errors import Conflict, ContractError
from landfall.lake_rows import is_lake, put_row, take_fence
from landfall.ledger import FileRow, WatermarkRow, select_rows
from landfall.ledger_schema import FILES, WATERMARKS
from landfall.partition import WHOLE
from landfall.sql import Destination, literal
from landfall.watermark import MarkType, greatest

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


def pipeline_name(dataset: str, partition: str) -> str:
    """A dataset has one watermark; where a run names its partition, each partition has its own."""
    return dataset if partition == WHOLE else f"{dataset}/{partition}"


_NEVER = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Advanced:
    """The watermark after a load. `stale`: a newer look at the landing was loaded before."""

    row: WatermarkRow
    stale: bool


@dataclass(frozen=True)
class Known:
    """What the warehouse knows of a pipeline before a run."""

    watermark: WatermarkRow | None
    files: dict[str, FileRow]
    """By key: the source files as they were when last read."""


def watermarks(
    con: DuckDBPyConnection, destination: Destination, *, dataset: str | None = None
) -> list[WatermarkRow]:
    """The watermarks of the schema, or of one dataset. Other tools' rows have no dataset."""
    return select_rows(
        con,
        destination,
        WATERMARKS,
        WatermarkRow,
        "WHERE dataset IS NOT NULL AND (? IS NULL OR dataset = ?) ORDER BY pipeline_name",
        [dataset, dataset],
    )


def find(con: DuckDBPyConnection, destination: Destination, pipeline: str) -> WatermarkRow | None:
    tail = "WHERE pipeline_name = ?"
    rows = select_rows(con, destination, WATERMARKS, WatermarkRow, tail, [pipeline])
    return rows[0] if rows else None


def known(con: DuckDBPyConnection, destination: Destination, dataset: str, partition: str) -> Known:
    """Without a watermark nothing is known: who deletes its row has everything read anew."""
    row = find(con, destination, pipeline_name(dataset, partition))
    if row is None:
        return Known(None, {})
    files = select_rows(
        con,
        destination,
        FILES,
        FileRow,
        "WHERE destination_table = ? AND partition = ? AND staged_at IS NOT NULL QUALIFY "
        "row_number() OVER (PARTITION BY key ORDER BY staged_at DESC, loaded_at DESC) = 1",
        [destination.text, partition],
    )
    return Known(row, {file.key: file for file in files})


def refuse_other(
    row: WatermarkRow | None,
    destination: Destination,
    column: str,
    kind: str | None,
    *,
    table_exists: bool,
) -> None:
    """Refuse a watermark that says nothing about what this run is about to load."""
    if row is None:
        return
    reset = (
        f"{destination.schema}.{WATERMARKS} where pipeline_name = {literal(row.pipeline_name)}, to "
        "load everything anew"
    )
    if row.destination_table.lower() != destination.text.lower():
        what = f"its watermark belongs to the table {row.destination_table}"
        fix = f"give the dataset another name, or delete the row of {reset}."
    elif row.last_watermark is not None and not table_exists:
        what = f"its watermark is {row.last_watermark}, but the table is gone"
        fix = f"restore the table, or delete the row of {reset}."
    elif row.watermark_column != column:
        what = f"its watermark is of the column {row.watermark_column!r}, not {column!r}"
        fix = f"set load.watermark.column back, or delete the row of {reset}."
    elif kind is not None and row.watermark_type not in ("", kind):
        what = f"the watermark column {column!r} is {kind}, but the stored one {row.watermark_type}"
        fix = (
            f"cast it with transform.select to {row.watermark_type}, or delete the row of {reset}."
        )
    else:
        return
    raise ContractError(f"{what}.", where=f"pipeline {row.pipeline_name}", fix=fix)


def advance(
    con: DuckDBPyConnection, destination: Destination, row: WatermarkRow, *, moves: bool
) -> Advanced:
    """Takes the pipeline for this transaction, which must have written nothing before.

    The watermark never moves backward; a replay does not move it at all. Of two transactions that
    do so at once, one fails here or at its COMMIT.
    """
    import duckdb

    lake = is_lake(con, destination.database)
    if lake:
        take_fence(con, destination, row.run_id)
    stored = find(con, destination, row.pipeline_name)
    moved = row if moves else replace(row, last_watermark=None, staged_at=_NEVER)
    if stored is not None:
        moved = replace(
            moved,
            watermark_type=stored.watermark_type or row.watermark_type,
            last_watermark=_reached(stored, moved),
            staged_at=max(stored.staged_at, moved.staged_at),
        )
    advanced = Advanced(moved, stale=stored is not None and row.staged_at < stored.staged_at)
    if lake:
        key = {"pipeline_name": row.pipeline_name}
        put_row(con, destination.beside(WATERMARKS), key, asdict(moved))
        return advanced
    names = [field.name for field in fields(WatermarkRow)]
    update = ", ".join(f"{name} = excluded.{name}" for name in names[1:])
    try:
        con.execute(
            f"INSERT INTO {destination.beside(WATERMARKS)} ({', '.join(names)}) "  # noqa: S608
            f"VALUES ({', '.join('?' * len(names))}) "
            f"ON CONFLICT (pipeline_name) DO UPDATE SET {update}",
            list(astuple(moved)),
        )
    except duckdb.ConstraintException as error:
        raise Conflict(
            f"another run of {row.pipeline_name} loaded in the same moment.",
            where=destination.text,
            fix="try again.",
        ) from error
    return advanced


def _reached(stored: WatermarkRow, row: WatermarkRow) -> str | None:
    if stored.last_watermark is None:
        return row.last_watermark
    return greatest(MarkType(stored.watermark_type), stored.last_watermark, row.last_watermark)
