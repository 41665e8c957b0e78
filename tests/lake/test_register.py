"""Landed files become part of the table where they are: each exactly once, none silently wrong."""

from __future__ import annotations

import re
import time
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from landfall.errors import ConfigError, ContractError, SourceError
from landfall.ledger import RunStatus
from landfall.local_s3 import LocalS3
from landfall.register import refuse_problems, register
from landfall.warehouse.duckdb import DuckDBWarehouse
from landfall.warehouse.ducklake import DuckLakeWarehouse
from landfall.warehouse.lake_config import LakeConfig
from tests.registering import Shop, access, parquet

pytestmark = pytest.mark.slow

NW, SW = "region=NW/date=2026-02-11", "region=SW/date=2026-02-11"
LEDGER = "SELECT status, mode, row_count, files, error FROM retail.main.ingest_runs ORDER BY run_at"


@pytest.fixture
def shop(s3_server: LocalS3, s3: Any, warehouse: DuckLakeWarehouse) -> Shop:
    return Shop(s3_server, s3, warehouse)


def test_each_file_is_there_once_however_often_it_is_asked_for(shop: Shop) -> None:
    shop.put(f"{NW}/a.parquet", {"id": [1, 2]})
    shop.put(f"{SW}/b.parquet", {"id": [3]})
    first = shop.run()
    assert (first.status, first.files, first.rows) == (RunStatus.LOADED, 2, 3)
    assert shop.run().status is RunStatus.SKIPPED
    assert shop.ids() == [1, 2, 3]
    shop.put("region=NW/date=2026-01-05/late.parquet", {"id": [4]})
    late = shop.run()
    assert (late.files, late.partitions) == (1, ("region=NW/date=2026-01-05",))
    assert shop.ids() == [1, 2, 3, 4]
    nothing = "Nothing new: 2 files are registered already."
    assert shop.query(LEDGER) == [
        ("loaded", "register", 3, 2, None),
        ("skipped", "register", 0, 0, nothing),
        ("loaded", "register", 1, 1, None),
    ]


def test_two_requests_of_one_listing_register_it_once(shop: Shop) -> None:
    """As when a second run listed before the first one committed."""
    shop.put(f"{NW}/a.parquet", {"id": [1]})
    requests = [shop.request(), shop.request()]
    for request in requests:
        register(shop.warehouse, request, access(shop.server))
    assert shop.ids() == [1]


def test_values_come_from_the_path_with_the_stated_types(shop: Shop) -> None:
    folders = ("N%2FW", "01", "a b", "__HIVE_DEFAULT_PARTITION__", "é")
    for number, folder in enumerate(folders):
        shop.put(f"region={folder}/date=2026-02-11/a.parquet", {"id": [number]})
    shop.run()
    found = shop.query("SELECT region, date FROM retail.main.sales ORDER BY id")
    day = date(2026, 2, 11)
    assert found == [("N/W", day), ("01", day), ("a b", day), (None, day), ("é", day)]


def test_a_filter_reads_only_the_files_that_it_needs(shop: Shop) -> None:
    for region in ("NW", "SW"):
        for day in range(10, 15):
            shop.put(f"region={region}/date=2026-02-{day}/a.parquet", {"id": [day]})
    shop.run()
    for where, files in (
        ("region = 'NW'", 5),
        ("date = '2026-02-11'", 2),
        ("region = 'SW' AND date >= '2026-02-13'", 2),
        ("TRUE", 10),
    ):
        query = f"EXPLAIN ANALYZE SELECT sum(id) FROM retail.main.sales WHERE {where}"
        ((_, plan),) = shop.query(query)
        assert re.findall(r"Total Files Read: (\d+)", plan) == [str(files)], where


def test_the_table_is_found_as_each_run_left_it(shop: Shop) -> None:
    shop.put(f"{NW}/a.parquet", {"id": [1]})
    shop.run()
    shop.put(f"{NW}/b.parquet", {"id": [2]})
    shop.run()
    noted = shop.query("SELECT snapshot_id FROM retail.main.ingest_runs ORDER BY run_at")
    counts = [
        shop.query(f"SELECT count(*) FROM retail.main.sales AT (VERSION => {number})")
        for (number,) in noted
    ]
    assert counts == [[(1,)], [(2,)]]


