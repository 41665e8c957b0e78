"""DuckLake: a catalog in a database, the data in Parquet files. Every commit is a snapshot."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb  # noqa: TID253

from landfall.errors import ConfigError, Conflict, LandfallError, Unreachable
from landfall.sql import Destination, identifier
from landfall.warehouse.base import Warehouse, make_folder, plain_message, redact
from landfall.warehouse.duckdb import attach_waiting, private_settings
from landfall.warehouse.extensions import load_extension
from landfall.warehouse.lake_config import CatalogKind, LakeConfig
from landfall.warehouse.lake_lock import file_lock, postgres_lock

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

AUTHOR = "landfall"
_POSTGRES_SECRET = "landfall_catalog"  # noqa: S105 - a name
_LAKE_SECRET = "landfall_lake"  # noqa: S105 - a name
_EXTENSIONS = {
    CatalogKind.DUCKDB: ("ducklake",),
    CatalogKind.SQLITE: ("ducklake", "sqlite_scanner"),
    CatalogKind.POSTGRES: ("ducklake", "postgres_scanner"),
}


class DuckLakeWarehouse(Warehouse):
    """One lake, attached under the destination's database name.

    It has no keys and sees conflicts only at COMMIT, so the writers of a schema, which share its
    ledger, take turns: by a lock of PostgreSQL, or by one on a file beside the catalog.
    """

    lake = True

    def __init__(
        self,
        directory: Path,
        config: LakeConfig,
        *,
        lock_timeout: float = 60.0,
        options: Mapping[str, str] | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.directory = directory
        self.config = config
        self.lock_timeout = lock_timeout
        self.options = dict(options or {})
        self._sleep = sleep

    @property
    def description(self) -> str:
        config = self.config
        catalog = config.postgres.description if config.postgres else config.path or self.directory
        return f"DuckLake ({config.catalog.value} catalog {catalog})"

    @property
    def secrets(self) -> tuple[str, ...]:
        password = self.config.postgres.password if self.config.postgres else None
        access = self.config.access.secrets if self.config.access else ()
        return (*((password,) if password else ()), *access)

    def data_path(self, database: str) -> str:
        """Where the lake keeps its own files; ends with a slash."""
        return self.config.data(self.directory, database)

    def file(self, database: str) -> Path | None:
        """The catalog's file; None for PostgreSQL."""
        return self.config.file(self.directory, database)

    def _open(self, database: str, *, read_only: bool) -> DuckDBPyConnection:
        file = self.file(database)
        settings = private_settings(file.parent if file else self.directory)
        if not read_only:
            make_folder(file.parent if file else self.directory)
        con = duckdb.connect(":memory:", config={**settings, **self.options})
        try:
            if read_only and file is not None and not file.exists():
                con.execute(f"ATTACH ':memory:' AS \"{database}\"")
            else:
                self._attach(con, database, read_only=read_only)
        except BaseException:
            con.close()
            raise
        return con

    def _attach(self, con: DuckDBPyConnection, database: str, *, read_only: bool) -> None:
        for name in _EXTENSIONS[self.config.catalog]:
            load_extension(con, name)
        self._create_secrets(con, database)
        # Inlined rows can lose deletes (ducklake#917).
        mode = ", READ_ONLY" if read_only else ""
        statement = (
            f"ATTACH 'ducklake:{_LAKE_SECRET}' AS {identifier(database, what='database')} "
            f"(DATA_INLINING_ROW_LIMIT 0{mode})"
        )
        if read_only:
            try:
                attach_waiting(con, statement, self._where(database), self.lock_timeout)
            except duckdb.InvalidInputException as error:
                if "does not exist" not in str(error):
                    raise
                con.execute(f"ATTACH ':memory:' AS \"{database}\"")
            return
        with self._locked(con, database, "catalog"):  # two must not make one catalog at once
            attach_waiting(con, statement, self._where(database), self.lock_timeout, self._sleep)

    def _create_secrets(self, con: DuckDBPyConnection, database: str) -> None:
        """Address and password travel as bound values of secrets: no message shows them."""
        config = self.config
        if config.access is not None:
            from landfall.warehouse.s3_secret import create_s3_secret

            create_s3_secret(con, config.access, self.data_path(database), name="landfall_data")
        parameters = [f"'TYPE': '{config.catalog.value}'"]
        if config.postgres is not None:
            self._create_postgres_secret(con)
            parameters.append(f"'SECRET': '{_POSTGRES_SECRET}'")
        con.execute(
            f"CREATE OR REPLACE TEMPORARY SECRET {_LAKE_SECRET} (TYPE ducklake, METADATA_PATH ?, "
            f"DATA_PATH ?, METADATA_PARAMETERS MAP {{{', '.join(parameters)}}})",
            [str(self.file(database) or ""), self.data_path(database)],
        )

    def _create_postgres_secret(self, con: DuckDBPyConnection) -> None:
        address = self.config.postgres
        assert address is not None
        given = {
            "HOST": address.host,
            "PORT": str(address.port) if address.port else None,
            "DATABASE": address.database,
            "USER": address.user,
            "PASSWORD": address.password,
        }
        options = {name: value for name, value in given.items() if value}
        listed = "".join(f", {name} ?" for name in options)
        con.execute(
            f"CREATE OR REPLACE TEMPORARY SECRET {_POSTGRES_SECRET} (TYPE postgres{listed})",
            list(options.values()),
        )

    def _where(self, database: str) -> str:
        return str(self.file(database) or self.description)

    @contextmanager
    def turn(self, con: DuckDBPyConnection, destination: Destination) -> Iterator[None]:
        with self._locked(con, destination.database, f"schema {destination.schema.lower()}"):
            yield

    @contextmanager
    def _locked(self, con: DuckDBPyConnection, database: str, what: str) -> Iterator[None]:
        file = self.file(database)
        if file is None:
            with postgres_lock(con, _POSTGRES_SECRET, what, self.lock_timeout, self.description):
                yield
        else:
            with file_lock(file, what, self.lock_timeout, self._sleep):
                yield

    def annotate(self, con: DuckDBPyConnection, database: str, message: str) -> None:
        con.execute(
            f"CALL {identifier(database, what='database')}.set_commit_message(?, ?)",
            [AUTHOR, message],
        )

    def classify(self, error: BaseException) -> LandfallError:
        if not isinstance(error, LandfallError):
            text = redact(plain_message(error), self.secrets)
            for marks, kind, fix in _BY_TEXT:
                if any(mark in text.lower() for mark in marks):
                    return kind(text, where=self.describe(), fix=fix)
        return super().classify(error)


# What a catalog says that a DuckDB file never does.
_BY_TEXT: tuple[tuple[tuple[str, ...], type[LandfallError], str], ...] = (
    (
        ("transaction conflict", "database is locked", "could not serialize", "deadlock detected"),
        Conflict,
        "another writer was first: try again.",
    ),
    (
        ("password authentication failed", "no password supplied", "fatal:  role"),
        ConfigError,
        "check login and password of the warehouse connection.",
    ),
    (
        ("fatal:  database",),
        ConfigError,
        "create the database for the catalog, or correct the connection's schema.",
    ),
    (
        ("does not match existing data path",),
        ConfigError,
        "set data_path in the connection's extra to the one that the catalog has.",
    ),
    (
        (
            "server closed the connection",
            "terminating connection",
            "no connection to the server",
            'failed to execute query "rollback"',
        ),
        Unreachable,
        "try again when PostgreSQL answers.",
    ),
)
