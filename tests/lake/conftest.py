"""Lakes with each kind of catalog; the data lies in a folder unless a test wants S3."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from landfall.warehouse.ducklake import DuckLakeWarehouse
from landfall.warehouse.lake_config import CatalogKind, LakeConfig, PostgresCatalog
from tests.loading import Stage
from tests.postgres import PASSWORD, USER, Postgres, running_postgres


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with running_postgres() as server:
        yield server


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path / "stage")


@pytest.fixture
def warehouse(tmp_path: Path) -> DuckLakeWarehouse:
    """A lake with its catalog in a DuckDB file."""
    return DuckLakeWarehouse(tmp_path / "warehouse", LakeConfig(), lock_timeout=30)


@pytest.fixture
def sqlite_lake(tmp_path: Path) -> DuckLakeWarehouse:
    config = LakeConfig(CatalogKind.SQLITE)
    return DuckLakeWarehouse(tmp_path / "warehouse", config, lock_timeout=60)


@pytest.fixture
def postgres_lake(tmp_path: Path, postgres: Postgres) -> DuckLakeWarehouse:
    address = PostgresCatalog(str(postgres.socket), None, postgres.database(), USER, PASSWORD)
    config = LakeConfig(
        CatalogKind.POSTGRES, postgres=address, data_path=str(tmp_path / "lake-data")
    )
    return DuckLakeWarehouse(tmp_path / "warehouse", config, lock_timeout=60)
