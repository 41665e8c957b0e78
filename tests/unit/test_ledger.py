"""A newer Landfall opens an older ledger; looking at a ledger never makes one."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from landfall import ledger, ledger_schema
from landfall.errors import ConfigError, WarehouseError
from landfall.ledger import PartitionState, RunStatus
from landfall.load import RunInfo, ended_row, load, record_end
from landfall.partition import Partition
from landfall.warehouse.duckdb import DuckDBWarehouse
from tests.loading import DESTINATION, Stage, fetch, rows, runs, states

NOW = datetime(2026, 2, 12, 6, 30, 0, 123456, tzinfo=UTC)
RUN = RunInfo("dag", "run", 2, NOW)
PARTITION = Partition.of({"date": "2026-02-11"}, {"date": "date"})
STATE = PartitionState(
    "retail.main.transactions", "date=2026-02-11", "d", NOW, "r1", "a1", "s3://a1", 1, 1, 1,
    "f", "s", "c", NOW,
)  # fmt: skip


@pytest.fixture
def warehouse(tmp_path: Path) -> DuckDBWarehouse:
    return DuckDBWarehouse(tmp_path / "warehouse")


def ensure(warehouse: DuckDBWarehouse, name: str = "ingest_runs") -> None:
    with warehouse.connect("retail") as con:
        ledger.ensure(warehouse, con, DESTINATION, name)


def flight_ledger(con: Any) -> None:
    """The table as MotherDuck's scheduled-ingest Flight makes and fills it."""
    con.execute(
        "CREATE TABLE retail.main.ingest_runs (run_at TIMESTAMPTZ, source_glob VARCHAR, "
        "destination_table VARCHAR, partition_column VARCHAR, load_partition VARCHAR, "
        "row_count BIGINT)"
    )
    con.execute(
        "INSERT INTO retail.main.ingest_runs VALUES ('2026-01-01 00:00:00+00', 's3://b/**', "
        "'retail.main.transactions', 'year', '2026', 42)"
    )


def test_making_the_ledger_twice_changes_nothing(warehouse: DuckDBWarehouse) -> None:
    ensure(warehouse)
    made = "SELECT * FROM duckdb_columns() WHERE database_name = 'retail' ORDER BY ALL"
    before = fetch(warehouse, made)
    ensure(warehouse)
    assert fetch(warehouse, made) == before


def test_each_step_is_written_down_once(warehouse: DuckDBWarehouse) -> None:
    ensure(warehouse)
    ensure(warehouse)
    steps = fetch(warehouse, "SELECT ledger, step FROM retail.main.landfall_migrations ORDER BY 2")
    assert steps == [("ingest_runs", n + 1) for n in range(len(ledger_schema.STEPS))]


