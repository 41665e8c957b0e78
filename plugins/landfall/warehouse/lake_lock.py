"""Locks by which the writers of a lake take turns; each ends with the process that holds it."""

from __future__ import annotations

import fcntl
import hashlib
import logging
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb  # noqa: TID253

from landfall.warehouse.base import Locked

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

log = logging.getLogger(__name__)

_DATABASE = "landfall_lock_session"


@contextmanager
def postgres_lock(
    con: DuckDBPyConnection, secret: str, what: str, timeout: float, where: str
) -> Iterator[None]:
    """An advisory lock in the catalog's database: it works across machines, first come first.

    It is held by a transaction of a connection of its own, so that it outlasts the lake's COMMIT.
    """
    con.execute(f"ATTACH IF NOT EXISTS '' AS {_DATABASE} (TYPE postgres, SECRET {secret})")
    session = con.cursor()
    try:
        session.execute("BEGIN")
        try:
            wait = f"SET LOCAL lock_timeout = {max(1, round(timeout * 1000))}"
            session.execute("CALL postgres_execute(?, ?)", [_DATABASE, wait])
            take = f"SELECT 1 AS taken FROM pg_advisory_xact_lock({lock_number(what)})"  # noqa: S608
            session.execute("SELECT * FROM postgres_query(?, ?)", [_DATABASE, take]).fetchall()
        except duckdb.Error as error:
            if "lock timeout" not in str(error):
                raise
            raise _locked(what, where, timeout) from error
        yield
    finally:
        session.close()  # rolls its transaction back, which is what frees the lock


@contextmanager
def file_lock(
    catalog: Path, what: str, timeout: float, sleep: Callable[[float], None] = time.sleep
) -> Iterator[None]:
    """A lock on a file beside the catalog: it works across the processes of one machine."""
    name = re.sub(r"[^a-z0-9_]+", "-", what)
    deadline = time.monotonic() + timeout
    pause = 0.01
    with Path(f"{catalog}.{name}.lock").open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise _locked(what, str(catalog), timeout) from error
            sleep(min(pause, left))
            pause = min(pause * 2, 0.5)
        yield  # closing the file frees the lock


def lock_number(what: str) -> int:
    """PostgreSQL knows advisory locks by a number of 64 bits."""
    digest = hashlib.sha256(f"landfall {what}".encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


def _locked(what: str, where: str, timeout: float) -> Locked:
    return Locked(
        f"another writer holds the lake's {what}; waited {timeout:g} s.",
        where=where,
        fix="let it end: the writers of a schema take turns.",
    )
