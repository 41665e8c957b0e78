"""What every warehouse can do, and what its errors mean."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb  # noqa: TID253

from landfall.errors import (
    Conflict,
    ContractError,
    LandfallError,
    ManifestError,
    Unreachable,
    WarehouseError,
)
from landfall.sql import Destination, identifier

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

log = logging.getLogger(__name__)


class Locked(Conflict):
    """Another process held the database for as long as this one was willing to wait."""


class Warehouse(ABC):
    """Gives connections to one database at a time; an instance holds no connection itself."""

    lake = False
    """Whether it is a DuckLake: tables without keys, and a snapshot for every commit."""

    @property
    @abstractmethod
    def description(self) -> str:
        """What it is and where, for people; holds no secret."""

    @abstractmethod
    def _open(self, database: str, *, read_only: bool) -> DuckDBPyConnection:
        """A connection with the database attached under its name."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """What no message may show."""
        return ()

    def describe(self) -> str:
        return self.description

    @contextmanager
    def connect(self, database: str, *, read_only: bool = False) -> Iterator[DuckDBPyConnection]:
        """A connection in which the database is attached under its name; closed at the end.

        Read-only, nothing is created: a database that does not exist looks empty.
        """
        identifier(database, what="destination database")
        try:
            con = self._open(database, read_only=read_only)
        except duckdb.Error as error:
            raise self.classify(error) from error
        try:
            # Times with and without zone then mean the same whatever the machine's zone is.
            con.execute("SET TimeZone = 'UTC'")
            yield con
        finally:
            con.close()

    @contextmanager
    def transaction(self, con: DuckDBPyConnection) -> Iterator[None]:
        """All or nothing. The error that comes out is the first one, never its aftermath."""
        con.execute("BEGIN TRANSACTION")
        try:
            yield
            # DuckDB answers a COMMIT after an error with success, and rolls back: ask first.
            con.execute("SELECT 1")
            con.execute("COMMIT")
        except BaseException:
            try:
                con.execute("ROLLBACK")
            except duckdb.Error as aftermath:  # DuckDB has often rolled back by itself
                log.debug("rollback: %s", aftermath)
            raise

    def ensure_destination(self, con: DuckDBPyConnection, destination: Destination) -> None:
        """The schema of the destination exists afterwards; its database does since `connect`."""
        known = con.execute(
            "SELECT 1 FROM duckdb_schemas() "
            "WHERE database_name = ? AND lower(schema_name) = lower(?)",
            [destination.database, destination.schema],
        ).fetchone()
        if known is None:
            con.execute(
                f'CREATE SCHEMA IF NOT EXISTS "{destination.database}"."{destination.schema}"'
            )

    @contextmanager
    def turn(self, con: DuckDBPyConnection, destination: Destination) -> Iterator[None]:  # noqa: ARG002
        """Writers that would only meet at COMMIT take turns; others need not."""
        yield

    def annotate(self, con: DuckDBPyConnection, database: str, message: str) -> None:  # noqa: B027
        """Says in the running transaction what it is for, where the warehouse keeps that."""

    def classify(self, error: BaseException) -> LandfallError:
        """What an error means: to be retried or not, where, and what to do about it."""
        if isinstance(error, LandfallError):
            return error
        text = redact(plain_message(error), self.secrets)
        lower = text.lower()
        where = self.describe()
        for marks, kind, fix in _BY_TEXT:
            if any(mark in lower for mark in marks):
                return kind(text, where=where, fix=fix)
        if isinstance(error, duckdb.TransactionException):
            return Conflict(text, where=where, fix="another writer was first: try again.")
        if isinstance(error, duckdb.ConnectionException | duckdb.HTTPException):
            return Unreachable(text, where=where, fix="try again when the service answers.")
        if isinstance(error, duckdb.ConstraintException):
            return ContractError(
                text, where=where, fix="correct the data, or drop the table's constraint."
            )
        return WarehouseError(text or type(error).__name__, where=where)


_STAGE_AGAIN = "clear stage_partition to stage the partition again."

# DuckDB tells by its text alone what an I/O error is about.
_BY_TEXT: tuple[tuple[tuple[str, ...], type[LandfallError], str], ...] = (
    (("could not set lock",), Conflict, "stop the other process, or wait until it ends."),
    (
        ("no space left", "file too large", "disk quota", "failed to offload data block"),
        WarehouseError,
        "free space on the disk, or move the warehouse to a larger one.",
    ),
    (
        ("read-only file system", "permission denied", "not a directory"),
        WarehouseError,
        "let the user that runs Airflow write there, or set another path.",
    ),
    (
        ("not a valid duckdb database", "no such file or directory"),
        WarehouseError,
        "set the path of the warehouse to a DuckDB file in a folder that exists.",
    ),
    (
        ("http 403", "403 (forbidden)", "http code 403"),
        WarehouseError,
        "check the keys of the S3 connection, and that they may read the stage.",
    ),
    (("no files found", "http 404", "404 (not found)"), ManifestError, _STAGE_AGAIN),
    (
        ("no magic bytes", "parquet", "too small to be a"),
        ManifestError,
        _STAGE_AGAIN,
    ),
    (
        (
            "could not connect",
            "could not resolve",
            "could not establish",
            "connection refused",
            "connection reset",
            "connection closed",
            "connection lost",
            "timed out",
            "timeout",
            "unavailable",
            "http 5",
            "failed to download",
        ),
        Unreachable,
        "check the network and try again.",
    ),
)


def make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WarehouseError(
            f"the folder cannot be made: {error.strerror}.",
            where=str(folder),
            fix="let the user that runs Airflow write there, or set another path.",
        ) from error


def plain_message(error: BaseException) -> str:
    """DuckDB's message without the excerpt of the statement that follows it."""
    return str(error).partition("\n\nLINE ")[0].strip()


def redact(text: str, secrets: Iterable[str]) -> str:
    for secret in secrets:
        if secret:
            text = text.replace(secret, "***")
    return text
