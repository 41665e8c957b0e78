"""What is loaded, and how the runs ended, as the ledger says it."""

from __future__ import annotations

import hashlib

import pytest

from landfall import plan as planning
from landfall.errors import ContractError
from tests.commands import Commands
from tests.loading import rows

pytestmark = pytest.mark.slow  # connections come from Airflow

NAME = "retail_transactions"
DAY = "date=2026-02-11"


def fail_a_load(commands: Commands) -> str:
    with pytest.raises(ContractError) as failed:
        commands.load_day(query="SELECT 'x' AS id, DATE '2026-02-11' AS date")
    return str(failed.value)


def test_status_counts_partitions_and_rows(commands: Commands) -> None:
    commands.load_day("2026-02-10", rows("2026-02-10", rows=1_234))
    result = commands.load_day()
    output = commands.run("status")
    row = output.out.splitlines()[1]
    ended = f"{result.finished_at:%Y-%m-%d %H:%M}"
    assert output.code == 0
    assert row.split() == [
        *(NAME, "retail.main.transactions", "2", "1,244"),
        *(*ended.split(), "2026-02-11", "loaded"),
    ]


def test_status_of_one_dataset_lists_its_partitions(commands: Commands) -> None:
    commands.load_day("2026-02-10")
    commands.load_day()
    shown = commands.run("status", NAME).out
    listed = [line.split()[:3] for line in shown.splitlines() if line.startswith("date=")]
    assert listed == [["date=2026-02-10", "10", "1"], [DAY, "10", "1"]]


def test_status_speaks_json(commands: Commands) -> None:
    result = commands.load_day()
    (status,) = commands.run("status", "--json").json
    assert (status["dataset"], status["problem"]) == (NAME, None)
    assert [(p["partition"], p["rows"]) for p in status["partitions"]] == [(DAY, 10)]
    assert status["partitions"][0]["run_id"] == status["last_run"]["run_id"] == result.run_id


def test_the_last_run_is_shown_also_when_it_failed(commands: Commands) -> None:
    commands.load_day()
    fail_a_load(commands)
    output = commands.run("status")
    assert output.code == 0
    assert output.out.splitlines()[1].split()[-1] == "failed"
    (status,) = commands.run("status", "--json").json
    assert [p["rows"] for p in status["partitions"]] == [10]


def test_an_empty_warehouse_has_never_run_and_is_not_made(commands: Commands) -> None:
    output = commands.run("status")
    assert output.code == 0
    assert output.out.splitlines()[1].split() == [
        *(NAME, "retail.main.transactions", "0", "0"),
        *("never", "run"),
    ]
    assert not (commands.home / "warehouse").exists()


def test_status_writes_nothing(commands: Commands) -> None:
    commands.load_day()
    before = hashlib.sha256(commands.database.read_bytes()).digest()
    commands.run("status")
    commands.run("history", NAME, DAY)
    assert hashlib.sha256(commands.database.read_bytes()).digest() == before
    assert [path.name for path in commands.database.parent.iterdir()] == ["retail.duckdb"]


def test_a_locked_database_does_not_hide_the_others(
    commands: Commands, holder: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "LOCK_SECONDS", 0.1)
    other = "dataset: other\nstart_date: 2026-02-01\nsource: {uri: s3://landing/o}\n"
    (commands.home / "datasets" / "other.yaml").write_text(
        f"{other}load: {{destination: shop.main.sales}}\n"
    )
    output = commands.run("status")
    assert output.code == 1
    assert "other shop.main.sales 0 0 never run" in output.text
    assert f"{NAME} retail.main.transactions unknown" in output.text
    assert f"✗ {NAME}: {commands.database}: process {holder} holds the file" in output.text


def test_history_lists_every_run_newest_first(commands: Commands) -> None:
    first = commands.load_day("2026-02-10")
    second = commands.load_day()
    history = commands.run("history", NAME, "--json").json
    assert [run["run_id"] for run in history["runs"]] == [second.run_id, first.run_id]
    assert (history["partition"], history["files"]) == (None, [])


def test_history_shows_why_a_run_failed(commands: Commands) -> None:
    commands.load_day()
    error = fail_a_load(commands)
    output = commands.run("history", NAME)
    statuses = [line.split()[3] for line in output.out.splitlines()[2:4]]
    assert statuses == ["failed", "loaded"]
    assert f": {error}" in output.out


def test_history_of_a_partition_lists_its_runs_and_the_files_it_is_made_of(
    commands: Commands,
) -> None:
    commands.load_day("2026-02-10")
    commands.load_day()
    last = commands.load_day()
    history = commands.run("history", NAME, DAY, "--json").json
    assert {run["load_partition"] for run in history["runs"]} == {"2026-02-11"}
    assert len(history["runs"]) == 2
    assert [(file["key"], file["run_id"]) for file in history["files"]] == [
        ("transactions/a.parquet", last.run_id)
    ]


def test_the_files_of_a_partition_are_shown_below_their_folder(commands: Commands) -> None:
    commands.load_day()
    lines = commands.run("history", NAME, DAY).out.splitlines()
    title = next(n for n, line in enumerate(lines) if line.startswith("Source files"))
    assert lines[title].strip() == f"Source files of {DAY}, below transactions/"
    assert lines[title + 2].split() == ["a.parquet", "100", "B", "13", "e1"]


def test_a_partition_whose_only_run_failed_has_no_files(commands: Commands) -> None:
    commands.load_day("2026-02-10")
    fail_a_load(commands)
    output = commands.run("history", NAME, DAY)
    assert output.code == 0
    assert f"Of {DAY} nothing is loaded now." in output.out


def test_a_limit_is_kept(commands: Commands) -> None:
    for _ in range(3):
        commands.load_day()
    assert len(commands.run("history", NAME, "--limit", "2", "--json").json["runs"]) == 2


def test_a_limit_below_one_is_refused(
    commands: Commands, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        commands.run("history", NAME, "--limit", "0")
    assert "'0' is not a number from 1 on" in capsys.readouterr().err


def test_an_empty_history_says_so(commands: Commands) -> None:
    output = commands.run("history", NAME)
    assert (output.code, output.out) == (0, "No run yet.\n")
    assert not (commands.home / "warehouse").exists()


def test_a_partition_that_was_never_loaded_is_an_error(commands: Commands) -> None:
    commands.load_day()
    output = commands.run("history", NAME, "date=2026-02-12")
    assert output.code == 1
    assert "the partition 'date=2026-02-12' has never been loaded" in output.err
    assert f"`landfall status {NAME}`" in output.err


def test_a_locked_database_is_one_message(
    commands: Commands, holder: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "LOCK_SECONDS", 0.1)
    output = commands.run("history", NAME)
    assert (output.code, output.out) == (1, "")
    assert f"process {holder} holds the file" in output.err
    assert output.err.count("\n") == 1
