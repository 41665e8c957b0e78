"""What is wrong with a catalog is said in words, and told apart: to be tried again, or not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import duckdb
import pytest

from landfall.errors import ConfigError, LandfallError, Unreachable
from landfall.warehouse.ducklake import DuckLakeWarehouse
from landfall.warehouse.lake_config import CatalogKind, LakeConfig
from tests.loading import fetch
from tests.postgres import PASSWORD, Postgres

pytestmark = pytest.mark.slow


def with_address(lake: DuckLakeWarehouse, **other: object) -> DuckLakeWarehouse:
    assert lake.config.postgres is not None
    address = replace(lake.config.postgres, **other)  # type: ignore[arg-type]
    return DuckLakeWarehouse(lake.directory, replace(lake.config, postgres=address))


def refusal(lake: DuckLakeWarehouse) -> LandfallError:
    with pytest.raises(LandfallError) as refused, lake.connect("retail"):
        raise AssertionError("it was let in")
    assert PASSWORD not in str(refused.value)
    return refused.value


def test_a_wrong_password_a_missing_database_and_no_server_are_told_apart(
    postgres_lake: DuckLakeWarehouse, tmp_path: Path
) -> None:
    password = refusal(with_address(postgres_lake, password="wrong-pw"))
    assert isinstance(password, ConfigError)
    assert "login and password" in str(password)
    assert isinstance(refusal(with_address(postgres_lake, database="nowhere")), ConfigError)
    assert isinstance(refusal(with_address(postgres_lake, host="127.0.0.1", port=1)), Unreachable)


def test_a_connection_that_breaks_can_be_tried_again(
    postgres_lake: DuckLakeWarehouse, postgres: Postgres
) -> None:
    with postgres_lake.connect("retail") as con:
        con.execute("CREATE TABLE retail.main.t (i INTEGER)")
        con.execute("BEGIN")
        con.execute("INSERT INTO retail.main.t VALUES (1)")
        postgres.query(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
            "WHERE datname LIKE 'lake_%'"
        )
        with pytest.raises(duckdb.Error) as broken:
            con.execute("COMMIT")
        assert isinstance(postgres_lake.classify(broken.value), Unreachable)
    assert fetch(postgres_lake, "SELECT count(*) FROM retail.main.t") == [(0,)]


def test_another_data_path_than_the_catalogs_is_refused(sqlite_lake: DuckLakeWarehouse) -> None:
    with sqlite_lake.connect("retail"):
        pass
    config = LakeConfig(CatalogKind.SQLITE, data_path=str(sqlite_lake.directory / "elsewhere"))
    other = refusal(DuckLakeWarehouse(sqlite_lake.directory, config))
    assert isinstance(other, ConfigError)
    assert "data_path" in str(other)


@pytest.mark.parametrize("kind", ["warehouse", "sqlite_lake", "postgres_lake"])
def test_a_look_at_a_lake_that_does_not_exist_finds_it_empty_and_makes_nothing(
    request: pytest.FixtureRequest, kind: str
) -> None:
    lake: DuckLakeWarehouse = request.getfixturevalue(kind)
    tables = "SELECT count(*) FROM information_schema.tables WHERE table_catalog = 'retail'"
    assert fetch(lake, tables) == [(0,)]
    file = lake.file("retail")
    assert file is None or not file.exists()


def test_nothing_is_written_outside_of_the_warehouse_folder(
    warehouse: DuckLakeWarehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    with warehouse.connect("retail") as con:
        con.execute("CREATE TABLE retail.main.t AS SELECT 1 AS i")
    assert list(home.iterdir()) == []
    assert {path.name for path in tmp_path.iterdir()} == {"home", "warehouse"}
