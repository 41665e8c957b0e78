"""What a PRIMARY KEY does elsewhere, done on DuckLake, which has none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from landfall.ledger_schema import LAKE_LOCK, exists
from landfall.sql import Destination, identifier

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


def is_lake(con: DuckDBPyConnection, database: str) -> bool:
    row = con.execute(
        "SELECT type FROM duckdb_databases() WHERE database_name = ?", [database]
    ).fetchone()
    return row is not None and row[0] == "ducklake"


def take_fence(con: DuckDBPyConnection, destination: Destination, run_id: str) -> None:
    """Of two transactions that write to this schema at once, one fails at its COMMIT.

    Two that only insert would both commit, and so would two that delete what is not there yet:
    hence one row that each of them updates.
    """
    lock = destination.beside(LAKE_LOCK)
    if exists(con, destination, LAKE_LOCK):
        con.execute(f"UPDATE {lock} SET run_id = ?", [run_id])  # noqa: S608
    else:
        con.execute(f"CREATE TABLE {lock} AS SELECT ?::VARCHAR AS run_id", [run_id])


def put_row(
    con: DuckDBPyConnection, table: str, key: Mapping[str, Any], row: Mapping[str, Any]
) -> None:
    """The row stands in the table once, whatever was there under its key. Needs the fence."""
    same = " AND ".join(f"{identifier(name, what='column')} = ?" for name in key)
    con.execute(f"DELETE FROM {table} WHERE {same}", list(key.values()))  # noqa: S608
    names = ", ".join(identifier(name, what="column") for name in row)
    marks = ", ".join("?" * len(row))
    con.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", list(row.values()))  # noqa: S608