def test_an_older_ledger_gets_the_steps_that_it_lacks(
    warehouse: DuckDBWarehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as older:
        older.setattr(ledger_schema, "STEPS", ledger_schema.STEPS[:1])
        ensure(warehouse)
    assert fetch(warehouse, "SELECT max(step) FROM retail.main.landfall_migrations") == [(1,)]
    ensure(warehouse)
    assert fetch(warehouse, "SELECT count(*) FROM retail.main.ingest_files") == [(0,)]


def test_a_newer_ledger_is_refused(
    warehouse: DuckDBWarehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    ensure(warehouse)
    monkeypatch.setattr(ledger_schema, "STEPS", ledger_schema.STEPS[:2])
    with pytest.raises(WarehouseError, match="newer Landfall"):
        ensure(warehouse)


def test_a_ledger_that_a_flight_made_is_taken_over(
    warehouse: DuckDBWarehouse, tmp_path: Path
) -> None:
    with warehouse.connect("retail") as con:
        flight_ledger(con)
    load(warehouse, Stage(tmp_path / "stage").request(rows()))
    new, old = runs(warehouse)
    assert (old.row_count, old.load_partition, old.status) == (42, "2026", None)
    assert (new.row_count, new.load_partition, new.status) == (10, "2026-02-11", RunStatus.LOADED)


def test_a_ledger_that_a_flight_made_is_read_as_it_is(warehouse: DuckDBWarehouse) -> None:
    with warehouse.connect("retail") as con:
        flight_ledger(con)
    (old,) = runs(warehouse)
    assert old.run_at == datetime(2026, 1, 1, tzinfo=UTC)
    assert (old.row_count, old.run_id) == (42, None)


def test_a_query_of_the_flight_goes_on_working(warehouse: DuckDBWarehouse, tmp_path: Path) -> None:
    load(warehouse, Stage(tmp_path / "stage").request(rows()))
    query = (
        "SELECT source_glob, destination_table, partition_column, load_partition, row_count "
        "FROM retail.main.ingest_runs ORDER BY run_at DESC LIMIT 1"
    )
    assert fetch(warehouse, query)[0][1:] == ("retail.main.transactions", "date", "2026-02-11", 10)


def test_looking_where_nothing_exists_finds_and_makes_nothing(
    warehouse: DuckDBWarehouse, tmp_path: Path
) -> None:
    with warehouse.connect("retail", read_only=True) as con:
        assert ledger.last_runs(con, DESTINATION, "ingest_runs") == []
        assert ledger.partitions(con, DESTINATION) == []
        assert ledger.file_history(con, DESTINATION, "date=2026-02-11") == []
    assert list(tmp_path.iterdir()) == []


def test_a_row_is_read_as_it_was_written(warehouse: DuckDBWarehouse) -> None:
    row = ended_row(DESTINATION, "d", PARTITION, RUN, RunStatus.SKIPPED, source_uri="s3://b/t")
    assert record_end(warehouse, DESTINATION, "ingest_runs", row)
    assert runs(warehouse) == [row]


def test_an_error_is_kept_short_and_without_secrets() -> None:
    error = "key hunter2 " + "x" * 5_000
    row = ended_row(
        DESTINATION, "d", PARTITION, RUN, RunStatus.FAILED, error=error, secrets=("hunter2",)
    )
    assert row.error is not None
    assert len(row.error) == 2_000
    assert row.error.startswith("key *** xxx")


def test_runs_are_found_by_dataset_and_partition(warehouse: DuckDBWarehouse) -> None:
    for dataset, day in (("a", "2026-02-11"), ("b", "2026-02-11"), ("a", "2026-02-12")):
        partition = Partition.of({"date": day}, {"date": "date"})
        row = ended_row(DESTINATION, dataset, partition, RUN, RunStatus.SKIPPED)
        record_end(warehouse, DESTINATION, "ingest_runs", row)
    with warehouse.connect("retail", read_only=True) as con:
        of_a = ledger.last_runs(con, DESTINATION, "ingest_runs", dataset="a")
        one = ledger.last_runs(con, DESTINATION, "ingest_runs", dataset="a", partition="2026-02-11")
        newest = ledger.last_runs(con, DESTINATION, "ingest_runs", limit=1)
    assert [row.load_partition for row in of_a] == ["2026-02-12", "2026-02-11"]
    assert len(one) == 1
    assert newest == of_a[:1]


def test_the_fence_gives_back_what_was_loaded_before(warehouse: DuckDBWarehouse) -> None:
    ensure(warehouse)
    newer = replace(STATE, run_id="r2", staged_at=NOW + timedelta(microseconds=1))
    with warehouse.connect("retail") as con:
        assert ledger.fence(con, DESTINATION, STATE).previous is None
        assert ledger.fence(con, DESTINATION, newer).previous == STATE
    assert states(warehouse) == [newer]


def test_the_fence_holds_an_older_stage_off(warehouse: DuckDBWarehouse) -> None:
    ensure(warehouse)
    older = replace(STATE, run_id="r0", staged_at=NOW - timedelta(microseconds=1))
    with warehouse.connect("retail") as con:
        ledger.fence(con, DESTINATION, STATE)
        assert ledger.fence(con, DESTINATION, older).superseded
    assert states(warehouse) == [STATE]


def test_a_table_cannot_have_the_name_of_the_ledger(warehouse: DuckDBWarehouse) -> None:
    with pytest.raises(ConfigError, match="transactions"):
        ensure(warehouse, "Transactions")
