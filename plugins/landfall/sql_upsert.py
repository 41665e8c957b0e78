"""Pure builders of an upsert's SQL. Identifiers are quoted, values bound, as in `sql`.

A staged row beats the row that is there if its watermark is not less; of a stale stage, only if it
is greater. NULL is less than any watermark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from landfall.manifest import HIDDEN
from landfall.sql import READ_FILES, Destination, Statement, quoted

REASON = f"{HIDDEN}reason"
ROW = f"{HIDDEN}row"
FILE = f"{HIDDEN}file"


@dataclass(frozen=True)
class Keyed:
    """A table with its key and its watermark column."""

    table: Destination
    key: tuple[str, ...]
    watermark: str

    @property
    def tombstones(self) -> Destination:
        """Where the keys of deleted rows are kept, so that an older row does not come back."""
        name = f"ingest_deleted_{self.table.table}"
        return Destination(self.table.database, self.table.schema, name)


def create_keyed_table(keyed: Keyed, columns: Sequence[tuple[str, str]]) -> Statement:
    listed = ", ".join(f"{quoted(name)} {kind}" for name, kind in columns)
    text = f"CREATE TABLE {keyed.table.qualified} ({listed}, PRIMARY KEY ({names_of(keyed.key)}))"
    return text, []


def primary_key(destination: Destination) -> Statement:
    """The names of the table's key columns, as one list; no row if it has none."""
    text = (
        "SELECT constraint_column_names FROM duckdb_constraints() WHERE database_name = ? "
        "AND lower(schema_name) = lower(?) AND lower(table_name) = lower(?) "
        "AND constraint_type = 'PRIMARY KEY'"
    )
    return text, [destination.database, destination.schema, destination.table]


def count_rows(destination: Destination) -> Statement:
    return f"SELECT count(*) FROM {destination.qualified}", []  # noqa: S608


def count_staged(files: Sequence[str], key: Sequence[str]) -> Statement:
    """Rows of the files, and how many different keys they have."""
    keys = f"({names_of(key)})" if len(key) > 1 else names_of(key)
    return f"SELECT count(*), count(DISTINCT {keys}) FROM {READ_FILES}", [list(files)]  # noqa: S608


def upsert(
    keyed: Keyed, files: Sequence[str], columns: Sequence[str], *, stale: bool, deletes: bool
) -> Statement:
    """Inserts the files' rows, or updates those that they beat. With `deletes`, a row that was
    deleted later stays away. A column that the files lack keeps its value."""
    known = {name.lower() for name in keyed.key}
    update = ", ".join(
        f"{quoted(name)} = excluded.{quoted(name)}" for name in columns if name.lower() not in known
    )
    beats = wins(keyed.watermark, "excluded", "existing", stale=stale)
    act = f"DO UPDATE SET {update} WHERE {beats}" if update else "DO NOTHING"
    kept = f" WHERE NOT EXISTS ({deleted_later(keyed, stale=stale)})" if deletes else ""
    text = (
        f"INSERT INTO {keyed.table.qualified} AS existing BY NAME "  # noqa: S608
        f"SELECT {names_of(columns)} FROM {READ_FILES} AS staged{kept} "
        f"ON CONFLICT ({names_of(keyed.key)}) {act}"
    )
    return text, [list(files)]


def delete_rows(keyed: Keyed, files: Sequence[str], *, stale: bool) -> Statement:
    """Deletes the rows with the files' keys, unless they are newer than the deletion."""
    text = (
        f"DELETE FROM {keyed.table.qualified} AS existing "  # noqa: S608
        f"USING (SELECT {names_of((*keyed.key, keyed.watermark))} FROM {READ_FILES}) AS staged "
        f"WHERE {same_key(keyed.key, 'existing', 'staged')} "
        f"AND {wins(keyed.watermark, 'staged', 'existing', stale=stale)}"
    )
    return text, [list(files)]


def create_tombstones(keyed: Keyed, types: Sequence[tuple[str, str]]) -> Statement:
    """`types` are the key's and the watermark's, as in the table."""
    listed = ", ".join(f"{quoted(name)} {kind}" for name, kind in types)
    text = (
        f"CREATE TABLE IF NOT EXISTS {keyed.tombstones.qualified} "
        f"({listed}, PRIMARY KEY ({names_of(keyed.key)}))"
    )
    return text, []


def bury(keyed: Keyed, files: Sequence[str]) -> Statement:
    """Remembers the files' keys as deleted, each with its greatest watermark."""
    mark = quoted(keyed.watermark)
    columns = keyed.key if keyed.watermark in keyed.key else (*keyed.key, keyed.watermark)
    beats = wins(keyed.watermark, "excluded", "existing", stale=True)
    act = f"DO UPDATE SET {mark} = excluded.{mark} WHERE {beats}"
    if keyed.watermark in keyed.key:
        act = "DO NOTHING"
    text = (
        f"INSERT INTO {keyed.tombstones.qualified} AS existing BY NAME "  # noqa: S608
        f"SELECT {names_of(columns)} FROM {READ_FILES} ON CONFLICT ({names_of(keyed.key)}) {act}"
    )
    return text, [list(files)]


def forget_rejects(table: str, destination: Destination, attempt: str) -> Statement:
    text = f"DELETE FROM {table} WHERE destination_table = ? AND attempt = ?"  # noqa: S608
    return text, [destination.text, attempt]


def keep_rejects(table: str, files: Sequence[str], values: Sequence[object]) -> Statement:
    """`values`: destination, dataset, partition, run, attempt and time of the rejection."""
    text = (
        f"INSERT INTO {table} (destination_table, dataset, partition, run_id, attempt, "  # noqa: S608
        "rejected_at, reason, source_file, row_json) "
        f"SELECT ?, ?, ?, ?, ?, ?, {names_of((REASON, FILE, ROW))} FROM {READ_FILES}"
    )
    return text, [*values, list(files)]


def deleted_later(keyed: Keyed, *, stale: bool) -> str:
    beats = wins(keyed.watermark, "staged", "gone", stale=stale)
    return (
        f"SELECT 1 FROM {keyed.tombstones.qualified} AS gone "  # noqa: S608
        f"WHERE {same_key(keyed.key, 'gone', 'staged')} AND NOT {beats}"
    )


def wins(watermark: str, new: str, old: str, *, stale: bool) -> str:
    mark = quoted(watermark)
    unmarked = f"{old}.{mark} IS NULL"
    if stale:
        unmarked += f" AND {new}.{mark} IS NOT NULL"
    sign = ">" if stale else ">="
    return f"coalesce(({unmarked}) OR {new}.{mark} {sign} {old}.{mark}, FALSE)"


def same_key(key: Sequence[str], one: str, other: str) -> str:
    return " AND ".join(f"{one}.{quoted(name)} = {other}.{quoted(name)}" for name in key)


def names_of(columns: Sequence[str]) -> str:
    return ", ".join(map(quoted, columns))
