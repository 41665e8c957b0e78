"""The shipped dataset of a public bucket, on the same layout in a bucket that anybody may read."""

from __future__ import annotations

import pytest

from tests.e2e.conftest import Chain

pytestmark = pytest.mark.slow


def test_a_year_is_loaded_without_credentials(chain: Chain, public_bucket: str) -> None:
    root = f"s3://{public_bucket}/pypi/duckdb"
    for year, days in ((2023, 5), (2024, 7)):
        columns = {"day": list(range(days)), "downloads": [year] * days}
        chain.put(f"{root}/year={year}/data_0.parquet", columns)
    chain.ship("pypi_downloads")
    chain.extra_env["AWS_ENDPOINT_URL_S3"] = chain.server.endpoint
    done = chain.airflow("dags", "test", "pypi_downloads", "2024-05-05")
    assert done.returncode == 0, chain.log[-5000:]
    found = chain.query(
        "flights_demo",
        "SELECT year, typeof(year), count(*), sum(downloads)::INT FROM "
        "flights_demo.main.duckdb_pypi_downloads GROUP BY ALL",
    )
    assert found == [(2024, "BIGINT", 7, 2024 * 7)]
    assert chain.ledger("flights_demo") == [("loaded", "2024", 7, 0, None)]
