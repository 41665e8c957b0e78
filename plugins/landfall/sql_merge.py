"""An upsert's SQL for DuckLake, which has no keys: MERGE instead of ON CONFLICT.

MERGE inserts both of two staged rows with one key: the caller has refused those. It takes one
UPDATE or DELETE action, so that deletions are a statement of their own.
"""

from __future__ import annotations

from collections.abc import Sequence

from landfall.sql import READ_FILES, Statement, quoted
from landfall.sql_upsert import Keyed, deleted_later, names_of, same_key, wins


def create_tombstones(keyed: Keyed, types: Sequence[tuple[str, str]]) -> Statement:
    listed = ", ".join(f"{quoted(name)} {kind}" for name, kind in types)
    return f"CREATE TABLE IF NOT EXISTS {keyed.tombstones.qualified} ({listed})", []


def merge(
    keyed: Keyed, files: Sequence[str], columns: Sequence[str], *, stale: bool, deletes: bool
) -> Statement:
    """As `sql_upsert.upsert`."""
    kept = f" WHERE NOT EXISTS ({deleted_later(keyed, stale=stale)})" if deletes else ""
    source = f"SELECT {names_of(columns)} FROM {READ_FILES} AS staged{kept}"  # noqa: S608
    update = [name for name in columns if name.lower() not in _lower(keyed.key)]
    return _merge(keyed, keyed.table.qualified, source, columns, update, stale=stale), [list(files)]


def bury(keyed: Keyed, files: Sequence[str]) -> Statement:
    """As `sql_upsert.bury`."""
    columns = tuple(dict.fromkeys((*keyed.key, keyed.watermark)))
    source = f"SELECT {names_of(columns)} FROM {READ_FILES}"  # noqa: S608
    update = [] if keyed.watermark.lower() in _lower(keyed.key) else [keyed.watermark]
    table = keyed.tombstones.qualified
    return _merge(keyed, table, source, columns, update, stale=True), [list(files)]


def _merge(
    keyed: Keyed,
    table: str,
    source: str,
    columns: Sequence[str],
    update: Sequence[str],
    *,
    stale: bool,
) -> str:
    assign = ", ".join(f"{quoted(name)} = staged.{quoted(name)}" for name in update)
    newer = wins(keyed.watermark, "staged", "existing", stale=stale)
    matched = f"WHEN MATCHED AND {newer} THEN UPDATE SET {assign} " if update else ""
    values = ", ".join(f"staged.{quoted(name)}" for name in columns)
    return (
        f"MERGE INTO {table} AS existing USING ({source}) AS staged "  # noqa: S608
        f"ON {same_key(keyed.key, 'existing', 'staged')} {matched}"
        f"WHEN NOT MATCHED THEN INSERT ({names_of(columns)}) VALUES ({values})"
    )


def _lower(texts: Sequence[str]) -> set[str]:
    return {text.lower() for text in texts}
