"""Where a lake's catalog and its data are."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from landfall.errors import ConfigError
from landfall.s3_access import S3Access


class CatalogKind(StrEnum):
    """Who may use a lake at once: one process, those of one machine, or many machines."""

    DUCKDB = "duckdb"
    SQLITE = "sqlite"
    POSTGRES = "postgres"


@dataclass(frozen=True)
class PostgresCatalog:
    """The database that holds the catalog. What is None is left to libpq's own defaults."""

    host: str | None = None
    port: int | None = None
    database: str | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)

    @property
    def description(self) -> str:
        return f"{self.host or 'localhost'}/{self.database or ''}"


@dataclass(frozen=True)
class LakeConfig:
    catalog: CatalogKind = CatalogKind.DUCKDB
    path: Path | None = None
    """The catalog's file. None: one for each database, in the warehouse's folder."""
    postgres: PostgresCatalog | None = None
    data_path: str | None = None
    """A folder or an s3:// prefix. None: beside the catalog's file."""
    access: S3Access | None = None
    """How the data's bucket is reached; only for s3://."""

    def __post_init__(self) -> None:
        on_s3 = self.data_path is not None and self.data_path.startswith("s3://")
        if self.catalog is CatalogKind.POSTGRES and self.data_path is None:
            raise ConfigError(
                "a lake with a PostgreSQL catalog needs a data path.",
                where="warehouse connection",
                fix='set it in extra: {"data_path": "s3://bucket/prefix"}, or a shared folder.',
            )
        if self.data_path is not None and "://" in self.data_path and not on_s3:
            raise ConfigError(
                f"the data path {self.data_path!r} is neither a folder nor in S3.",
                where="warehouse connection",
                fix="write it as s3://bucket/prefix, or as a folder's path.",
            )
        if (self.catalog is CatalogKind.POSTGRES) != (self.postgres is not None):
            raise ConfigError(
                "PostgreSQL's address belongs to a catalog of that kind, and to no other.",
                where="warehouse connection",
            )

    def file(self, directory: Path, database: str) -> Path | None:
        """The catalog's file; None for PostgreSQL."""
        if self.catalog is CatalogKind.POSTGRES:
            return None
        suffix = "ducklake" if self.catalog is CatalogKind.DUCKDB else "sqlite"
        return self.path or directory / f"{database}.{suffix}"

    def data(self, directory: Path, database: str) -> str:
        """The data path as the catalog knows it; ends with a slash."""
        path = self.data_path or f"{self.file(directory, database)}.files"
        return f"{path.rstrip('/')}/"
