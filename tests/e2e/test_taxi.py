"""The shipped upsert dataset, as a user runs it: capped, the same again, and without the cap."""

from __future__ import annotations

import json

import pytest

from landfall.demo_taxi import WALK
from landfall.taxi import land
from tests.e2e.conftest import Chain, Run

pytestmark = pytest.mark.slow

TABLE = "taxi.main.taxi_trips"


@pytest.fixture(scope="module")
def walked(chain: Chain) -> list[Run]:
    chain.ship("taxi_trips")
    land(chain.s3, "landing", "nyc_taxi")
    return chain.runs(*(("taxi_trips", None, conf) for _, conf in WALK))


def test_each_run_succeeds_and_only_those_with_something_new_submit(
    chain: Chain, walked: list[Run]
) -> None:
    assert [run.state for run in walked] == ["success"] * 3
    assert chain.log.count("Running Spark version") == 2


def test_ledger_and_events_say_what_each_run_did(chain: Chain, walked: list[Run]) -> None:
    said = "row_count, rows_inserted, rows_updated, total_rows, watermark"
    sql = f"SELECT {said} FROM taxi.main.ingest_runs WHERE status = 'loaded' ORDER BY run_at"
    capped, again, rest = chain.query("taxi", sql)
    ((rows, ids, latest),) = chain.query(
        "taxi", f"SELECT count(*), count(DISTINCT trip_id), max(pickup_at)::VARCHAR FROM {TABLE}"
    )
    assert capped[:4] == (capped[0], capped[0], 0, capped[0])
    assert again == (0, 0, 0, capped[3], capped[4])
    assert rest[1:] == (rows - capped[0], 0, rows, latest)
    assert rows == ids
    assert capped[4] < "2022-11-02" < latest
    told = chain.airflow_rows("SELECT extra FROM asset_event ORDER BY id")
    events = [json.loads(extra) for (extra,) in told]
    assert [(e["rows_loaded"], e["total_rows"], e["watermark"]) for e in events] == [
        (run[0], run[3], run[4]) for run in (capped, again, rest)
    ]
