"""The table's part of an upsert: fit it and its key to the stage, delete, upsert, keep rejects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from landfall import sql_merge, sql_upsert
from landfall.dataset import OnSchemaChange
from landfall.errors import ContractError, ManifestError
from landfall.lake_rows import is_lake
from landfall.ledger_schema import REJECTS, exists
from landfall.manifest import Manifest, Upserted
from landfall.replace import fit_table, number, refuse_view, table_columns
from landfall.schema import TableColumn
from landfall.sql import Destination, create_table
from landfall.sql_upsert import Keyed
from landfall.stage_files import Stage

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


@dataclass(frozen=True)
class UpsertStage:
    """The three kinds of staged files of an upsert."""

    rows: Stage
    deletes: Stage
    rejects: Stage

    @property
    def columns(self) -> tuple[TableColumn, ...]:
        return self.rows.columns or self.deletes.columns


@dataclass(frozen=True)
class UpsertCounts:
    inserted: int = 0
    updated: int = 0
    unchanged: int = 0
    deleted: int = 0
    total: int = 0


def keyed_table(destination: Destination, part: Upserted) -> Keyed:
    return Keyed(destination, part.key, part.column)


def fit_keyed_table(
    con: DuckDBPyConnection,
    keyed: Keyed,
    stage: Sequence[TableColumn],
    policy: OnSchemaChange,
) -> tuple[str, ...]:
    """Creates the table with its key, or adds what the policy lets it add; names of new columns."""
    if refuse_view(con, keyed.table):
        refuse_other_key(con, keyed)
        added = fit_table(con, keyed.table, stage, policy)
        _refuse_without_mark(con, keyed)
        return added
    if stage:
        columns = [(column.name, column.type) for column in stage]
        if is_lake(con, keyed.table.database):
            con.execute(*create_table(keyed.table, columns))
        else:
            con.execute(*sql_upsert.create_keyed_table(keyed, columns))
    return ()


def _refuse_without_mark(con: DuckDBPyConnection, keyed: Keyed) -> None:
    names = {column.name.lower() for column in table_columns(con, keyed.table)}
    if keyed.watermark.lower() not in names:
        raise ContractError(
            f"the table has no column {keyed.watermark!r}, by which older rows are told from newer "
            "ones.",
            where=keyed.table.text,
            fix="add the column to the table, or set contract.on_schema_change to evolve.",
        )


def refuse_other_key(con: DuckDBPyConnection, keyed: Keyed) -> None:
    """Refuse a table whose PRIMARY KEY is not the dataset's; a lake's tables have none."""
    if is_lake(con, keyed.table.database):
        return
    row = con.execute(*sql_upsert.primary_key(keyed.table)).fetchone()
    have = tuple(row[0]) if row else ()
    if {name.lower() for name in have} == {name.lower() for name in keyed.key}:
        return
    wanted = ", ".join(keyed.key)
    if have:
        raise ContractError(
            f"the table's PRIMARY KEY is ({', '.join(have)}), load.key is ({wanted}).",
            where=keyed.table.text,
            fix="set load.key back, or load into another table: rows that are there were told "
            "apart by the old key.",
        )
    raise ContractError(
        f"the table has no PRIMARY KEY; load.key is ({wanted}).",
        where=keyed.table.text,
        fix=f"ALTER TABLE {keyed.table.text} ADD PRIMARY KEY ({wanted}); or load into another "
        "table.",
    )


def upsert_rows(
    con: DuckDBPyConnection, keyed: Keyed, manifest: Manifest, stage: UpsertStage, *, stale: bool
) -> UpsertCounts:
    """The table holds the newest row of every staged key afterwards."""
    table = table_columns(con, keyed.table)
    if not table:  # nothing staged, and no table yet
        return UpsertCounts()
    _refuse_miscounted(con, keyed, manifest, stage)
    names = {column.name.lower() for column in table}
    before = number(con, sql_upsert.count_rows(keyed.table))
    deleted = _delete(con, keyed, stage.deletes, table, stale=stale)
    buried = exists(con, keyed.tombstones, keyed.tombstones.table)
    upsert = sql_merge.merge if is_lake(con, keyed.table.database) else sql_upsert.upsert
    written = 0
    for chunk in stage.rows.chunks:
        columns = [name for name in chunk.columns if name.lower() in names]
        statement = upsert(keyed, chunk.files, columns, stale=stale, deletes=buried)
        written += number(con, statement)
    total = number(con, sql_upsert.count_rows(keyed.table))
    inserted = total - (before - deleted)
    return UpsertCounts(
        inserted=inserted,
        updated=written - inserted,
        unchanged=manifest.rows_staged - written,
        deleted=deleted,
        total=total,
    )


def keep_rejects(
    con: DuckDBPyConnection, to: Destination, manifest: Manifest, stage: Stage, run_id: str
) -> None:
    """The rejected rows, each with its reason; loaded again, the same stage leaves them once."""
    if not stage.chunks:
        return
    table = to.beside(REJECTS)
    con.execute(*sql_upsert.forget_rejects(table, to, manifest.attempt))
    who = (to.text, manifest.dataset, manifest.partition.label, run_id, manifest.attempt)
    for chunk in stage.chunks:
        con.execute(*sql_upsert.keep_rejects(table, chunk.files, (*who, datetime.now(UTC))))


def _delete(
    con: DuckDBPyConnection,
    keyed: Keyed,
    stage: Stage,
    table: Sequence[TableColumn],
    *,
    stale: bool,
) -> int:
    if not stage.chunks:
        return 0
    types = {column.name.lower(): column.type for column in table}
    wanted = dict.fromkeys((*keyed.key, keyed.watermark))
    columns = [(name, types[name.lower()]) for name in wanted]
    sql = sql_merge if is_lake(con, keyed.table.database) else sql_upsert
    con.execute(*sql.create_tombstones(keyed, columns))
    deleted = 0
    for chunk in stage.chunks:
        con.execute(*sql.bury(keyed, chunk.files))
        deleted += number(con, sql_upsert.delete_rows(keyed, chunk.files, stale=stale))
    return deleted


def _refuse_miscounted(
    con: DuckDBPyConnection, keyed: Keyed, manifest: Manifest, stage: UpsertStage
) -> None:
    """Refuse files that are not those of the manifest, and keys that are there twice."""
    part = manifest.upsert
    assert part is not None
    for files, expected in (
        (stage.rows, manifest.rows_staged),
        (stage.deletes, part.rows_to_delete),
    ):
        rows = 0
        for chunk in files.chunks:
            statement = sql_upsert.count_staged(chunk.files, keyed.key)
            counted = con.execute(*statement).fetchone()
            assert counted is not None
            rows += counted[0]
            if counted[0] != counted[1]:
                raise ContractError(
                    f"{counted[0] - counted[1]} of the {counted[0]} staged rows have a key "
                    f"({', '.join(keyed.key)}) that is there twice, or none.",
                    where=keyed.table.text,
                    fix="use key columns of which Spark and DuckDB agree when they are equal (no "
                    "floating-point numbers), and that are never NULL.",
                )
        if rows != expected:
            raise ManifestError(
                f"the staged files hold {rows} rows, the manifest says {expected}.",
                where=keyed.table.text,
                fix="clear stage_partition to stage the partition again.",
            )
