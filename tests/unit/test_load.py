"""Asked twice, a load gives the same table; another partition never changes."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import pytest

from landfall.dataset import OnSchemaChange
from landfall.errors import ContractError, LandfallError, ManifestError
from landfall.ledger import RunStatus
from landfall.load import load
from landfall.manifest import Column
from landfall.sql import Destination
from landfall.warehouse.duckdb import DuckDBWarehouse
from tests.loading import DESTINATION, SharedWarehouse, Stage, fetch, rows, runs, states, table

OTHER_DAY = {"region": "*", "date": "2026-02-10"}


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path / "stage")


@pytest.fixture
def warehouse(tmp_path: Path) -> DuckDBWarehouse:
    return DuckDBWarehouse(tmp_path / "warehouse", lock_timeout=0.5)


def test_the_first_load_creates_database_schema_and_table(
    stage: Stage, warehouse: DuckDBWarehouse
) -> None:
    to = Destination("retail", "sales", "transactions")
    result = load(warehouse, stage.request(rows(), destination=to))
    assert (result.status, result.row_count, result.rows_deleted) == (RunStatus.LOADED, 10, 0)
    assert fetch(warehouse, "SELECT count(*) FROM retail.sales.transactions") == [(10,)]


def test_a_reload_gives_an_identical_table_and_a_second_ledger_row(
    stage: Stage, warehouse: DuckDBWarehouse
) -> None:
    request = stage.request(rows())
    load(warehouse, request)
    before = table(warehouse)
    assert load(warehouse, request).rows_deleted == 10
    assert table(warehouse) == before
    assert [run.status for run in runs(warehouse)] == [RunStatus.LOADED] * 2
    assert len(states(warehouse)) == 1


def test_other_partitions_stay_as_they_were(stage: Stage, warehouse: DuckDBWarehouse) -> None:
    load(warehouse, stage.request(rows("2026-02-10"), partition=OTHER_DAY))
    before = table(warehouse, "date = '2026-02-10'")
    load(warehouse, stage.request(rows()))
    load(warehouse, stage.request(rows(factor=7, rows=4), staged_at="2026-02-13T00:00:00+00:00"))
    assert table(warehouse, "date = '2026-02-10'") == before
    assert len(table(warehouse, "date = '2026-02-11'")) == 4


def test_the_ledger_row_says_what_was_read_and_loaded(
    stage: Stage, warehouse: DuckDBWarehouse
) -> None:
    result = load(warehouse, stage.request(rows()))
    (row,) = runs(warehouse)
    assert row.run_id == result.run_id
    assert row.source_glob == "s3://landing/transactions/region=*/date=2026-02-11/*.parquet"
    assert (row.destination_table, row.partition_column) == ("retail.main.transactions", "date")
    assert (row.load_partition, row.row_count, row.rows_read) == ("2026-02-11", 10, 13)
    assert (row.files, row.bytes, row.mode, row.error) == (1, 100, "replace", None)


def test_an_older_stage_never_replaces_a_newer_one(
    stage: Stage, warehouse: DuckDBWarehouse
) -> None:
    load(warehouse, stage.request(rows(factor=2), staged_at="2026-02-12T08:00:00+00:00"))
    before = table(warehouse), states(warehouse)
    older = stage.request(rows(factor=1), staged_at="2026-02-12T07:59:59.999999+00:00")
    result = load(warehouse, older)
    assert result.status is RunStatus.SUPERSEDED
    assert result.superseded_attempts == (older.attempt_uri,)
    assert (table(warehouse), states(warehouse)) == before
    assert runs(warehouse)[0].status is RunStatus.SUPERSEDED


def test_a_load_names_the_attempt_that_it_supersedes(
    stage: Stage, warehouse: DuckDBWarehouse
) -> None:
    first = stage.request(rows())
    assert load(warehouse, first).superseded_attempts == ()
    assert load(warehouse, first).superseded_attempts == ()
    newer = stage.request(rows(), staged_at="2026-02-13T00:00:00+00:00")
    assert load(warehouse, newer).superseded_attempts == (first.attempt_uri,)


@pytest.mark.parametrize("number", range(3))
def test_two_first_loads_at_once_leave_each_row_once(
    stage: Stage, tmp_path: Path, number: int
) -> None:
    warehouse = SharedWarehouse(tmp_path / "warehouse")
    requests = [stage.request(rows(rows=500)), stage.request(rows(rows=500))]
    barrier = Barrier(2)
    failures: list[BaseException] = []

    def run(request: Any) -> None:
        barrier.wait()
        try:
            load(warehouse, request, sleep=lambda pause: time.sleep(pause / 10))
        except BaseException as error:
            failures.append(error)

    with warehouse.closing():
        threads = [Thread(target=run, args=(request,)) for request in requests]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert len(table(warehouse)) == 500
        assert [run.status for run in runs(warehouse)] == [RunStatus.LOADED] * 2


@pytest.mark.parametrize(
    ("partition", "types", "query"),
    [
        ({"year": "2024"}, {"year": "integer"}, "SELECT 2024 AS year, 1 AS n"),
        ({"date": "2026-02-11"}, {"date": "date"}, "SELECT DATE '2026-02-11' AS date, 1 AS n"),
        ({"region": "01"}, {}, "SELECT '01' AS region, 1 AS n"),
        ({"region": "a/b 'c'"}, {}, "SELECT 'a/b ''c''' AS region, 1 AS n"),
        ({"ok": "true"}, {"ok": "boolean"}, "SELECT true AS ok, 1 AS n"),
        ({"d": "1.5"}, {"d": "double"}, "SELECT 1.5::DOUBLE AS d, 1 AS n"),
        (
            {"at": "2026-02-11 05:00:00"},
            {"at": "timestamp"},
            "SELECT TIMESTAMP '2026-02-11 05:00:00' AS at, 1 AS n",
        ),
        ({"region": "__HIVE_DEFAULT_PARTITION__"}, {}, "SELECT NULL::VARCHAR AS region, 1 AS n"),
        (
            {"year": "2024", "month": "09"},
            {"year": "integer"},
            "SELECT 2024 AS year, '09' AS month, 1 AS n",
        ),
        ({"region": ["MW", "NE"]}, {}, "SELECT unnest(['MW', 'NE']) AS region, 1 AS n"),
        ({}, {}, "SELECT 1 AS n"),
    ],
)
def test_partitions_of_every_kind_are_replaced(
    stage: Stage, warehouse: DuckDBWarehouse, partition: Any, types: Any, query: str
) -> None:
    request = stage.request(query, partition=partition, types=types)
    load(warehouse, request)
    before = table(warehouse)
    again = load(warehouse, request)
    assert again.rows_deleted == again.row_count == len(before)
    assert table(warehouse) == before


def test_a_value_is_replaced_without_its_neighbours(
    stage: Stage, warehouse: DuckDBWarehouse
) -> None:
    for region in ("'01'", "'1'", "NULL::VARCHAR", "'NULL'"):
        value = region.strip("'") if "VARCHAR" not in region else "__HIVE_DEFAULT_PARTITION__"
        request = stage.request(f"SELECT {region} AS region", partition={"region": value})
        load(warehouse, request)
        load(warehouse, request)
    assert sorted(str(row[0]) for row in table(warehouse)) == ["01", "1", "NULL", "None"]
    assert len(states(warehouse)) == 4


def test_column_names_of_any_text_arrive(stage: Stage, warehouse: DuckDBWarehouse) -> None:
    query = 'SELECT DATE \'2026-02-11\' AS date, 1 AS "a b", 2 AS "c.d", 3 AS "e""f", 4 AS "select"'
    request = stage.request(query)
    load(warehouse, request)
    load(warehouse, request)
    names = fetch(
        warehouse,
        "SELECT column_name FROM duckdb_columns() WHERE column_index > 0 "
        "AND table_name = 'transactions' ORDER BY column_index",
    )
    assert [name for (name,) in names] == ["date", "a b", "c.d", 'e"f', "select"]


def test_columns_are_matched_by_name_and_not_by_place(
    stage: Stage, warehouse: DuckDBWarehouse
) -> None:
    load(warehouse, stage.request("SELECT DATE '2026-02-11' AS date, 1 AS a, 2 AS b"))
    load(warehouse, stage.request("SELECT 4 AS b, 3 AS a, DATE '2026-02-11' AS date"))
    assert fetch(warehouse, "SELECT a, b FROM retail.main.transactions") == [(3, 4)]


def test_files_with_different_columns_are_read_as_one(
    stage: Stage, warehouse: DuckDBWarehouse
) -> None:
    day = "SELECT DATE '2026-02-11' AS date"
    load(warehouse, stage.request(f"{day}, 1 AS a", f"{day}, 2 AS b"))
    found = fetch(warehouse, "SELECT a, b FROM retail.main.transactions ORDER BY a")
    assert found == [(1, None), (None, 2)]


def test_evolve_adds_a_column_at_the_end(stage: Stage, warehouse: DuckDBWarehouse) -> None:
    load(warehouse, stage.request(rows("2026-02-10"), partition=OTHER_DAY))
    added = load(warehouse, stage.request(f"SELECT 'x' AS note, 1.5 AS \"a b\", * FROM ({rows()})"))
    assert added.columns_added == ("note", "a b")
    assert {row[4:] for row in table(warehouse, "date = '2026-02-10'")} == {(None, None)}
    assert {row[4] for row in table(warehouse, "date = '2026-02-11'")} == {"x"}


def test_freeze_refuses_a_new_column_and_changes_nothing(
    stage: Stage, warehouse: DuckDBWarehouse
) -> None:
    load(warehouse, stage.request(rows()))
    before = table(warehouse), states(warehouse)
    new = stage.request(f"SELECT *, 1 AS n FROM ({rows()})", policy=OnSchemaChange.FREEZE)
    with pytest.raises(ContractError, match="'n'"):
        load(warehouse, new)
    assert (table(warehouse), states(warehouse)) == before
    assert runs(warehouse)[0].status is RunStatus.FAILED


def test_discard_leaves_a_new_column_out(stage: Stage, warehouse: DuckDBWarehouse) -> None:
    load(warehouse, stage.request(rows()))
    before = table(warehouse)
    load(
        warehouse,
        stage.request(f"SELECT *, 1 AS n FROM ({rows()})", policy=OnSchemaChange.DISCARD),
    )
    assert table(warehouse) == before


def test_a_column_that_the_stage_lacks_is_null(stage: Stage, warehouse: DuckDBWarehouse) -> None:
    load(warehouse, stage.request(rows()))
    load(warehouse, stage.request("SELECT 1::BIGINT AS id, DATE '2026-02-11' AS date"))
    assert [row[3] for row in table(warehouse)] == [None]


def test_a_narrower_stage_type_is_cast(stage: Stage, warehouse: DuckDBWarehouse) -> None:
    load(warehouse, stage.request(rows()))
    load(warehouse, stage.request("SELECT 1::TINYINT AS id, DATE '2026-02-11' AS date"))
    assert fetch(warehouse, "SELECT id, typeof(id) FROM retail.main.transactions") == [
        (1, "BIGINT")
    ]


def test_a_destination_of_another_type_is_refused(stage: Stage, warehouse: DuckDBWarehouse) -> None:
    with warehouse.connect("retail") as con:
        con.execute("CREATE TABLE retail.main.transactions (id INTEGER, date VARCHAR)")
    with pytest.raises(ContractError) as refused:
        load(warehouse, stage.request("SELECT 1::INTEGER AS id, DATE '2026-02-11' AS date"))
    assert "'date' is VARCHAR in the table and DATE in the stage" in str(refused.value)
    assert refused.value.recorded
    (row,) = runs(warehouse)
    assert (row.status, row.row_count) == (RunStatus.FAILED, 0)
    assert row.error == str(refused.value)


def test_a_view_is_refused_as_destination(stage: Stage, warehouse: DuckDBWarehouse) -> None:
    with warehouse.connect("retail") as con:
        con.execute("CREATE VIEW retail.main.transactions AS SELECT 1 AS id")
    with pytest.raises(ContractError, match="view"):
        load(warehouse, stage.request(rows()))


def test_columns_that_differ_only_in_case_are_refused(
    stage: Stage, warehouse: DuckDBWarehouse
) -> None:
    both = (Column("date", "date"), Column("id", "int"), Column("ID", "int"))
    with pytest.raises(ContractError, match="'id' and 'ID'"):
        load(warehouse, stage.request(rows(), columns=both))


def test_no_row_left_is_refused_unless_allowed(stage: Stage, warehouse: DuckDBWarehouse) -> None:
    load(warehouse, stage.request(rows()))
    before = table(warehouse)
    with pytest.raises(ContractError, match="allow_empty"):
        load(warehouse, stage.request(rows(rows=0)))
    assert table(warehouse) == before
    result = load(warehouse, stage.request(rows(rows=0), allow_empty=True))
    assert (result.status, result.row_count, result.rows_deleted) == (RunStatus.LOADED, 0, 10)
    assert table(warehouse) == []


def test_an_empty_stage_without_files_needs_no_table(
    stage: Stage, warehouse: DuckDBWarehouse
) -> None:
    assert load(warehouse, stage.request(allow_empty=True)).status is RunStatus.LOADED
    load(warehouse, stage.request(rows()))
    assert load(warehouse, stage.request(allow_empty=True)).rows_deleted == 10


def test_sums_that_do_not_add_up_are_refused(stage: Stage, warehouse: DuckDBWarehouse) -> None:
    with pytest.raises(ManifestError, match="staged files hold 10 rows"):
        load(warehouse, stage.request(rows(), rows_staged=11))
    assert runs(warehouse)[0].status is RunStatus.FAILED


def test_a_staged_row_of_another_partition_is_refused(
    stage: Stage, warehouse: DuckDBWarehouse
) -> None:
    stray = stage.request(rows(), "SELECT 1 AS id, 'MW' AS region, DATE '2026-02-10' AS date")
    with pytest.raises(ManifestError, match="would hold 10 rows, the manifest says 11"):
        load(warehouse, stray)
    assert fetch(warehouse, "SELECT 1 FROM duckdb_tables() WHERE table_name = 'transactions'") == []


def test_the_partition_key_must_be_staged(stage: Stage, warehouse: DuckDBWarehouse) -> None:
    with pytest.raises(ContractError, match="'date'"):
        load(warehouse, stage.request("SELECT 1 AS id"))


def test_a_file_that_reads_as_a_pattern_is_refused(
    stage: Stage, warehouse: DuckDBWarehouse
) -> None:
    request = stage.request(rows())
    file = replace(request.manifest.staged[0], uri=f"{request.attempt_uri}/*.parquet")
    with pytest.raises(ManifestError, match="pattern"):
        load(warehouse, replace(request, manifest=replace(request.manifest, staged=(file,))))


@pytest.mark.parametrize("content", [b"", b"no parquet at all, but long enough", None])
def test_a_staged_file_that_cannot_be_read_is_refused(
    stage: Stage, warehouse: DuckDBWarehouse, content: bytes | None
) -> None:
    request = stage.request(rows())
    file = Path(request.manifest.staged[0].uri)
    file.unlink() if content is None else file.write_bytes(content)
    with pytest.raises(ManifestError, match="clear stage_partition"):
        load(warehouse, request)
    assert runs(warehouse)[0].status is RunStatus.FAILED


def test_every_type_arrives_as_it_was_staged(stage: Stage, warehouse: DuckDBWarehouse) -> None:
    query = (
        "SELECT DATE '2026-02-11' AS date, 1.25::DECIMAL(10,2) AS dec, "
        "{'x y': [1, 2], 'z': MAP {'k': 1}} AS nested, 'ab'::BLOB AS bin, "
        "TIMESTAMP '2026-02-11 01:02:03.456789' AS ts, 200::UTINYINT AS u8, 7::SMALLINT AS i16, "
        "TIMESTAMPTZ '2026-02-11 01:02:03+02' AS tz, NULL::VARCHAR AS nothing"
    )
    request = stage.request(query)
    load(warehouse, request)
    load(warehouse, request)
    same = (
        "SELECT count(*) FROM (SELECT * FROM retail.main.transactions INTERSECT "
        f"SELECT * FROM read_parquet('{request.manifest.staged[0].uri}'))"
    )
    assert fetch(warehouse, same) == [(1,)]


def test_a_ledger_of_another_name_is_used(stage: Stage, warehouse: DuckDBWarehouse) -> None:
    load(warehouse, stage.request(rows(), ledger="audit"))
    assert [run.status for run in runs(warehouse, "audit")] == [RunStatus.LOADED]


@pytest.mark.parametrize("name", ["x; DROP TABLE t", "ingest_files", "transactions"])
def test_a_hostile_or_taken_ledger_name_is_refused(
    stage: Stage, warehouse: DuckDBWarehouse, name: str
) -> None:
    with pytest.raises(LandfallError, match=name):
        load(warehouse, stage.request(rows(), ledger=name))
    assert fetch(warehouse, "SELECT 1 FROM duckdb_tables() WHERE database_name = 'retail'") == []


def test_the_file_history_grows_with_each_load(stage: Stage, warehouse: DuckDBWarehouse) -> None:
    first = load(warehouse, stage.request(rows()))
    second = load(warehouse, stage.request(rows()))
    with warehouse.connect("retail", read_only=True) as con:
        from landfall.ledger import file_history

        every = file_history(con, DESTINATION, "date=2026-02-11")
        one = file_history(con, DESTINATION, "date=2026-02-11", run_id=first.run_id)
    assert {file.run_id for file in every} == {first.run_id, second.run_id}
    assert [(file.key, file.size, file.etag) for file in one] == [
        ("transactions/a.parquet", 100, "e1")
    ]
