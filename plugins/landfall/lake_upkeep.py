"""Maintenance of a lake: merge small files, expire snapshots, clean up. Each can be a dry run.

DuckLake takes every file that was added for its own. Landfall does not: what lies outside of the
lake's data path landed there, and is deleted only where a dataset says that DuckLake owns it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from landfall.errors import ConfigError, WarehouseError
from landfall.lake_paths import data_path, is_below, refuse_overlap
from landfall.ledger_schema import (
    FILES,
    LAKE_LOCK,
    MIGRATIONS,
    PARTITIONS,
    REJECTS,
    WATERMARKS,
    exists,
)
from landfall.sql import Destination, identifier

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from landfall.s3_access import S3Access
    from landfall.warehouse.base import Warehouse

FLOOR_DAYS = 1
"""Nothing younger is ever expired or deleted: a query or a load may still be using it."""


class Action(StrEnum):
    MERGE = "merge"
    EXPIRE = "expire"
    CLEANUP = "cleanup"


@dataclass(frozen=True)
class Upkeep:
    """What is to be done to which lake, and whose files lie where."""

    action: Action
    destination: Destination
    ledger: str
    landings: tuple[str, ...]
    """The landings of every dataset on this lake."""
    owned: tuple[str, ...]
    """Those whose files are DuckLake's."""
    days: int
    orphans: bool = False
    """Clean-up also deletes files below the data path that no snapshot ever had."""
    dry_run: bool = False


@dataclass(frozen=True)
class Done:
    """One line for each table, snapshot or file. `kept`: landed files that stay."""

    action: Action
    dry_run: bool
    lines: tuple[str, ...]
    kept: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def maintain(
    warehouse: Warehouse,
    upkeep: Upkeep,
    now: datetime,
    access: Mapping[str, S3Access] | None = None,
) -> Done:
    """Refuses a lake whose data path and a landing lie in each other.

    `access` says how landings are reached, where registered files lie.
    """
    if not warehouse.lake:
        raise ConfigError(
            f"only a DuckLake is maintained; the warehouse is {warehouse.describe()}.",
            where=upkeep.destination.text,
            fix="set load.warehouse to a DuckLake connection.",
        )
    if upkeep.days < FLOOR_DAYS:
        raise ConfigError(
            f"{upkeep.days} days are below the floor of {FLOOR_DAYS}.",
            where=upkeep.destination.text,
            fix="keep more: running queries and loads need what is younger.",
        )
    to = upkeep.destination
    with warehouse.connect(to.database) as con, warehouse.turn(con, to):
        for landing in upkeep.landings:
            refuse_overlap(con, to.database, landing)
        _reach(con, access or {})
        before = now - timedelta(days=upkeep.days)
        if upkeep.action is Action.MERGE:
            return _merge(con, upkeep)
        if upkeep.action is Action.EXPIRE:
            return _expire(con, upkeep, before)
        return _cleanup(con, upkeep, before)


def _reach(con: DuckDBPyConnection, access: Mapping[str, S3Access]) -> None:
    from landfall.warehouse.s3_secret import create_s3_secret

    for number, (uri, reach) in enumerate(access.items()):
        create_s3_secret(con, reach, f"{uri}/", name=f"landfall_landing_{number}")


def _merge(con: DuckDBPyConnection, upkeep: Upkeep) -> Done:
    """The table and the ledger's. Not a table with landed files: DuckLake fails on files from
    several folders (ducklake#1082)."""
    to = upkeep.destination
    own = (upkeep.ledger, PARTITIONS, FILES, WATERMARKS, REJECTS, MIGRATIONS, LAKE_LOCK)
    lake = data_path(con, to.database)
    lines, kept = [], []
    for table in (to.table, *own):
        if not exists(con, to, table):
            continue
        files = con.execute(
            "SELECT data_file FROM ducklake_list_files(?, ?, schema => ?)",
            [to.database, table, to.schema],
        ).fetchall()
        landed = _landed([path for (path,) in files], lake, owned=())
        if landed:
            kept += landed
        elif upkeep.dry_run:
            lines.append(f"{table}: {len(files)} files")
        else:
            merged = con.execute(
                "CALL ducklake_merge_adjacent_files(?, ?, schema => ?)",
                [to.database, table, to.schema],
            ).fetchall()
            taken, made = (sum(row[place] for row in merged) for place in (2, 3))
            lines.append(f"{table}: {taken} of {len(files)} files merged into {made}")
    return Done(upkeep.action, upkeep.dry_run, tuple(lines), tuple(kept))


def _expire(con: DuckDBPyConnection, upkeep: Upkeep, before: datetime) -> Done:
    """Of the whole catalog. The newest snapshot always stays."""
    rows = con.execute(
        f"CALL ducklake_expire_snapshots(?, older_than => ?, dry_run => {upkeep.dry_run})",
        [upkeep.destination.database, before],
    ).fetchall()
    lines = (f"snapshot {row[0]} of {row[1]:%Y-%m-%d %H:%M} {row[5] or ''}" for row in rows)
    return Done(upkeep.action, upkeep.dry_run, tuple(line.rstrip() for line in lines))


def _cleanup(con: DuckDBPyConnection, upkeep: Upkeep, before: datetime) -> Done:
    database = upkeep.destination.database
    lake = data_path(con, database)
    kept = _landed(_to_delete(con, database, before), lake, upkeep.owned)
    if not upkeep.dry_run:
        _release(con, database, lake, upkeep.owned)
        left = _landed(_to_delete(con, database, before), lake, upkeep.owned)
        if left:
            raise WarehouseError(
                f"{left[0]} landed, and DuckLake would delete it.",
                where=database,
                fix="nothing was deleted: report this, with the version of DuckLake.",
            )
    lines = _to_delete(con, database, before, dry_run=upkeep.dry_run)
    if upkeep.orphans:
        orphans = con.execute(
            f"CALL ducklake_delete_orphaned_files(?, older_than => ?, dry_run => {upkeep.dry_run})",
            [database, before],
        ).fetchall()
        lines += [path for (path,) in orphans]
    stay = set(kept)
    deleted = tuple(path for path in lines if path not in stay)
    return Done(upkeep.action, upkeep.dry_run, deleted, tuple(kept))


def _to_delete(
    con: DuckDBPyConnection, database: str, before: datetime, *, dry_run: bool = True
) -> list[str]:
    """Paths that DuckLake deletes; without `dry_run` it does."""
    rows = con.execute(
        f"CALL ducklake_cleanup_old_files(?, older_than => ?, dry_run => {dry_run})",
        [database, before],
    ).fetchall()
    return [path for (path,) in rows]


def _release(con: DuckDBPyConnection, database: str, lake: str, owned: Sequence[str]) -> None:
    """Takes the landed files off the list of what DuckLake will delete."""
    metadata = identifier(f"__ducklake_metadata_{database}", what="catalog")
    scheduled = f"{metadata}.ducklake_files_scheduled_for_deletion"
    rows = con.execute(f"SELECT path FROM {scheduled} WHERE NOT path_is_relative").fetchall()  # noqa: S608
    for path in _landed([path for (path,) in rows], lake, owned):
        con.execute(
            f"DELETE FROM {scheduled} WHERE NOT path_is_relative AND path = ?",  # noqa: S608
            [path],
        )


def _landed(paths: Sequence[str], lake: str, owned: Sequence[str]) -> list[str]:
    return [path for path in paths if not _is_lakes(path, lake, owned)]


def _is_lakes(path: str, lake: str, owned: Sequence[str]) -> bool:
    return any(is_below(path, prefix) for prefix in (lake, *owned))