def test_the_partition_state_sums_all_files_of_a_partition(shop: Shop) -> None:
    shop.put(f"{NW}/a.parquet", {"id": [1, 2]})
    shop.put(f"{SW}/a.parquet", {"id": [3]})
    shop.run()
    shop.put(f"{NW}/b.parquet", {"id": [4]})
    shop.run()
    states = "SELECT partition, rows, files FROM retail.main.ingest_partitions ORDER BY 1"
    assert shop.query(states) == [(NW, 3, 2), (SW, 1, 1)]


def test_evolve_adds_a_column_and_older_files_hold_null(shop: Shop) -> None:
    shop.put(f"{NW}/a.parquet", {"id": [1]})
    shop.run()
    shop.put(f"{NW}/b.parquet", {"id": [2], "note": ["x"]})
    assert shop.run().columns_added == ("note",)
    shop.put(f"{NW}/c.parquet", {"note": ["y"]})
    shop.run()
    found = shop.query("SELECT id, note FROM retail.main.sales ORDER BY id")
    assert found == [(1, None), (2, "x"), (None, "y")]


def test_freeze_refuses_a_new_column_and_registers_nothing(shop: Shop) -> None:
    shop.more = {"contract": {"on_schema_change": "freeze"}}
    shop.put(f"{NW}/a.parquet", {"id": [1]})
    shop.run()
    shop.put(f"{NW}/b.parquet", {"id": [2], "note": ["x"]})
    shop.put(f"{NW}/c.parquet", {"id": [3]})
    with pytest.raises(ContractError, match="'note'"):
        shop.run()
    assert shop.ids() == [1]
    assert [row[0] for row in shop.query(LEDGER)] == ["loaded", "failed"]


def test_discard_leaves_a_new_column_out(shop: Shop) -> None:
    shop.more = {"contract": {"on_schema_change": "discard"}}
    shop.put(f"{NW}/a.parquet", {"id": [1]})
    shop.run()
    shop.put(f"{NW}/b.parquet", {"id": [2], "note": ["x"]})
    shop.run()
    assert shop.query("SELECT * EXCLUDE (region, date) FROM retail.main.sales ORDER BY id") == [
        (1,),
        (2,),
    ]


@pytest.mark.parametrize(
    "value",
    [
        pa.array([2.5]),
        pa.array(["x"]),
        pa.array([1], pa.timestamp("us", tz="UTC")),
        pa.array([1], pa.timestamp("ns")),
    ],
    ids=["double", "text", "timestamptz", "nanoseconds"],
)
def test_a_type_that_does_not_fit_is_refused(shop: Shop, value: Any) -> None:
    at = pa.array([1], pa.timestamp("us"))
    shop.put(f"{NW}/a.parquet", {"id": [1], "at": at})
    shop.run()
    column = "at" if pa.types.is_timestamp(value.type) else "id"
    shop.put(f"{NW}/b.parquet", {column: value})
    with pytest.raises(ContractError, match=f"'{column}'"):
        shop.run()
    assert shop.ids() == [1]


def test_a_type_that_only_ducklake_does_not_take_is_refused_with_its_file(shop: Shop) -> None:
    shop.put(f"{NW}/a.parquet", {"id": [1], "amount": [1.5]})
    shop.run()
    shop.put(f"{NW}/b.parquet", {"id": [2], "amount": pa.array([2], pa.int32())})
    with pytest.raises(ContractError, match=r"b\.parquet"):
        shop.run()
    assert shop.ids() == [1]


def test_a_landing_without_partitions_is_registered_whole(shop: Shop) -> None:
    source = shop.dataset().source.model_dump()
    shop.more = {"source": {**source, "partition": {}, "types": {}}}
    shop.put("a.parquet", {"id": [1]})
    shop.run()
    shop.put("b.parquet", {"id": [2]})
    shop.run()
    assert shop.query("SELECT * FROM retail.main.sales ORDER BY id") == [(1,), (2,)]


