"""The dry run says what a run would do, and touches nothing."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from landfall import plan as planning
from tests.commands import Commands, Output
from tests.loading import Stage, rows, table

pytestmark = pytest.mark.slow  # connections come from Airflow

DAY = "2026-02-11"
PLAN = ("plan", "retail_transactions", DAY)


def planned(commands: Commands, *more: str) -> dict[str, Any]:
    output = commands.run(*PLAN, "--json", *more)
    assert output.code == 0, output.text
    document: dict[str, Any] = output.json
    return document


def disk(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def objects(commands: Commands) -> list[tuple[Any, ...]]:
    listed = [commands.s3.list_objects_v2(Bucket=bucket) for bucket in ("landing", "stage")]
    found = [entry for listing in listed for entry in listing.get("Contents", [])]
    return [(entry["Key"], entry["ETag"], entry["LastModified"]) for entry in found]


def test_exactly_the_partitions_files_are_read(commands: Commands) -> None:
    size = commands.land_day()
    commands.land_day("2026-02-10")
    commands.put(f"region=MW/date={DAY}/_SUCCESS", b"")
    commands.put(f"region=MW/date={DAY}/notes.txt", b"no Parquet")
    plan = planned(commands)
    assert [file["key"] for file in plan["files"]] == [
        f"{commands.prefix}/region={region}/date={DAY}/batch_1.parquet" for region in ("MW", "NE")
    ]
    assert plan["bytes"] == sum(file["size"] for file in plan["files"]) == size


def test_the_partitions_rows_would_be_deleted(commands: Commands) -> None:
    commands.land_day()
    commands.load_day("2026-02-10", rows("2026-02-10", rows=4))
    commands.load_day()
    assert planned(commands)["rows_deleted"] == 10


def test_a_conf_names_another_partition(commands: Commands) -> None:
    commands.land_day("2026-02-10")
    plan = planned(commands, "--conf", '{"partition": {"date": "2026-02-10"}}')
    assert plan["partition"] == "date=2026-02-10"
    assert len(plan["files"]) == 2


def test_what_changes_in_the_schema_is_said(commands: Commands) -> None:
    commands.land_day(query="SELECT 1::BIGINT AS id, 'x' AS note")
    commands.load_day()
    assert planned(commands)["schema_changes"] == [
        "new column note VARCHAR",
        "amount is missing in the files: NULL",
    ]


def test_files_like_the_table_change_nothing(commands: Commands) -> None:
    commands.land_day()
    commands.load_day()
    assert planned(commands)["schema_changes"] == []
    assert "schema no change" in commands.run(*PLAN).text


@pytest.mark.parametrize("exists", [True, False])
def test_the_statements_are_those_that_load_it(commands: Commands, exists: bool) -> None:
    commands.land_day(query=f"SELECT id, amount, 'x' AS note FROM ({rows()})")
    if exists:
        commands.load_day(query=rows(factor=5))
    statements = planned(commands)["statements"]
    wider = f"SELECT *, 'x' AS note FROM ({rows(rows=7)})"
    request = Stage(commands.home / "other").request(wider)
    with commands.warehouse.connect("retail") as con:
        for statement in statements:
            con.execute(statement.replace("<the staged files>", request.manifest.staged[0].uri))
    by_hand = table(commands.warehouse)
    commands.load_day(query=wider)
    assert by_hand == table(commands.warehouse)


def test_nothing_is_touched(commands: Commands) -> None:
    commands.land_day(query="SELECT 1::BIGINT AS id, 'x' AS note")
    commands.load_day()
    before = disk(commands.home), objects(commands)
    assert "Nothing was touched." in commands.run(*PLAN).out
    assert (disk(commands.home), objects(commands)) == before


def test_a_database_that_does_not_exist_is_not_made(commands: Commands) -> None:
    commands.land_day()
    output = commands.run(*PLAN)
    assert "deletes nothing: no table yet" in output.text
    assert "CREATE TABLE" in output.out
    assert not (commands.home / "warehouse").exists()


def test_without_a_source_file_nothing_would_be_deleted(commands: Commands) -> None:
    commands.land_day("2026-02-10")
    commands.load_day()
    plan = planned(commands)
    assert (plan["files"], plan["rows_deleted"], plan["statements"]) == ([], 0, [])
    assert "nothing: without a source file the run ends skipped" in commands.run(*PLAN).text


def test_what_the_run_would_wait_for_is_said(commands: Commands) -> None:
    commands.dataset(source="ready: {marker: _SUCCESS}")
    commands.land_day()
    assert "the marker _SUCCESS is missing in" in planned(commands)["waits_for"]


def test_a_type_that_does_not_fit_the_table_is_refused(commands: Commands) -> None:
    commands.land_day(query="SELECT 'text' AS id")
    commands.load_day()
    output = commands.run(*PLAN)
    assert output.code == 1
    assert "id: BIGINT here, VARCHAR there" in output.text
    assert "deletes nothing: the load would be refused" in output.text
    assert "refused retail.main.transactions: column 'id' is BIGINT in the table" in output.text
    assert "DELETE" not in output.out


def refused(output: Output) -> str:
    """The one message of a command that could not do its work."""
    assert output.code == 1
    assert output.out == ""
    assert output.err.startswith("landfall: ")
    assert output.err.count("\n") == 1
    assert " Fix: " in output.err
    return output.err


def test_a_missing_bucket_is_named(commands: Commands) -> None:
    commands.dataset("s3://nowhere/sales")
    assert "s3://nowhere: the bucket does not exist." in refused(commands.run(*PLAN))


def test_wrong_keys_are_named_and_not_shown(commands: Commands) -> None:
    extra = {"endpoint_url": commands.server.endpoint, "region_name": "us-east-1"}
    commands.connection(
        "aws_default", conn_type="aws", login="wrong", password="hunter2", extra=extra
    )
    message = refused(commands.run(*PLAN))
    assert "S3 refuses the credentials" in message
    assert "check the keys of the Airflow connection 'aws_default'" in message
    assert "hunter2" not in message


def test_a_missing_connection_is_named(commands: Commands) -> None:
    commands.dataset(source="connection: aws_elsewhere")
    message = refused(commands.run(*PLAN))
    assert "the Airflow connection 'aws_elsewhere' does not exist" in message


def test_a_file_that_is_no_parquet_is_named(commands: Commands) -> None:
    commands.land_day()
    commands.put(f"region=SW/date={DAY}/broken.parquet", b"not Parquet at all, but long enough")
    assert "region=SW/date=2026-02-11/broken.parquet" in refused(commands.run(*PLAN))


def test_a_conf_with_an_unknown_key_is_refused(commands: Commands) -> None:
    message = refused(commands.run(*PLAN, "--conf", '{"partition": {"dat": "2026-02-10"}}'))
    assert "'dat' is no partition key" in message


def test_a_value_of_the_wrong_type_is_refused(commands: Commands) -> None:
    message = refused(commands.run(*PLAN, "--conf", '{"partition": {"date": "yesterday"}}'))
    assert "yesterday" in message


def test_a_template_that_only_airflow_renders_is_named(commands: Commands) -> None:
    file = commands.home / "datasets" / "retail_transactions.yaml"
    file.write_text(file.read_text().replace("{{ ds }}", "{{ macros.ds_add(ds, -1) }}"))
    commands.land_day("2026-02-10")
    assert "'macros' is undefined" in refused(commands.run(*PLAN))
    assert planned(commands, "--conf", '{"partition": {"date": "2026-02-10"}}')["bytes"] > 0


def test_a_database_that_another_process_holds_is_named(
    commands: Commands, holder: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "LOCK_SECONDS", 0.1)
    commands.land_day()
    assert f"process {holder} holds the file" in refused(commands.run(*PLAN))


def test_no_output_shows_a_secret(commands: Commands) -> None:
    commands.land_day()
    shown = commands.run(*PLAN).text + commands.run(*PLAN, "--json").text
    assert commands.server.secret_key not in shown
