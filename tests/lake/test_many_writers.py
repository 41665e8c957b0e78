"""Several loaders at once on one lake table: all are in, no row is there twice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from threading import Barrier, Thread

import pytest

from landfall.errors import Conflict
from landfall.lake_rows import take_fence
from landfall.load import load
from landfall.warehouse.base import Locked
from landfall.warehouse.ducklake import DuckLakeWarehouse
from tests.loading import DESTINATION, Stage, fetch, rows, runs, table

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(params=["sqlite_lake", "postgres_lake"])
def shared(request: pytest.FixtureRequest) -> DuckLakeWarehouse:
    """A lake that several processes may use at once."""
    found: DuckLakeWarehouse = request.getfixturevalue(request.param)
    return found


def at_once(lake: DuckLakeWarehouse, folder: Path, *, same: bool, count: int = 2) -> list[str]:
    """Loaders in processes of their own, started together; how each of them ended."""
    config = lake.config
    document = {
        "directory": str(lake.directory),
        "catalog": config.catalog.value,
        "data_path": config.data_path,
        "postgres": asdict(config.postgres) if config.postgres else None,
        "same": same,
    }
    env = {**os.environ, "PYTHONPATH": f"{ROOT / 'plugins'}:{ROOT}"}
    script = str(Path(__file__).with_name("loader.py"))
    loaders = [
        subprocess.Popen(
            [sys.executable, script, json.dumps(document), str(folder / str(number)), str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=env,
        )
        for number in range(count)
    ]
    for loader in loaders:
        assert loader.stdout is not None
        assert loader.stdout.readline() == "ready\n"
    for loader in loaders:
        assert loader.stdin is not None
        loader.stdin.write("go\n")
        loader.stdin.flush()
    return [loader.communicate()[0].strip() for loader in loaders]


def test_two_first_loads_of_two_partitions_are_both_in(
    shared: DuckLakeWarehouse, tmp_path: Path
) -> None:
    assert at_once(shared, tmp_path, same=False) == ["loaded", "loaded"]
    count = "SELECT date::VARCHAR, count(*), count(DISTINCT id) FROM retail.main.transactions"
    found = fetch(shared, f"{count} GROUP BY ALL ORDER BY ALL")
    assert found == [("2026-02-10", 50, 50), ("2026-02-11", 50, 50)]
    assert len(runs(shared)) == 2


def test_two_first_loads_of_one_partition_leave_each_row_once(
    shared: DuckLakeWarehouse, tmp_path: Path
) -> None:
    assert at_once(shared, tmp_path, same=True) == ["loaded", "loaded"]
    assert len(table(shared)) == 50
    assert [run.rows_deleted for run in runs(shared)] == [50, 0]


def test_without_taking_turns_the_fence_still_lets_one_of_two_in(
    postgres_lake: DuckLakeWarehouse,
) -> None:
    """As when the lock's connection was lost: only the row that both update is left."""
    with postgres_lake.connect("retail") as one, postgres_lake.connect("retail") as two:
        one.execute("CREATE TABLE retail.main.t (i INTEGER)")
        with postgres_lake.transaction(one):
            take_fence(one, DESTINATION, "first")
        one.execute("BEGIN")
        two.execute("BEGIN")
        for con, run in ((one, "one"), (two, "two")):
            take_fence(con, DESTINATION, run)
            con.execute("INSERT INTO retail.main.t VALUES (1)")
        one.execute("COMMIT")
        with pytest.raises(Exception, match="conflict") as met:
            two.execute("COMMIT")
        assert isinstance(postgres_lake.classify(met.value), Conflict)
    assert fetch(postgres_lake, "SELECT count(*) FROM retail.main.t") == [(1,)]


def test_who_waits_too_long_for_its_turn_says_so(shared: DuckLakeWarehouse, stage: Stage) -> None:
    load(shared, stage.request(rows()))
    shared.lock_timeout = 0.2
    later = stage.request(rows(), staged_at="2026-03-01T00:00:00+00:00")
    with (
        shared.connect("retail") as con,
        shared.turn(con, DESTINATION),
        pytest.raises(Locked, match=r"waited 0\.2 s"),
    ):
        load(shared, later)
    load(shared, later)


def test_turns_of_other_schemas_are_not_waited_for(shared: DuckLakeWarehouse) -> None:
    other = type(DESTINATION)("retail", "elsewhere", "t")
    shared.lock_timeout = 0.2
    with (
        shared.connect("retail") as con,
        shared.turn(con, DESTINATION),
        shared.connect("retail") as also,
        shared.turn(also, other),
    ):
        assert also.execute("SELECT 1").fetchall() == [(1,)]


def test_threads_of_one_process_take_turns_on_a_duckdb_catalog(
    warehouse: DuckLakeWarehouse, stage: Stage
) -> None:
    requests = [stage.request(rows(rows=20)), stage.request(rows(rows=20))]
    barrier = Barrier(2)
    failures: list[BaseException] = []

    def run(number: int) -> None:
        barrier.wait()
        try:
            load(warehouse, requests[number])
        except BaseException as error:
            failures.append(error)

    threads = [Thread(target=run, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(table(warehouse)) == 20
