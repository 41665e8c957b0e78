"""Whose file it is: a lake's own files lie below its data path, landed ones never do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from landfall.errors import ConfigError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


def data_path(con: DuckDBPyConnection, database: str) -> str:
    """The lake's data path as its catalog has it; ends with a slash."""
    row = con.execute(
        "SELECT value FROM ducklake_options(?) WHERE option_name = 'data_path'", [database]
    ).fetchone()
    assert row is not None
    return f"{str(row[0]).rstrip('/')}/"


def is_below(path: str, prefix: str) -> bool:
    return f"{_plain(path)}/".startswith(f"{_plain(prefix)}/")


def refuse_overlap(con: DuckDBPyConnection, database: str, source_uri: str) -> None:
    """Refuse a landing inside the data path: landed files would be deleted there as orphans."""
    lake = data_path(con, database)
    if is_below(source_uri, lake) or is_below(lake, source_uri):
        raise ConfigError(
            f"the landing and the lake's data path {lake} lie in each other.",
            where=source_uri,
            fix="give the lake a data path of its own, apart from every landing.",
        )


def _plain(path: str) -> str:
    return path.replace("s3a://", "s3://", 1).rstrip("/")
