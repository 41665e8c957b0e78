"""The main job, as a user runs it: `airflow dags test retail_transactions DATE`."""

from __future__ import annotations

import json
import threading
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import pytest

from landfall.retail import land
from tests.e2e.conftest import Chain

pytestmark = pytest.mark.slow

DAY_BEFORE, DAY = "2026-02-10", "2026-02-11"
TABLE = "retail.main.transactions"


class ProcessList(threading.Thread):
    """Every command line that this machine showed while a block ran."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.seen: set[bytes] = set()
        self._done = threading.Event()

    def run(self) -> None:
        while not self._done.wait(0.05):
            for process in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    self.seen.add(process.read_bytes())
                except OSError:  # it has ended meanwhile
                    continue

    def __enter__(self) -> ProcessList:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self.join()


@pytest.fixture(scope="module")
def landing(chain: Chain) -> Chain:
    chain.ship("retail_transactions")
    land(chain.s3, "landing", "transactions/", [date.fromisoformat(d) for d in (DAY_BEFORE, DAY)])
    return chain


@pytest.fixture(scope="module")
def processes(landing: Chain) -> ProcessList:
    """The first run, with the process list watched."""
    with ProcessList() as watched:
        done = landing.airflow("dags", "test", "retail_transactions", DAY)
    assert done.returncode == 0, landing.log[-5000:]
    return watched


@pytest.fixture(scope="module")
def loaded(landing: Chain, processes: ProcessList) -> Chain:
    return landing


def rows_of(chain: Chain, day: str) -> list[tuple[Any, ...]]:
    sql = f"SELECT * FROM {TABLE} WHERE date = '{day}' ORDER BY ALL"
    return chain.query("retail", sql)


def expected_rows(chain: Chain, day: str, tmp_path: Path) -> int:
    """The landed rows of a day after filter and deduplication, counted without Landfall."""
    listed = chain.s3.list_objects_v2(Bucket="landing", Prefix="transactions/")
    for number, entry in enumerate(e for e in listed["Contents"] if f"date={day}/" in e["Key"]):
        chain.s3.download_file("landing", entry["Key"], str(tmp_path / f"{number}.parquet"))
    sql = f"""SELECT count(DISTINCT transaction_id) FROM '{tmp_path}/*.parquet'
              WHERE status <> 'void'"""
    (count,) = duckdb.sql(sql).fetchone()
    return int(count)


def test_the_day_is_in_the_table_and_the_ledger(loaded: Chain, tmp_path: Path) -> None:
    wanted = expected_rows(loaded, DAY, tmp_path)
    assert wanted > 10_000
    assert len(rows_of(loaded, DAY)) == wanted
    first, *_ = loaded.ledger("retail")
    assert first == ("loaded", DAY, wanted, 0, None)


def test_three_tasks_ran_and_the_table_had_an_event(loaded: Chain) -> None:
    states = loaded.airflow_rows("SELECT task_id, state FROM task_instance ORDER BY start_date")
    assert states == [
        ("wait_for_partition", "success"),
        ("stage_partition", "success"),
        ("load_partition", "success"),
    ]
    ((name, extra),) = loaded.airflow_rows(
        "SELECT a.name, e.extra FROM asset_event e JOIN asset a ON a.id = e.asset_id"
    )
    event = json.loads(extra)
    assert name == TABLE
    assert event["partition"] == f"date={DAY}"
    assert event["rows"] == len(rows_of(loaded, DAY))
    assert event["files"] == 20
    assert event["bytes"] > 1_000_000


def test_the_process_list_shows_no_credential(processes: ProcessList, loaded: Chain) -> None:
    submitted = [line for line in processes.seen if b"stage_partition.py" in line]
    assert submitted, "the Spark job was not seen"
    for secret in (loaded.server.secret_key, loaded.server.access_key):
        assert not [line for line in processes.seen if secret.encode() in line]


def test_again_gives_the_same_table_and_a_second_ledger_row(loaded: Chain) -> None:
    before = rows_of(loaded, DAY)
    done = loaded.airflow("dags", "test", "retail_transactions", DAY)
    assert done.returncode == 0, loaded.log[-5000:]
    assert rows_of(loaded, DAY) == before
    _, second = loaded.ledger("retail")
    assert second == ("loaded", DAY, len(before), len(before), None)


def test_a_changed_file_replaces_its_date_alone(loaded: Chain) -> None:
    assert [run.state for run in loaded.runs(("retail_transactions", DAY_BEFORE))] == ["success"]
    other, before = rows_of(loaded, DAY_BEFORE), rows_of(loaded, DAY)
    rowids = f"SELECT min(rowid), max(rowid) FROM {TABLE} WHERE date = '{DAY_BEFORE}'"
    place = loaded.query("retail", rowids)
    prefix = f"transactions/region=NW/date={DAY}/"
    key = loaded.s3.list_objects_v2(Bucket="landing", Prefix=prefix)["Contents"][0]["Key"]
    removed = loaded.s3.get_object(Bucket="landing", Key=key)["Body"].read()
    loaded.s3.delete_object(Bucket="landing", Key=key)
    try:
        assert [run.state for run in loaded.runs(("retail_transactions", DAY))] == ["success"]
    finally:
        loaded.s3.put_object(Bucket="landing", Key=key, Body=removed)
    after = rows_of(loaded, DAY)
    assert len(before) - 1_100 < len(after) < len(before) - 900
    assert set(after) <= set(before)
    assert rows_of(loaded, DAY_BEFORE) == other
    assert loaded.query("retail", rowids) == place


def test_only_the_loaded_attempt_stays_in_the_stage(loaded: Chain) -> None:
    prefix = f"landfall/retail_transactions/date={DAY}/"
    keys = [
        entry["Key"].removeprefix(prefix)
        for entry in loaded.s3.list_objects_v2(Bucket="stage", Prefix=prefix)["Contents"]
    ]
    assert len({key.partition("/")[0] for key in keys if key}) == 1
    assert any(key.endswith("manifest.json") for key in keys)


def test_no_credential_is_left_anywhere(loaded: Chain) -> None:
    """In what Airflow said, its logs and database, the warehouse, and the manifests."""
    places = {"the output": loaded.log.encode()}
    places |= {str(p): p.read_bytes() for p in loaded.home.rglob("*") if p.is_file()}
    for entry in loaded.s3.list_objects_v2(Bucket="stage", Prefix="landfall/")["Contents"]:
        body = loaded.s3.get_object(Bucket="stage", Key=entry["Key"])["Body"].read()
        places[entry["Key"]] = body
    assert {"airflow.db", "retail.duckdb", "manifest.json"} <= {
        place.rpartition("/")[2] for place in places
    }
    for secret in (loaded.server.secret_key, loaded.server.access_key):
        assert [place for place, held in places.items() if secret.encode() in held] == []
