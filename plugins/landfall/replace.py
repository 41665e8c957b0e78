"""The table's part of the load transaction: fit it to the stage, then DELETE, INSERT, count."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from landfall import schema, sql
from landfall.dataset import OnSchemaChange
from landfall.errors import ContractError, ManifestError
from landfall.manifest import Manifest
from landfall.schema import TableColumn
from landfall.sql import Destination, Statement
from landfall.stage_files import Stage

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


def fit_table(
    con: DuckDBPyConnection,
    destination: Destination,
    stage: Sequence[TableColumn],
    policy: OnSchemaChange,
) -> tuple[str, ...]:
    """Creates the table, or adds what the policy lets it add; the names of added columns.

    Comes before the DELETE: after one, DuckDB refuses to alter the table.
    """
    there = refuse_view(con, destination)
    if not stage:  # nothing was staged, so nothing is known of the columns
        return ()
    if not there:
        con.execute(*sql.create_table(destination, [(c.name, c.type) for c in stage]))
        return ()
    plan = schema.plan(table_columns(con, destination), stage, policy, where=destination.text)
    for new in plan.add:
        con.execute(*sql.add_column(destination, new.column, new.type))
    return tuple(new.column for new in plan.add)


def refuse_view(con: DuckDBPyConnection, destination: Destination) -> bool:
    """Whether the table is there; refuses a view in its place."""
    kind = con.execute(*sql.table_kind(destination, destination.table)).fetchone()
    if kind is not None and kind[0] != "BASE TABLE":
        raise ContractError(
            f"it is a {str(kind[0]).lower()}, not a table.",
            where=destination.text,
            fix="name a table in load.destination, or drop the view.",
        )
    return kind is not None


def replace_partition(
    con: DuckDBPyConnection, destination: Destination, manifest: Manifest, stage: Stage
) -> int:
    """The table holds of this partition what the manifest names, and only that; rows deleted."""
    table = {column.name.lower() for column in table_columns(con, destination)}
    if not table:  # nothing staged, and no table yet
        return 0
    staged = {column.name.lower() for column in stage.columns} or table
    for key in manifest.partition.named:
        if key.name.lower() not in table & staged:
            raise ContractError(
                f"column {key.name!r}, which names the partition, is not in table and stage.",
                where=destination.text,
                fix="keep the partition's keys in transform.select, and in the table.",
            )
    deleted = number(con, sql.delete_partition(destination, manifest.partition))
    for chunk in stage.chunks:
        columns = [name for name in chunk.columns if name.lower() in table]
        con.execute(*sql.insert_by_name(destination, chunk.files, columns))
    count = number(con, sql.count_partition(destination, manifest.partition))
    if count != manifest.rows_staged:
        raise ManifestError(
            f"the partition would hold {count} rows, the manifest says {manifest.rows_staged}.",
            where=f"{destination.text}, partition {manifest.partition.label}",
            fix="clear stage_partition to stage the partition again: each staged row must belong "
            "to the partition.",
        )
    return deleted


def table_columns(con: DuckDBPyConnection, destination: Destination) -> list[TableColumn]:
    """The table's columns as they are; none if there is no table."""
    rows = con.execute(*sql.describe_table(destination)).fetchall()
    return [TableColumn(name, kind) for name, kind in rows]


def number(con: DuckDBPyConnection, statement: Statement) -> int:
    """The one number that the statement answers: a count, or how many rows it changed."""
    row = con.execute(*statement).fetchone()
    return int(row[0]) if row else 0