def test_a_table_that_was_loaded_before_gets_no_row_twice(shop: Shop) -> None:
    """A dataset that changes from replace to register knows its files from the file history."""
    key = shop.put(f"{NW}/a.parquet", {"id": [1]})
    shop.put(f"{NW}/b.parquet", {"id": [2]})
    shop.run()
    shop.execute("DELETE FROM retail.main.sales")
    history = "retail.main.ingest_files"
    shop.execute(
        f"INSERT INTO {history} BY NAME SELECT * REPLACE ('old' AS etag, "
        f"loaded_at - INTERVAL 1 DAY AS loaded_at) FROM {history} WHERE key = '{key}'"
    )
    assert shop.run().problems == ()
    assert shop.ids() == []


def test_a_narrower_type_is_taken(shop: Shop) -> None:
    shop.put(f"{NW}/a.parquet", {"id": pa.array([1], pa.int64())})
    shop.run()
    shop.put(f"{NW}/b.parquet", {"id": pa.array([2], pa.int16())})
    shop.run()
    assert shop.ids() == [1, 2]


def test_a_file_that_changed_is_reported_and_the_new_ones_are_in(shop: Shop) -> None:
    key = shop.put(f"{NW}/a.parquet", {"id": [1, 2, 3]})
    shop.run()
    shop.put(f"{NW}/a.parquet", {"id": [10, 20, 30]})
    shop.put(f"{SW}/b.parquet", {"id": [4]})
    result = shop.run()
    assert (result.status, result.files) == (RunStatus.LOADED, 1)
    with pytest.raises(SourceError, match=f"{key} changed") as told:
        refuse_problems(result, "s3://landing")
    assert told.value.recorded
    again = shop.run()
    assert again.status is RunStatus.FAILED
    errors = [row[4] for row in shop.query(LEDGER)]
    assert errors[0] is None
    assert all(key in error for error in errors[1:])


def test_a_file_that_vanished_is_reported_until_it_is_back(shop: Shop) -> None:
    key = shop.put(f"{NW}/a.parquet", {"id": [1]})
    shop.put(f"{SW}/b.parquet", {"id": [2]})
    shop.run()
    shop.s3.delete_object(Bucket="landing", Key=key)
    assert f"{key} vanished" in shop.run().problems[0]
    shop.put(f"{NW}/a.parquet", {"id": [1]})
    assert shop.run().problems == ()
    assert shop.ids() == [1, 2]


def test_a_file_may_go_once_its_rows_were_deleted(shop: Shop) -> None:
    key = shop.put(f"{NW}/a.parquet", {"id": [1]})
    shop.put(f"{SW}/b.parquet", {"id": [2]})
    shop.run()
    shop.execute("DELETE FROM retail.main.sales WHERE region = 'NW' AND date = '2026-02-11'")
    shop.s3.delete_object(Bucket="landing", Key=key)
    assert shop.run().problems == ()
    assert shop.ids() == [2]


def test_a_path_is_registered_once_in_its_life(shop: Shop) -> None:
    """Removed and added again, expiry and clean-up would delete the live file."""
    shop.put(f"{NW}/a.parquet", {"id": [1]})
    shop.run()
    shop.execute("DELETE FROM retail.main.sales")
    assert shop.run().status is RunStatus.SKIPPED
    assert shop.ids() == []


def test_files_outside_of_the_partitions_are_reported_and_the_others_are_in(shop: Shop) -> None:
    shop.put(f"{NW}/a.parquet", {"id": [1]})
    shop.put(f"{NW}/_temporary/x.parquet", {"id": [7]})
    shop.put(f"{NW}/notes.txt", b"text")
    shop.put("region=NW/stray.parquet", {"id": [8]})
    shop.put("region=NW/date=yesterday/a.parquet", {"id": [9]})
    shop.put(f"{NW}/what?.parquet", {"id": [10]})
    result = shop.run()
    assert shop.ids() == [1]
    told = "\n".join(result.problems)
    assert len(result.problems) == 3
    for name in ("stray.parquet", "date=yesterday", "what?.parquet"):
        assert name in told


