"""What upsert promises on DuckDB, it promises on DuckLake, which has no keys."""

from __future__ import annotations

from pathlib import Path

import pytest

from landfall.load import load
from landfall.warehouse.ducklake import DuckLakeWarehouse

# The same tests, with this folder's warehouse.
from tests.unit.test_upsert import (  # noqa: F401
    test_a_column_that_the_stage_lacks_keeps_its_values,
    test_a_deletion_can_be_the_first_thing_that_comes,
    test_a_deletion_removes_the_row_and_an_older_one_stays_away,
    test_a_key_that_is_staged_twice_is_refused,
    test_a_late_row_can_be_rejected_and_is_kept_with_the_reason,
    test_an_older_look_does_not_bring_back_what_was_rewritten,
    test_an_older_row_never_replaces_a_newer_one,
    test_rows_are_inserted_then_updated_by_their_key,
    test_the_watermark_never_moves_backward_whatever_order_runs_end_in,
)
from tests.upserting import Row, Runs, events, query, table

pytestmark = pytest.mark.slow


@pytest.fixture
def runs(tmp_path: Path, warehouse: DuckLakeWarehouse) -> Runs:
    return Runs(tmp_path / "stage", warehouse, events(overlap=5))


def test_an_upsert_is_one_snapshot_that_the_ledger_names(runs: Runs) -> None:
    runs.landing.put("a", [Row(1, 10, 1), Row(2, 11, 1)])
    load(runs.warehouse, runs.stage())
    runs.landing.put("b", [Row(2, 12, 2), Row(3, 12, 2)])
    load(runs.warehouse, runs.stage())
    noted = query(runs.warehouse, "SELECT snapshot_id FROM retail.main.ingest_runs ORDER BY run_at")
    then = [
        query(runs.warehouse, f"SELECT count(*) FROM retail.main.events AT (VERSION => {number})")
        for (number,) in noted
    ]
    assert then == [[(2,)], [(3,)]]
    assert table(runs.warehouse) == {1: (10, 1), 2: (12, 2), 3: (12, 2)}
