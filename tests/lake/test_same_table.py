"""Another connection, the same table: DuckDB, DuckLake on DuckDB, SQLite and PostgreSQL, on S3."""

from __future__ import annotations

import json
import os
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from landfall.connections import warehouse_config
from landfall.errors import LandfallError
from landfall.load import load
from landfall.local_s3 import LocalS3
from landfall.retail import store_day
from landfall.settings import load_settings
from landfall.warehouse.base import Warehouse
from landfall.warehouse.factory import open_warehouse
from tests.loading import Stage, table
from tests.postgres import PASSWORD, USER, Postgres

pytestmark = pytest.mark.slow

DAY = "2026-02-11"


def connections(folder: Path, postgres: Postgres) -> dict[str, Any]:
    """As AIRFLOW_CONN_LANDFALL_WAREHOUSE gives them."""
    address = {"host": str(postgres.socket), "login": USER, "password": PASSWORD}
    return {
        "duckdb": {"conn_type": "duckdb", "host": str(folder / "plain.duckdb")},
        "ducklake, duckdb catalog": {"conn_type": "ducklake"},
        "ducklake, sqlite catalog": {
            "conn_type": "duckdb",
            "host": "lakes/retail.sqlite",
            "extra": {"catalog": "sqlite", "data_path": "lakes/data"},
        },
        "ducklake, postgres catalog": {
            "conn_type": "ducklake",
            **address,
            "schema": postgres.database(),
            "extra": {"catalog": "postgres", "data_path": f"s3://stage/lake-{folder.name}"},
        },
    }


def warehouse_of(connection: dict[str, Any], folder: Path, server: LocalS3) -> Warehouse:
    """Through Airflow's own reading of the connection."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW_CONN_LANDFALL_WAREHOUSE", json.dumps(connection))
        patch.setenv("AIRFLOW_CONN_AWS_DEFAULT", server.connection_json())
        settings = load_settings({**os.environ, "LANDFALL_HOME": str(folder)})
        return open_warehouse(warehouse_config("landfall_warehouse", settings))


def test_the_retail_table_is_the_same_whatever_the_connection(
    tmp_path: Path, postgres: Postgres, s3_server: LocalS3
) -> None:
    landed = tmp_path / "landed"
    landed.mkdir()
    for store, region in (("S002", "NW"), ("S003", "SE")):
        sales = pa.Table.from_pylist(store_day(store, date.fromisoformat(DAY)))
        pq.write_table(sales, landed / f"{region}.parquet")
    query = (
        f"SELECT *, parse_filename(filename, true) AS region, DATE '{DAY}' AS date "
        f"FROM read_parquet('{landed}/*.parquet', filename = true) WHERE status <> 'void'"
    )
    request = Stage(tmp_path / "stage").request(query)
    tables = {}
    for name, connection in connections(tmp_path, postgres).items():
        warehouse = warehouse_of(connection, tmp_path, s3_server)
        load(warehouse, request)
        load(warehouse, request)
        tables[name] = table(warehouse)
    first = tables.pop("duckdb")
    assert len(first) == request.manifest.rows_staged > 1_000
    for name, rows in tables.items():
        assert rows == first, name


def test_no_secret_is_shown_or_written(
    tmp_path: Path, postgres: Postgres, s3_server: LocalS3
) -> None:
    connection = connections(tmp_path, postgres)["ducklake, postgres catalog"]
    warehouse = warehouse_of(connection, tmp_path, s3_server)
    load(warehouse, Stage(tmp_path / "stage").request("SELECT 1 AS id, DATE '2026-02-11' AS date"))
    wrong = warehouse_of({**connection, "password": "another-pw-77"}, tmp_path, s3_server)
    refusal = pytest.raises(LandfallError, match="password authentication failed")
    with refusal as refused, wrong.connect("retail"):
        raise AssertionError("it let a wrong password in")
    said = f"{refused.value!r} {refused.value.__cause__!r} {wrong.describe()} {vars(wrong)!r}"
    dump = postgres.query("SELECT * FROM ducklake_metadata", connection["schema"])
    places = [said, dump, postgres.log.read_text(errors="replace")]
    places += [p.read_bytes().decode("latin-1") for p in tmp_path.rglob("*") if p.is_file()]
    for secret in (PASSWORD, "another-pw-77", s3_server.secret_key):
        assert not [place[:200] for place in places if secret in place]
