"""Local DuckDB files: one for each database, or one that the connection names."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import duckdb  # noqa: TID253

from landfall.sql import literal
from landfall.warehouse.base import Locked, Warehouse, make_folder, plain_message

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

log = logging.getLogger(__name__)

_PID = re.compile(r"\(PID (\d+)\)")


def private_settings(directory: Path) -> dict[str, Any]:
    """DuckDB's settings that keep it from the home directory and from downloads."""
    return {
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "extension_directory": str(directory / "extensions"),
        "secret_directory": str(directory / "secrets"),
        "home_directory": str(directory),
        # Two processes must not share it. DuckDB makes it when it spills, and removes it.
        "temp_directory": str(directory / f".spill-{uuid4().hex[:12]}"),
    }


class DuckDBWarehouse(Warehouse):
    """A file takes one writing process at a time; a second one waits for `lock_timeout` seconds."""

    def __init__(
        self,
        directory: Path,
        *,
        path: Path | None = None,
        lock_timeout: float = 60.0,
        options: Mapping[str, str] | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.directory = directory
        self.path = path
        self.lock_timeout = lock_timeout
        self.options = dict(options or {})
        self._sleep = sleep

    @property
    def description(self) -> str:
        return f"DuckDB {self.path or self.directory}"

    def file(self, database: str) -> Path:
        return self.path or self.directory / f"{database}.duckdb"

    def _open(self, database: str, *, read_only: bool) -> DuckDBPyConnection:
        file = self.file(database)
        if not read_only:
            make_folder(file.parent)
        config = {**private_settings(file.parent), **self.options}
        con = duckdb.connect(":memory:", config=config)
        try:
            if read_only and not file.exists():
                con.execute(f"ATTACH ':memory:' AS \"{database}\"")
            else:
                mode = " (READ_ONLY)" if read_only else ""
                statement = f'ATTACH {literal(str(file))} AS "{database}"{mode}'
                attach_waiting(con, statement, str(file), self.lock_timeout, self._sleep)
        except BaseException:
            con.close()
            raise
        return con


def attach_waiting(
    con: DuckDBPyConnection,
    statement: str,
    where: str,
    timeout: float,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Waits while another process, or another connection of this one, holds the file."""
    deadline = time.monotonic() + timeout
    pause = 0.05
    told = False
    while True:
        try:
            con.execute(statement)
            return
        except (duckdb.IOException, duckdb.BinderException) as error:
            holder = _holder(plain_message(error))
            if holder is None:
                raise
            left = deadline - time.monotonic()
            if left <= 0:
                raise Locked(
                    f"{holder} holds the file; waited {timeout:g} s.",
                    where=where,
                    fix="stop it or let it end: a DuckDB file takes one writing process at a time.",
                ) from error
        if not told:
            log.info("%s is held by %s: waiting up to %g s", where, holder, timeout)
            told = True
        sleep(min(pause, left))
        pause = min(pause * 2, 2.0)


def _holder(message: str) -> str | None:
    """Who holds the file, from DuckDB's message; None if that is not what it says."""
    if "Could not set lock" in message:
        pid = _PID.search(message)
        return f"process {pid[1]}" if pid else "another process"
    if "Unique file handle conflict" in message:
        return "another connection of this process"
    return None
