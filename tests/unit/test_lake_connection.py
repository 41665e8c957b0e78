from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from landfall.errors import ConfigError
from landfall.lake_connection import is_lake, lake_config
from landfall.s3_access import S3Access
from landfall.warehouse.lake_config import CatalogKind, LakeConfig

HOME = Path("/home/warehouse")


def connection(**given: Any) -> Any:
    plain = dict.fromkeys(("host", "port", "schema", "login", "password", "extra"))
    extra = given.pop("extra", None)
    text = json.dumps(extra) if isinstance(extra, dict) else extra
    return SimpleNamespace(
        **{**plain, "conn_id": "lake", "conn_type": "ducklake", **given, "extra": text}
    )


def config(**given: Any) -> LakeConfig:
    return lake_config(connection(**given), HOME, lambda name, region: S3Access(endpoint=name))


def test_nothing_but_the_type_means_files_in_the_warehouse_folder() -> None:
    lake = config()
    assert lake.file(HOME, "retail") == HOME / "retail.ducklake"
    assert lake.data(HOME, "retail") == "/home/warehouse/retail.ducklake.files/"


def test_relative_paths_lie_in_the_warehouse_folder() -> None:
    lake = config(host="a.sqlite", extra={"catalog": "sqlite", "data_path": "data"})
    assert (lake.catalog, lake.path) == (CatalogKind.SQLITE, HOME / "a.sqlite")
    assert lake.data(HOME, "retail") == "/home/warehouse/data/"


def test_a_data_path_in_s3_is_reached_by_its_own_connection() -> None:
    lake = config(extra={"data_path": "s3://lake/retail", "aws_conn_id": "aws_lake"})
    assert lake.access == S3Access(endpoint="aws_lake")
    assert lake.data(HOME, "retail") == "s3://lake/retail/"


def test_the_address_of_postgresql_is_the_connections_own() -> None:
    extra = {"catalog": "postgres", "data_path": "/data"}
    lake = config(host="db", port=5433, schema="lake", login="me", password="hush", extra=extra)
    assert lake.postgres is not None
    assert (lake.postgres.host, lake.postgres.port, lake.postgres.database) == ("db", 5433, "lake")
    assert "hush" not in repr(lake)
    assert lake.file(HOME, "retail") is None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"extra": {"catalog": "mysql"}}, "'mysql' is not a kind of catalog"),
        ({"extra": {"catalogue": "sqlite"}}, "unknown key 'catalogue'"),
        ({"extra": {"catalog": "postgres"}}, "needs a data path"),
        ({"extra": {"data_path": "gs://lake"}}, "neither a folder nor in S3"),
        ({"extra": "[1]"}, "not a JSON object"),
        ({"extra": "{"}, "not a JSON object"),
    ],
)
def test_what_cannot_work_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        config(**given)


def test_a_duckdb_connection_with_a_catalog_is_a_lake() -> None:
    assert is_lake(connection(conn_type="duckdb", extra={"catalog": "sqlite"}))
    assert not is_lake(connection(conn_type="duckdb"))
    assert not is_lake(connection(conn_type="duckdb", extra={"other": 1}))
