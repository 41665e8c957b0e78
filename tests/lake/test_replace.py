"""What replace promises on DuckDB, it promises on DuckLake."""

from __future__ import annotations

import pytest

from landfall import ledger
from landfall.load import load
from landfall.warehouse.ducklake import DuckLakeWarehouse
from tests.loading import DESTINATION, Stage, fetch, rows, runs, table

# The same tests, with this folder's `warehouse`.
from tests.unit.test_load import (  # noqa: F401
    test_a_destination_of_another_type_is_refused,
    test_a_reload_gives_an_identical_table_and_a_second_ledger_row,
    test_a_staged_row_of_another_partition_is_refused,
    test_an_older_stage_never_replaces_a_newer_one,
    test_column_names_of_any_text_arrive,
    test_discard_leaves_a_new_column_out,
    test_evolve_adds_a_column_at_the_end,
    test_files_with_different_columns_are_read_as_one,
    test_freeze_refuses_a_new_column_and_changes_nothing,
    test_no_row_left_is_refused_unless_allowed,
    test_other_partitions_stay_as_they_were,
    test_the_first_load_creates_database_schema_and_table,
    test_the_ledger_row_says_what_was_read_and_loaded,
)

pytestmark = pytest.mark.slow


def test_the_table_is_found_as_each_run_left_it(stage: Stage, warehouse: DuckLakeWarehouse) -> None:
    load(warehouse, stage.request(rows(rows=3)))
    load(warehouse, stage.request(rows(rows=5), staged_at="2026-02-13T00:00:00+00:00"))
    second, first = runs(warehouse)
    for run, count in ((first, 3), (second, 5)):
        assert run.snapshot_id is not None
        then = f"SELECT count(*) FROM retail.main.transactions AT (VERSION => {run.snapshot_id})"
        assert fetch(warehouse, then) == [(count,)]


def test_the_commit_message_names_the_run(stage: Stage, warehouse: DuckLakeWarehouse) -> None:
    result = load(warehouse, stage.request(rows()))
    (row,) = runs(warehouse)
    noted = f"WHERE snapshot_id = {row.snapshot_id}"
    query = f"SELECT author, commit_message FROM retail.snapshots() {noted}"
    where = "retail.main.transactions, partition date=2026-02-11"
    assert fetch(warehouse, query) == [("landfall", f"landfall run {result.run_id}: {where}")]


def test_a_snapshot_that_was_not_noted_is_noted_by_the_next_run(
    stage: Stage, warehouse: DuckLakeWarehouse
) -> None:
    """As after a run that was killed between its COMMIT and the note."""
    first = load(warehouse, stage.request(rows()))
    (before,) = runs(warehouse)
    with warehouse.connect("retail") as con:
        con.execute("UPDATE retail.main.ingest_runs SET snapshot_id = NULL")
    load(warehouse, stage.request(rows(), staged_at="2026-02-13T00:00:00+00:00"))
    with warehouse.connect("retail", read_only=True) as con:
        again = ledger.find_run(con, DESTINATION, "ingest_runs", first.run_id)
    assert again is not None
    assert again.snapshot_id == before.snapshot_id


def test_no_row_is_kept_in_the_catalog(stage: Stage, warehouse: DuckLakeWarehouse) -> None:
    """Inlined rows can lose deletes (ducklake#917)."""
    load(warehouse, stage.request(rows(rows=1)))
    inlined = "SELECT count(*) FROM __ducklake_metadata_retail.ducklake_inlined_data_tables"
    assert fetch(warehouse, inlined) == [(0,)]
    assert len(table(warehouse)) == 1
