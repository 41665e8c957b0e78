"""Each finding of the doctor: what works, what to fix, and never a secret."""

from __future__ import annotations

from typing import Any

import pytest

from landfall import doctor
from tests.commands import Commands
from tests.faults.breaking import Refusal, in_child, obey_permissions

pytestmark = pytest.mark.slow  # connections come from Airflow

WAREHOUSE = "warehouse landfall_warehouse, database retail"


def findings(commands: Commands, code: int) -> dict[str, Any]:
    """The doctor's findings by their subject; no output holds a secret."""
    output = commands.run("doctor", "--json")
    assert output.code == code, output.text
    assert commands.server.secret_key not in output.text
    assert "hunter2" not in output.text
    return {finding["what"]: finding for finding in output.json}


def health(found: dict[str, Any]) -> dict[str, str]:
    return {what: finding["health"] for what, finding in found.items()}


def broken(found: dict[str, Any], what: str) -> str:
    """The finding in words, where nothing else is broken."""
    assert [name for name, one in health(found).items() if one == "broken"] == [what]
    assert found[what]["fix"]
    return f"{found[what]['detail']} Fix: {found[what]['fix']}"


def test_all_that_works_is_found_to_work(commands: Commands) -> None:
    commands.load_day()
    before = commands.database.read_bytes()
    found = findings(commands, 0)
    assert set(health(found).values()) == {"works"}
    assert list(found) == [
        "dataset files",
        "DuckDB",
        "pyspark",
        "Java",
        "jars",
        "magic committer",
        "connection spark_default",
        "landing of retail_transactions",
        "stage s3://stage/landfall",
        WAREHOUSE,
    ]
    assert commands.database.read_bytes() == before
    left = commands.s3.list_objects_v2(Bucket="stage", Prefix="landfall/_doctor/")
    assert left["KeyCount"] == 0


def test_people_get_a_line_for_each_finding_and_its_fix(commands: Commands) -> None:
    commands.dataset("s3://nowhere/sales")
    output = commands.run("doctor")
    assert output.code == 1
    assert "✓ connection spark_default  Spark master local[*]" in output.out
    assert "✗ landing of retail_transactions  s3://nowhere: the bucket does not exist.\n" in (
        output.out
    )
    assert "  fix: correct the URI in the dataset file, or create the bucket.\n" in output.out
    assert commands.server.secret_key not in output.text


def test_a_database_that_does_not_exist_yet_works_and_is_not_made(commands: Commands) -> None:
    found = findings(commands, 0)
    assert "the first load makes it" in found[WAREHOUSE]["detail"]
    assert not (commands.home / "warehouse").exists()


def test_a_bad_dataset_file_does_not_hide_the_rest(commands: Commands) -> None:
    (commands.home / "datasets" / "bad.yaml").write_text("dataset: bad\nshedule: x\n")
    found = findings(commands, 1)
    assert health(found)["dataset file bad.yaml"] == "broken"
    assert "Did you mean 'schedule'?" in found["dataset file bad.yaml"]["detail"]
    assert health(found)["landing of retail_transactions"] == "works"


def test_no_dataset_file_is_a_warning(commands: Commands) -> None:
    (commands.home / "datasets" / "retail_transactions.yaml").unlink()
    found = findings(commands, 0)
    assert found["dataset files"]["health"] == "warning"
    assert str(commands.home / "datasets") in found["dataset files"]["detail"]


def test_a_missing_spark_connection_is_broken(commands: Commands) -> None:
    commands.dataset(more="spark: {connection: spark_elsewhere}\n")
    message = broken(findings(commands, 1), "connection spark_elsewhere")
    assert "the Airflow connection 'spark_elsewhere' does not exist." in message
    assert "airflow connections add spark_elsewhere --conn-type spark" in message


def test_a_spark_connection_without_a_master_is_broken(commands: Commands) -> None:
    commands.connection("spark_default", conn_type="spark")
    message = broken(findings(commands, 1), "connection spark_default")
    assert "it names no Spark master; Spark would go to YARN." in message


def test_a_missing_landing_is_broken(commands: Commands) -> None:
    commands.dataset("s3://nowhere/sales")
    message = broken(findings(commands, 1), "landing of retail_transactions")
    assert "s3://nowhere: the bucket does not exist." in message


def test_a_paused_public_landing_that_does_not_answer_is_a_warning(commands: Commands) -> None:
    commands.dataset("s3://nowhere/sales", source="connection: null", more="run: {paused: true}\n")
    commands.monkeypatch.setenv("AWS_ENDPOINT_URL_S3", commands.server.endpoint)
    found = findings(commands, 0)
    assert health(found)["landing of retail_transactions"] == "warning"


def test_a_missing_stage_is_broken(commands: Commands) -> None:
    commands.monkeypatch.setenv("LANDFALL_STAGE_URI", "s3://nowhere/stage")
    message = broken(findings(commands, 1), "stage s3://nowhere/stage")
    assert "the bucket does not exist" in message


def test_wrong_keys_are_broken(commands: Commands) -> None:
    extra = {"endpoint_url": commands.server.endpoint, "region_name": "us-east-1"}
    commands.connection(
        "aws_default", conn_type="aws", login="wrong", password="hunter2", extra=extra
    )
    found = findings(commands, 1)
    for what in ("landing of retail_transactions", "stage s3://stage/landfall"):
        assert health(found)[what] == "broken"
        assert "S3 refuses the credentials" in found[what]["detail"]
        assert "check the keys of the Airflow connection 'aws_default'" in found[what]["fix"]


def test_a_warehouse_below_a_file_is_broken(commands: Commands) -> None:
    (commands.home / "file").touch()
    host = str(commands.home / "file" / "w" / "retail.duckdb")
    commands.connection("landfall_warehouse", conn_type="duckdb", host=host)
    message = broken(findings(commands, 1), WAREHOUSE)
    assert f"{commands.home}/file/w: the folder cannot be written." in message


@pytest.mark.parametrize("closed", ["warehouse", "warehouse/retail.duckdb"])
def test_a_read_only_warehouse_is_broken(commands: Commands, closed: str) -> None:
    commands.load_day()
    path = commands.home / closed
    mode = path.stat().st_mode
    path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        refused = in_child(obey_permissions, doctor.try_writing, commands.warehouse, "retail")
    finally:
        path.chmod(mode)
    assert isinstance(refused, Refusal)
    assert str(commands.home / "warehouse") in refused.message
    assert "Fix: let the user that runs Airflow write there" in refused.message


def test_a_warehouse_that_another_process_holds_is_broken(
    commands: Commands, holder: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "LOCK_SECONDS", 0.1)
    message = broken(findings(commands, 1), WAREHOUSE)
    assert f"{commands.database}: process {holder} holds the file" in message


def test_a_warehouse_connection_of_another_kind_is_broken(commands: Commands) -> None:
    commands.connection("landfall_warehouse", conn_type="postgres", password="hunter2")
    message = broken(findings(commands, 1), WAREHOUSE)
    assert "connection type 'postgres' is not a warehouse." in message
