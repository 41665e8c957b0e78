"""From configuration to a warehouse."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from landfall.errors import ConfigError

if TYPE_CHECKING:
    from landfall.warehouse.base import Warehouse
    from landfall.warehouse.lake_config import LakeConfig


class WarehouseKind(StrEnum):
    DUCKDB = "duckdb"
    MOTHERDUCK = "motherduck"
    DUCKLAKE = "ducklake"


@dataclass(frozen=True)
class WarehouseConfig:
    """Where the table lives. `options` are DuckDB settings, e.g. `memory_limit`."""

    kind: WarehouseKind
    directory: Path
    """Local files: the databases, or MotherDuck's client."""
    path: Path | None = None
    """One DuckDB file for every database name; DuckDB only."""
    token: str | None = field(default=None, repr=False)
    lake: LakeConfig | None = None
    """Catalog and data path; DuckLake only."""
    options: Mapping[str, str] = field(default_factory=dict)
    lock_timeout: float = 60.0

    def __post_init__(self) -> None:
        if self.kind is WarehouseKind.MOTHERDUCK and not self.token:
            raise ConfigError(
                "MotherDuck needs a token.",
                where="warehouse connection",
                fix="set it as the connection's password, or set MOTHERDUCK_TOKEN.",
            )
        if self.kind is WarehouseKind.MOTHERDUCK and self.path is not None:
            raise ConfigError(
                "MotherDuck takes no file path.",
                where="warehouse connection",
                fix="remove the path, or set the kind to duckdb.",
            )
        if (self.kind is WarehouseKind.DUCKLAKE) != (self.lake is not None):
            raise ConfigError(
                "catalog and data path belong to DuckLake, and to no other kind.",
                where="warehouse connection",
                fix="set the kind to ducklake, or remove them.",
            )


def open_warehouse(config: WarehouseConfig) -> Warehouse:
    """Connects to nothing yet."""
    if config.kind is WarehouseKind.MOTHERDUCK:
        from landfall.warehouse.motherduck import MotherDuckWarehouse

        return MotherDuckWarehouse(
            config.directory, token=config.token or "", options=config.options
        )
    if config.lake is not None:
        from landfall.warehouse.ducklake import DuckLakeWarehouse

        return DuckLakeWarehouse(
            config.directory,
            config.lake,
            lock_timeout=config.lock_timeout,
            options=config.options,
        )
    from landfall.warehouse.duckdb import DuckDBWarehouse

    return DuckDBWarehouse(
        config.directory,
        path=config.path,
        lock_timeout=config.lock_timeout,
        options=config.options,
    )
