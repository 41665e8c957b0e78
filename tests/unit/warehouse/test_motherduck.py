"""All of the way to MotherDuck up to the connect call: the service itself is not reached here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest

from landfall.errors import ConfigError, Unreachable
from landfall.load import load
from landfall.warehouse.factory import WarehouseConfig, WarehouseKind, open_warehouse
from landfall.warehouse.motherduck import MotherDuckWarehouse
from tests.loading import Stage, rows, table

TOKEN = "hunter2-token"


class Service:
    """Stands where `duckdb.connect` does; its databases are files."""

    def __init__(self, folder: Path, *databases: str) -> None:
        self.folder = folder
        self.databases = set(databases)
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def __call__(self, url: str, *, config: dict[str, Any]) -> Any:
        self.calls.append((url, config))
        name = url.removeprefix("md:").partition("?")[0]
        if not name:
            return Account(self)
        if name not in self.databases:
            raise duckdb.InvalidInputException(f"no database named {name!r}")
        con = duckdb.connect()
        con.execute(f"ATTACH '{self.folder / name}.duckdb' AS \"{name}\"")
        return con


class Account:
    """What `md:` gives: a connection that can create databases."""

    def __init__(self, service: Service) -> None:
        self.service = service

    def execute(self, text: str) -> None:
        assert text == 'CREATE DATABASE IF NOT EXISTS "retail"'
        self.service.databases.add("retail")

    def __enter__(self) -> Account:
        return self

    def __exit__(self, *_: object) -> None:
        return None


def warehouse(folder: Path, service: Service, **env: str) -> MotherDuckWarehouse:
    return MotherDuckWarehouse(
        folder / "w", token=TOKEN, connect=service, env=env or {"HOME": str(folder)}
    )


def test_one_database_is_attached_and_the_token_goes_by_the_configuration(tmp_path: Path) -> None:
    service = Service(tmp_path, "retail")
    with warehouse(tmp_path, service).connect("retail"):
        pass
    ((url, config),) = service.calls
    assert url == "md:retail?attach_mode=single"
    assert config["motherduck_token"] == TOKEN
    assert config["autoinstall_known_extensions"] is False


def test_a_database_that_is_missing_is_created_first(tmp_path: Path) -> None:
    service = Service(tmp_path)
    with warehouse(tmp_path, service).connect("retail"):
        pass
    assert [url for url, _ in service.calls] == [
        "md:retail?attach_mode=single",
        "md:",
        "md:retail?attach_mode=single",
    ]


def test_a_load_runs_as_on_a_local_file(tmp_path: Path) -> None:
    there = warehouse(tmp_path, Service(tmp_path))
    request = Stage(tmp_path / "stage").request(rows())
    load(there, request)
    load(there, request)
    assert len(table(there)) == 10


def test_the_extension_comes_from_its_wheel(tmp_path: Path) -> None:
    service = Service(tmp_path, "retail")
    with warehouse(tmp_path, service).connect("retail"):
        pass
    installed = Path(service.calls[0][1]["extension_directory"])
    assert [path.name for path in installed.rglob("*.duckdb_extension")] == [
        "motherduck.duckdb_extension"
    ]


def test_a_missing_home_is_named(tmp_path: Path) -> None:
    with (
        pytest.raises(ConfigError, match="HOME"),
        warehouse(tmp_path, Service(tmp_path), PATH="").connect("retail"),
    ):
        pass


def test_no_error_shows_the_token(tmp_path: Path) -> None:
    def refuse(url: str, *, config: dict[str, Any]) -> Any:
        raise duckdb.IOException(f"Could not connect with {config['motherduck_token']}")

    there = MotherDuckWarehouse(tmp_path, token=TOKEN, connect=refuse, env={"HOME": "/"})
    with pytest.raises(Unreachable) as refused, there.connect("retail"):
        pass
    assert TOKEN not in str(refused.value)
    assert "***" in str(refused.value)


def test_the_token_is_in_no_description(tmp_path: Path) -> None:
    config = WarehouseConfig(WarehouseKind.MOTHERDUCK, tmp_path, token=TOKEN)
    there = open_warehouse(config)
    assert isinstance(there, MotherDuckWarehouse)
    assert TOKEN not in f"{config!r} {there.describe()} {there!r}"


@pytest.mark.parametrize(
    "wrong", [{"token": None}, {"token": ""}, {"token": "t", "path": Path("x.duckdb")}]
)
def test_a_configuration_that_cannot_work_is_refused(tmp_path: Path, wrong: Any) -> None:
    with pytest.raises(ConfigError, match="Fix:"):
        WarehouseConfig(WarehouseKind.MOTHERDUCK, tmp_path, **wrong)