def test_a_key_in_the_file_must_say_what_the_path_says(shop: Shop) -> None:
    shop.put(f"{NW}/a.parquet", {"id": [1], "region": ["NW"]})
    shop.run()
    shop.put(f"{NW}/b.parquet", {"id": [2], "region": ["SW"]})
    with pytest.raises(ContractError, match="holds 'SW', the path says NW"):
        shop.run()
    assert shop.query("SELECT id, region FROM retail.main.sales") == [(1, "NW")]


def test_a_file_that_is_no_parquet_is_named(shop: Shop) -> None:
    shop.put(f"{NW}/a.parquet", b"this is not a Parquet file at all")
    with pytest.raises(SourceError, match=r"a\.parquet"):
        shop.run()


def test_files_that_are_not_ready_wait_for_the_next_run(shop: Shop) -> None:
    shop.more = {"source": {**shop.dataset().source.model_dump(), "ready": {"marker": "_DONE"}}}
    shop.put(f"{NW}/a.parquet", {"id": [1]})
    shop.put(f"{NW}/_DONE", b"")
    shop.put(f"{SW}/b.parquet", {"id": [2]})
    assert shop.run().files == 1
    shop.put(f"{SW}/_DONE", b"")
    assert shop.run().files == 1
    assert shop.ids() == [1, 2]


def test_only_the_values_that_the_dataset_names_are_registered(shop: Shop) -> None:
    source = shop.dataset().source.model_dump()
    shop.more = {"source": {**source, "partition": {"region": "NW", "date": "{{ ds }}"}}}
    shop.put(f"{NW}/a.parquet", {"id": [1]})
    shop.put(f"{SW}/b.parquet", {"id": [2]})
    shop.run()
    assert shop.ids() == [1]
    shop.more["source"]["partition"]["region"] = "SW"
    assert shop.run().problems == ()
    assert shop.ids() == [1, 2]


def test_a_warehouse_that_is_no_lake_is_refused(shop: Shop, tmp_path: Path) -> None:
    shop.put(f"{NW}/a.parquet", {"id": [1]})
    shop.warehouse = DuckDBWarehouse(tmp_path / "plain")
    with pytest.raises(ConfigError, match="needs a DuckLake"):
        shop.run()


@pytest.mark.parametrize("inside", ["", "/lake"])
def test_a_landing_inside_the_data_path_is_refused(shop: Shop, tmp_path: Path, inside: str) -> None:
    data = f"s3://landing/{shop.prefix}{inside}" if inside else "s3://landing"
    config = LakeConfig(data_path=data, access=access(shop.server))
    shop.warehouse = DuckLakeWarehouse(tmp_path / "other", config)
    shop.put(f"{NW}/a.parquet", {"id": [1]})
    with pytest.raises(ConfigError, match="lie in each other"):
        shop.run()


def test_ten_thousand_files_twice_leave_each_row_once(shop: Shop) -> None:
    regions, days, batches = ("MW", "NE", "NW", "SE", "SW"), range(1, 21), range(100)
    body = parquet({"id": [1, 2], "amount": [1.5, 2.5]})
    shop.put_many(
        {
            f"region={region}/date=2026-02-{day:02d}/batch_{number}.parquet": body
            for region in regions
            for day in days
            for number in batches
        }
    )
    began = time.monotonic()
    first = shop.run()
    took = time.monotonic() - began
    assert (first.files, first.rows, len(first.partitions)) == (10_000, 20_000, 100)
    assert shop.query("SELECT count(*) FROM retail.main.sales") == [(20_000,)]
    began = time.monotonic()
    second = shop.run()
    assert time.monotonic() - began < took / 2, "it opened files that it knows"
    assert (second.status, second.files) == (RunStatus.SKIPPED, 0)
    assert shop.query("SELECT count(*) FROM retail.main.sales") == [(20_000,)]
