"""A row is there once, in its newest version, whatever order it came in."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import pytest

from landfall.dataset import OnSchemaChange
from landfall.errors import ConfigError, ContractError, ManifestError
from landfall.ledger import RunStatus
from landfall.load import LoadRequest, LoadResult, load
from landfall.manifest import Manifest
from tests.loading import SharedWarehouse
from tests.upserting import EVENTS, MemoryWarehouse, Row, Runs, events, query, table

LEDGER = (
    "SELECT row_count, rows_inserted, rows_updated, rows_late, total_rows, watermark "
    "FROM retail.main.ingest_runs ORDER BY run_at DESC LIMIT 1"
)


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Runs]:
    warehouse = MemoryWarehouse(tmp_path)
    yield Runs(tmp_path / "stage", warehouse, events(overlap=5))
    warehouse.close()


def run(runs: Runs, **conf: Any) -> LoadResult:
    return load(runs.warehouse, runs.stage(conf))


def watermark(runs: Runs) -> Any:
    return query(runs.warehouse, "SELECT last_watermark FROM retail.main.ingestion_watermarks")


def test_rows_are_inserted_then_updated_by_their_key(runs: Runs) -> None:
    runs.landing.put("a", [Row(1, 10, 1), Row(2, 11, 1)])
    first = run(runs)
    assert first.counts is not None
    assert (first.row_count, first.counts.inserted, first.watermark) == (2, 2, "11")
    runs.landing.put("b", [Row(2, 12, 2), Row(3, 12, 2)])
    second = run(runs)
    assert second.counts is not None
    assert (second.counts.inserted, second.counts.updated, second.counts.total) == (1, 1, 3)
    assert table(runs.warehouse) == {1: (10, 1), 2: (12, 2), 3: (12, 2)}
    assert query(runs.warehouse, LEDGER) == [(2, 1, 1, 0, 3, "12")]


def test_the_table_has_the_key_as_its_primary_key(runs: Runs) -> None:
    runs.landing.put("a", [Row(1, 10, 1)])
    run(runs)
    found = query(
        runs.warehouse,
        "SELECT constraint_column_names FROM duckdb_constraints() "
        "WHERE table_name = 'events' AND constraint_type = 'PRIMARY KEY'",
    )
    assert found == [(["id"],)]


def test_a_second_run_opens_nothing_loads_nothing_and_says_so(runs: Runs) -> None:
    runs.landing.put("a", [Row(1, 10, 1)])
    run(runs)
    assert runs.reading().files == ()
    assert run(runs).row_count == 0
    assert query(runs.warehouse, LEDGER) == [(0, 0, 0, 0, 1, "10")]


def test_an_older_row_never_replaces_a_newer_one(runs: Runs) -> None:
    runs.landing.put("a", [Row(1, 10, 1)])
    run(runs)
    runs.landing.put("b", [Row(1, 9, 2)])
    counts = run(runs).counts
    assert counts is not None
    assert (counts.inserted, counts.updated, counts.unchanged) == (0, 0, 1)
    assert table(runs.warehouse) == {1: (10, 1)}


def test_of_equally_new_rows_the_one_that_landed_last_stays(runs: Runs) -> None:
    runs.landing.put("b", [Row(1, 10, 1)])
    run(runs)
    runs.landing.put("a", [Row(1, 10, 2)])
    run(runs)
    assert table(runs.warehouse) == {1: (10, 2)}


def test_a_late_row_is_counted_and_loaded(runs: Runs) -> None:
    runs.landing.put("a", [Row(1, 10, 1)])
    run(runs)
    runs.landing.put("b", [Row(2, 4, 1), Row(3, 5, 1)])
    run(runs)
    assert sorted(table(runs.warehouse)) == [1, 2, 3]
    assert query(runs.warehouse, LEDGER) == [(2, 2, 0, 1, 3, "10")]


def test_a_late_row_can_be_rejected_and_is_kept_with_the_reason(runs: Runs) -> None:
    runs.dataset = events(overlap=5, late="reject")
    runs.landing.put("a", [Row(1, 10, 1)])
    run(runs)
    runs.landing.put("b", [Row(2, 4, 7)])
    request = runs.stage()
    load(runs.warehouse, request)
    load(runs.warehouse, request)  # again: the reject is there once
    assert sorted(table(runs.warehouse)) == [1]
    kept = query(
        runs.warehouse,
        "SELECT destination_table, reason, source_file, row_json::JSON->>'value' "
        "FROM retail.main.ingest_rejects",
    )
    assert kept == [(EVENTS.text, "late", "b", "7")]
    assert run(runs, **{"from": 4, "until": 5}).row_count == 1  # a replay of the range brings it in
    assert table(runs.warehouse)[2] == (4, 7)


@pytest.mark.parametrize(("on_null", "loaded"), [("load", [1, 2]), ("reject", [1])])
def test_a_row_without_watermark_is_loaded_or_kept(
    runs: Runs, on_null: str, loaded: list[int]
) -> None:
    runs.dataset = events(on_null=on_null)
    runs.landing.put("a", [Row(1, 10, 1), Row(2, None, 1)])
    run(runs)
    assert sorted(table(runs.warehouse)) == loaded
    rejected = query(runs.warehouse, "SELECT count(*) FROM retail.main.ingest_rejects")
    assert rejected == [(2 - len(loaded),)]


def test_a_row_without_watermark_never_replaces_one_that_has_it(runs: Runs) -> None:
    runs.dataset = events(on_null="load")
    runs.landing.put("a", [Row(1, None, 1)])
    run(runs)
    runs.landing.put("b", [Row(1, None, 2)])
    run(runs)
    assert table(runs.warehouse) == {1: (None, 2)}
    runs.landing.put("c", [Row(1, 10, 3)])
    runs.landing.put("d", [Row(1, None, 4)])
    run(runs)
    runs.landing.put("e", [Row(1, None, 5)])
    run(runs)
    assert table(runs.warehouse) == {1: (10, 3)}


def test_a_deletion_removes_the_row_and_an_older_one_stays_away(runs: Runs) -> None:
    runs.landing.put("a", [Row(1, 10, 1), Row(2, 10, 1)])
    run(runs)
    runs.landing.put("b", [Row(1, 12, 0, gone=True)])
    deleted = run(runs)
    assert (deleted.rows_deleted, deleted.row_count, deleted.watermark) == (1, 0, "12")
    runs.landing.put("c", [Row(1, 11, 3)])
    run(runs)
    assert run(runs, **{"from": 10, "until": 11}).row_count == 1  # id 2 alone
    assert table(runs.warehouse) == {2: (10, 1)}
    runs.landing.put("d", [Row(1, 13, 4)])
    run(runs)
    assert table(runs.warehouse) == {1: (13, 4), 2: (10, 1)}


def test_a_deletion_older_than_the_row_leaves_it(runs: Runs) -> None:
    runs.landing.put("a", [Row(1, 10, 1)])
    run(runs)
    runs.landing.put("b", [Row(1, 9, 0, gone=True)])
    assert run(runs).rows_deleted == 0
    assert table(runs.warehouse) == {1: (10, 1)}


def test_a_deletion_can_be_the_first_thing_that_comes(runs: Runs) -> None:
    runs.landing.put("a", [Row(1, 10, 0, gone=True)])
    assert run(runs).watermark == "10"
    runs.landing.put("b", [Row(1, 9, 1)])
    run(runs)
    assert table(runs.warehouse) == {}


def test_a_cap_leaves_the_rest_for_a_run_without_it(runs: Runs) -> None:
    runs.landing.put("a", [Row(1, 10, 1), Row(2, 20, 1)])
    assert (run(runs, until=15).row_count, watermark(runs)) == (1, [("10",)])
    assert runs.reading({"until": 15}).files == ()
    assert runs.reading({"until": 12}).files == ()
    assert [file.read_until for file in runs.reading().files] == ["15"]
    assert (run(runs).row_count, watermark(runs)) == (1, [("20",)])
    assert runs.reading().files == ()


def test_the_conf_takes_the_cap_of_the_dataset_away(runs: Runs) -> None:
    runs.dataset = events(until=15)
    runs.landing.put("a", [Row(1, 10, 1), Row(2, 20, 1)])
    assert run(runs).row_count == 1
    assert run(runs, until=None).row_count == 1


def test_a_replay_leaves_the_watermark_and_opens_only_files_of_its_range(runs: Runs) -> None:
    for n in range(1, 6):
        runs.landing.put(f"f{n}", [Row(n, n * 10, 1)])
    run(runs)
    conf = {"from": 20, "until": 40}
    assert [file.key for file in runs.reading(conf).files] == ["f2", "f3"]
    replayed = run(runs, **conf)
    assert replayed.counts is not None
    assert (replayed.row_count, replayed.counts.updated) == (2, 2)
    assert watermark(runs) == [("50",)]


def test_a_replay_before_anything_was_loaded_moves_nothing(runs: Runs) -> None:
    runs.landing.put("a", [Row(1, 10, 1), Row(2, 20, 1)])
    assert run(runs, **{"from": 15}).row_count == 1
    assert watermark(runs) == [(None,)]
    assert run(runs).row_count == 2
    assert watermark(runs) == [("20",)]


def test_the_watermark_never_moves_backward_whatever_order_runs_end_in(runs: Runs) -> None:
    runs.landing.put("a", [Row(1, 10, 1)])
    older = runs.stage()
    runs.landing.put("b", [Row(1, 20, 2)])
    newer = runs.stage()
    load(runs.warehouse, newer)
    load(runs.warehouse, older)
    assert watermark(runs) == [("20",)]
    assert table(runs.warehouse) == {1: (20, 2)}


def test_an_older_look_does_not_bring_back_what_was_rewritten(runs: Runs) -> None:
    runs.landing.put("a", [Row(1, 10, 1)])
    older = runs.stage()
    runs.landing.put("a", [Row(1, 10, 2)])
    newer = runs.stage()
    load(runs.warehouse, newer)
    load(runs.warehouse, older)
    assert table(runs.warehouse) == {1: (10, 2)}
    assert runs.reading().files == ()


def test_a_file_rewritten_in_place_is_read_anew(runs: Runs) -> None:
    runs.landing.put("a", [Row(1, 10, 1), Row(2, 20, 1)])
    run(runs)
    runs.landing.put("a", [Row(1, 10, 5), Row(2, 20, 1), Row(3, 21, 1)])
    assert run(runs).row_count == 3
    assert table(runs.warehouse)[1] == (10, 5)


def test_a_thousand_runs_of_history_do_not_change_what_a_run_opens(runs: Runs) -> None:
    runs.landing.put("f0", [Row(0, 0, 0)])
    run(runs)
    runs.landing.put("new", [Row(1, 10**6, 1)])
    with_one = runs.reading().files
    del runs.landing.files["new"]
    for n in range(1, 1000):
        runs.landing.put(f"f{n}", [Row(n, n, n)])
    _history(runs)
    runs.landing.put("new", [Row(1, 10**6, 1)])
    with_thousand = runs.reading()
    assert [file.key for file in with_one] == ["new"]
    assert [file.key for file in with_thousand.files] == ["new"]
    assert with_thousand.listed == 1001


def _history(runs: Runs) -> None:
    """One run for each file, as 999 loads would leave them in the file history."""
    from datetime import timedelta

    from landfall import ledger
    from landfall.manifest import StagedSource
    from landfall.run_rows import partition_state

    manifest = runs.stage().manifest
    with runs.warehouse.connect("retail") as con, runs.warehouse.transaction(con):
        for n, source in enumerate(manifest.sources):
            assert isinstance(source, StagedSource)
            state = partition_state(EVENTS, manifest, f"run-{n}", "stage")
            later = state.staged_at + timedelta(seconds=n)
            ledger.record_files(con, EVENTS, replace(state, staged_at=later), [source])


def test_a_column_that_the_stage_lacks_keeps_its_values(runs: Runs) -> None:
    runs.landing.put("a", [Row(1, 10, 1)])
    run(runs)
    with runs.warehouse.connect("retail") as con:
        con.execute("ALTER TABLE retail.main.events ADD COLUMN note VARCHAR")
        con.execute("UPDATE retail.main.events SET note = 'mine'")
    runs.landing.put("b", [Row(1, 11, 2)])
    run(runs)
    assert query(runs.warehouse, "FROM retail.main.events") == [(1, 11, 2, "mine")]


def refused(runs: Runs, kind: type[Exception], match: str) -> None:
    with pytest.raises(kind, match=match):
        load(runs.warehouse, runs.stage())


def test_a_changed_key_is_refused(runs: Runs) -> None:
    runs.landing.put("a", [Row(1, 10, 1)])
    run(runs)
    load_section = runs.dataset.load.model_copy(update={"key": ["id", "value"]})
    runs.dataset = runs.dataset.model_copy(update={"load": load_section})
    refused(runs, ContractError, r"PRIMARY KEY is \(id\), load.key is \(id, value\)")


def test_a_table_without_a_key_is_refused_with_the_statement_that_adds_it(runs: Runs) -> None:
    with runs.warehouse.connect("retail") as con:
        con.execute('CREATE TABLE retail.main.events (id BIGINT, "at" BIGINT, value BIGINT)')
    runs.landing.put("a", [Row(1, 10, 1)])
    refused(runs, ContractError, r"ALTER TABLE retail.main.events ADD PRIMARY KEY \(id\)")
    with runs.warehouse.connect("retail") as con:
        con.execute("ALTER TABLE retail.main.events ADD PRIMARY KEY (id)")
    assert run(runs).row_count == 1


def test_a_table_without_the_watermark_column_is_refused(runs: Runs) -> None:
    with runs.warehouse.connect("retail") as con:
        con.execute("CREATE TABLE retail.main.events (id BIGINT PRIMARY KEY, value BIGINT)")
    runs.landing.put("a", [Row(1, 10, 1)])
    request = replace(runs.stage(), on_schema_change=OnSchemaChange.DISCARD)
    with pytest.raises(ContractError, match="the table has no column 'at'"):
        load(runs.warehouse, request)
    assert run(runs).row_count == 1  # evolve adds it


def test_a_watermark_of_another_type_than_stored_is_refused(runs: Runs) -> None:
    runs.landing.put("a", [Row(1, 10, 1)])
    run(runs)
    runs.landing.put("b", [Row(1, 11, 1)])
    request = runs.stage()
    assert request.manifest.upsert is not None
    other = replace(request.manifest.upsert, kind="timestamp", reached="2022-11-01 00:00:00")
    with pytest.raises(ContractError, match="'at' is timestamp, but the stored one integer"):
        load(runs.warehouse, replace(request, manifest=replace(request.manifest, upsert=other)))
    assert watermark(runs) == [("10",)]


def test_a_changed_watermark_column_is_refused(runs: Runs) -> None:
    runs.landing.put("a", [Row(1, 10, 1)])
    run(runs)
    runs.dataset = events(column="value")
    refused(runs, ContractError, "is of the column 'at', not 'value'")


def test_a_watermark_whose_table_is_gone_is_refused_until_it_is_deleted(runs: Runs) -> None:
    runs.landing.put("a", [Row(1, 10, 1)])
    run(runs)
    with runs.warehouse.connect("retail") as con:
        con.execute("DROP TABLE retail.main.events")
    refused(runs, ContractError, "the table is gone")
    with runs.warehouse.connect("retail") as con:
        con.execute("DELETE FROM retail.main.ingestion_watermarks")
    assert run(runs).row_count == 1


def test_a_watermark_of_another_table_is_refused(runs: Runs) -> None:
    runs.landing.put("a", [Row(1, 10, 1)])
    run(runs)
    load_section = runs.dataset.load.model_copy(update={"destination": "retail.main.other"})
    runs.dataset = runs.dataset.model_copy(update={"load": load_section})
    refused(runs, ContractError, "belongs to the table retail.main.events")


@pytest.mark.parametrize(
    ("conf", "said"),
    [
        ({"until": "soon"}, "conf.until: 'soon' is not a valid integer"),
        ({"until": ["1"]}, "conf.until"),
        ({"from": True}, "conf.from"),
        ({"from": 7, "until": 7}, "the range from 7 until 7 is empty"),
    ],
)
def test_a_conf_that_names_no_range_is_refused(runs: Runs, conf: Any, said: str) -> None:
    runs.landing.put("a", [Row(1, 10, 1)])
    run(runs)
    with pytest.raises(ConfigError, match=said):
        runs.stage(conf)


def test_a_key_that_is_staged_twice_is_refused(runs: Runs) -> None:
    runs.landing.put("a", [Row(1, 10, 1), Row(2, 10, 1)])
    request = runs.stage()
    file = request.manifest.staged[0]
    twice = replace(request.manifest, staged=(file, file), rows_staged=4, rows_read=4)
    with pytest.raises(ContractError, match="2 of the 4 staged rows have a key"):
        load(runs.warehouse, replace(request, manifest=twice))
    assert table(runs.warehouse) == {}


def test_files_that_hold_other_rows_than_promised_are_refused(runs: Runs) -> None:
    runs.landing.put("a", [Row(1, 10, 1), Row(2, 10, 1)])
    request = runs.stage()
    file = replace(request.manifest.staged[0], rows=3)
    more = replace(request.manifest, staged=(file,), rows_staged=3, rows_read=3)
    with pytest.raises(ManifestError, match="hold 2 rows, the manifest says 3"):
        load(runs.warehouse, replace(request, manifest=more))


def test_the_manifest_survives_its_json(runs: Runs) -> None:
    runs.dataset = events(overlap=5, late="reject", on_null="reject")
    runs.landing.put("a", [Row(1, 10, 1), Row(2, None, 1), Row(3, 9, 1, gone=True)])
    manifest = runs.stage().manifest
    assert Manifest.from_json(manifest.to_json(), where="here") == manifest


def test_a_guides_own_table_of_watermarks_is_taken_over(runs: Runs) -> None:
    with runs.warehouse.connect("retail") as con:
        con.execute(
            "CREATE TABLE retail.main.ingestion_watermarks "
            "(pipeline_name VARCHAR PRIMARY KEY, last_pickup_at TIMESTAMP)"
        )
        con.execute("INSERT INTO retail.main.ingestion_watermarks VALUES ('other', '2022-11-01')")
    runs.landing.put("a", [Row(1, 10, 1)])
    run(runs)
    found = query(
        runs.warehouse,
        "SELECT pipeline_name, last_pickup_at IS NULL, last_watermark "
        "FROM retail.main.ingestion_watermarks ORDER BY 1",
    )
    assert found == [("events", True, "10"), ("other", False, None)]


@pytest.mark.parametrize("number", range(3))
def test_two_runs_at_once_leave_each_row_once(tmp_path: Path, number: int) -> None:
    warehouse = SharedWarehouse(tmp_path / "warehouse")
    runs = Runs(tmp_path / "stage", warehouse, events())
    runs.landing.put("a", [Row(n, n, 1) for n in range(300)])
    requests = [runs.stage(), runs.stage()]
    barrier = Barrier(2)
    failures: list[BaseException] = []

    def start(request: LoadRequest) -> None:
        barrier.wait()
        try:
            load(warehouse, request, sleep=lambda pause: time.sleep(pause / 10))
        except BaseException as error:
            failures.append(error)

    with warehouse.closing():
        threads = [Thread(target=start, args=(request,)) for request in requests]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert len(table(warehouse)) == 300
        ended = query(warehouse, "SELECT status FROM retail.main.ingest_runs")
        assert ended == [(RunStatus.LOADED,)] * 2
