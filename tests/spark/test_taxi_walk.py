"""The guide's own walk, on generated trips: capped, again, and without the cap."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest

from landfall.dataset import Dataset, OnSchemaChange
from landfall.dataset_files import read_dataset
from landfall.listing import list_source
from landfall.load import LoadRequest, LoadResult, RunInfo, load
from landfall.manifest import files_to_json
from landfall.partition import Partition
from landfall.reading import plan_reading, read_known
from landfall.s3 import S3Store
from landfall.sql import Destination
from landfall.taxi import NAME, parquet, trips
from landfall.warehouse.duckdb import DuckDBWarehouse
from tests.spark.conftest import Landing

pytestmark = pytest.mark.slow

CAP = "2022-11-02"
DATASETS = Path(__file__).resolve().parents[2] / "dags" / "datasets"
# The guide's statements, on the same file: what it would load with and without its cap.
GUIDE = """
    SELECT count(DISTINCT md5(concat_ws('|', VendorID::VARCHAR, tpep_pickup_datetime::VARCHAR,
        tpep_dropoff_datetime::VARCHAR, PULocationID::VARCHAR, DOLocationID::VARCHAR,
        total_amount::VARCHAR))), max(tpep_pickup_datetime)
    FROM read_parquet(?) WHERE tpep_pickup_datetime > TIMESTAMP '1970-01-01'
        AND (? IS NULL OR tpep_pickup_datetime < ?::TIMESTAMP)
"""


@dataclass
class Walk:
    """Runs of the shipped dataset: what the tasks do, without Airflow."""

    landing: Landing
    warehouse: DuckDBWarehouse
    dataset: Dataset
    spark_jobs: int = 0

    def run(self, **conf: Any) -> LoadResult | None:
        dataset, nothing = self.dataset, Partition(())
        assert dataset.upsert is not None
        known = read_known(self.warehouse, dataset, nothing)
        now = datetime.now(UTC)
        store = S3Store(self.landing.client, "landing", connection=None)
        listing = list_source(store, dataset.source.uri, nothing, dataset.source.files)
        reading = plan_reading(dataset.upsert, known, listing, conf, now)
        if not reading.files:
            return None
        spec = self.landing.spec(
            {},
            dataset=dataset.dataset,
            source_uri=dataset.source.uri,
            select=dataset.transform.select,
        )
        part = reading.spec_part(dataset, spec.files_uri)
        key = spec.files_uri.removeprefix("s3://stage/")
        body = files_to_json(reading.files).encode()
        self.landing.client.put_object(Bucket="stage", Key=key, Body=body)
        self.spark_jobs += 1
        manifest = self.landing.run(replace(spec, upsert=part))
        request = LoadRequest(
            *(manifest, spec.manifest_uri, Destination.parse(dataset.load.destination)),
            *(dataset.load.ledger, OnSchemaChange.EVOLVE, False, RunInfo("t", "r", 1, now)),
        )
        return load(self.warehouse, request, self.landing.access)


def test_the_walk_gives_the_guides_numbers(landing: Landing, tmp_path: Path) -> None:
    body = parquet(trips(days=4, trips_a_day=250))
    (tmp_path / "trips.parquet").write_bytes(body)
    with duckdb.connect() as con:
        file = str(tmp_path / "trips.parquet")
        capped, capped_until = con.execute(GUIDE, [file, CAP, CAP]).fetchone() or ()
        every, until = con.execute(GUIDE, [file, None, None]).fetchone() or ()
    assert 0 < capped < every
    landing.put(f"nyc_taxi/{NAME}", body)
    shipped = read_dataset(DATASETS / "taxi_trips.yaml").dataset
    uri = shipped.source.uri.replace("s3://landing/", f"s3://landing/{landing.root}/")
    source = shipped.source.model_copy(update={"uri": uri})
    dataset = shipped.model_copy(update={"source": source})
    walk = Walk(landing, DuckDBWarehouse(tmp_path / "warehouse"), dataset)

    first = walk.run(until=CAP)
    assert first is not None and first.counts is not None
    assert (first.row_count, first.counts.total) == (capped, capped)
    assert first.watermark == str(capped_until)

    assert walk.run(until=CAP) is None
    assert walk.spark_jobs == 1

    last = walk.run()
    assert last is not None and last.counts is not None
    assert (last.counts.inserted, last.counts.updated) == (every - capped, 0)
    assert (last.counts.total, last.watermark) == (every, str(until))
    assert walk.run() is None

    replayed = walk.run(**{"from": "2022-11-03", "until": "2022-11-04"})
    assert replayed is not None and replayed.counts is not None
    assert (replayed.counts.updated, replayed.counts.inserted) == (250, 0)
    assert (replayed.counts.total, replayed.watermark) == (every, str(until))
