"""Airflow as users drive it: the schedule, a backfill, clearing, a trigger."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from tests.stack.datasets import DAY, LANDED, MONTH, RETAIL, ROWS, put
from tests.stack.running import BY_DAY, MINUTES, RunningStack, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


def clear(stack: RunningStack, dag: str, **what: Any) -> None:
    """As the page does it."""
    body = {"dry_run": False, "only_failed": False, "reset_dag_runs": True, **what}
    cleared = stack.api("POST", f"/dags/{dag}/clearTaskInstances", body)
    assert cleared["total_entries"] > 0


def retail_run(stack: RunningStack) -> dict[str, Any]:
    (run,) = wait_for(lambda: stack.runs(RETAIL, run_type="scheduled"), "the scheduled run")
    stack.succeeded(RETAIL, run["dag_run_id"])
    return run


def test_the_shipped_dataset_is_loaded_on_its_schedule(stack: RunningStack) -> None:
    run = retail_run(stack)  # one run although start_date is long ago: catch-up is off
    day = run["logical_date"][:10]
    table = "retail.main.transactions"
    by_day = "SELECT date, count(*), count(DISTINCT region) FROM {table} GROUP BY date"
    ((loaded, rows, regions),) = stack.rows(table, by_day)
    assert (str(loaded), regions) == (day, 5)
    assert rows > 9_000
    assert stack.ledger(table, RETAIL) == [(day, "loaded", rows)]


def test_a_cleared_run_runs_again_on_both_spark_workers(stack: RunningStack) -> None:
    run = retail_run(stack)["dag_run_id"]
    before = finished_apps(stack)
    table, everything = "retail.main.transactions", "SELECT * FROM {table} ORDER BY ALL"
    rows = stack.rows(table, everything)
    stack.api("POST", f"/dags/{RETAIL}/dagRuns/{run}/clear", {"dry_run": False})
    wait_for(lambda: stack.tasks(RETAIL, run)["load_partition"]["state"] != "success", "the clear")
    stack.succeeded(RETAIL, run)
    assert stack.rows(table, everything) == rows
    assert [status for _, status, _ in stack.ledger(table, RETAIL)] == ["loaded", "loaded"]
    (app,) = wait_for(lambda: finished_apps(stack) - before, "the job in the master's list")
    for worker in (8082, 8083):
        ran = [e for e in stack.spark(worker)["finishedexecutors"] if e["appid"] == app]
        assert len(ran) == 1, f"no executor on the worker of port {worker}"
        log = f"/logPage/?appId={app}&executorId={ran[0]['id']}&logType=stderr"
        assert "CoarseGrainedExecutorBackend" in stack.spark(worker, log)


def finished_apps(stack: RunningStack) -> set[str]:
    done = stack.spark(8081)["completedapps"]
    return {app["id"] for app in done if RETAIL in app["name"] and app["state"] == "FINISHED"}


@pytest.fixture(scope="module")
def backfill(shared_stack: RunningStack) -> None:
    """The month, loaded."""
    shared_stack.keep_up()
    day_range = ("--from-date", str(MONTH[0]), "--to-date", str(MONTH[-1]))
    created = ("backfill", "create", "--dag-id", "monthly", "--max-active-runs", "4", *day_range)
    shared_stack.airflow(*created)
    backfilled(shared_stack, len(MONTH))


def test_a_month_is_backfilled_several_days_at_once(stack: RunningStack, backfill: None) -> None:
    assert stack.rows("monthly.main.rows", BY_DAY) == [(day, ROWS, ROWS) for day in LANDED]
    ended = {(part, status) for part, status, _ in stack.ledger("monthly.main.rows", "monthly")}
    missing = [day for day in MONTH if day not in LANDED]
    assert {(str(day), "loaded") for day in LANDED} <= ended
    assert {(str(day), "skipped") for day in missing} <= ended
    assert overlap(stack.runs("monthly", run_type="backfill")) > 1


def test_a_backfill_of_completed_days_loads_them_again(stack: RunningStack, backfill: None) -> None:
    before = len(stack.ledger("monthly.main.rows", "monthly"))
    again = ("--from-date", "2026-02-25", "--to-date", "2026-02-26")
    behaviour = ("--reprocess-behavior", "completed")
    stack.airflow("backfill", "create", "--dag-id", "monthly", *again, *behaviour)
    backfilled(stack, len(MONTH))
    ended = stack.ledger("monthly.main.rows", "monthly")[before:]
    assert {row[:2] for row in ended} == {("2026-02-25", "loaded"), ("2026-02-26", "skipped")}
    assert stack.rows("monthly.main.rows", BY_DAY) == [(day, ROWS, ROWS) for day in LANDED]


def test_one_cleared_task_loads_the_same_stage_again(stack: RunningStack, backfill: None) -> None:
    run = run_of(stack, LANDED[0])
    attempts = "SELECT attempt FROM monthly.main.ingest_runs WHERE load_partition = ?"
    table, day = "monthly.main.rows", str(LANDED[0])
    before = stack.rows(table, attempts, day)
    clear(stack, "monthly", dag_run_id=run, task_ids=["load_partition"])
    stack.succeeded("monthly", run)
    after = stack.rows(table, attempts, day)
    assert len(after) == len(before) + 1
    assert set(after) == set(before)
    assert stack.rows(table, BY_DAY) == [(day, ROWS, ROWS) for day in LANDED]


def test_a_cleared_range_is_loaded_again_with_what_landed_since(
    stack: RunningStack, backfill: None
) -> None:
    first, second = LANDED[1:3]
    put(stack.s3, "monthly", str(second), 3, file="late")
    runs = [run_of(stack, first), run_of(stack, second)]
    tries = [stack.tasks("monthly", run)["stage_partition"]["try_number"] for run in runs]
    span = {"start_date": f"{first}T00:00:00Z", "end_date": f"{second}T00:00:00Z"}
    clear(stack, "monthly", **span)
    for run in runs:
        stack.succeeded("monthly", run)
    again = [stack.tasks("monthly", run)["stage_partition"]["try_number"] for run in runs]
    assert again == [number + 1 for number in tries]
    expected = [(day, ROWS + 3 * (day == second)) for day in LANDED]
    assert [row[:2] for row in stack.rows("monthly.main.rows", BY_DAY)] == expected


def test_a_trigger_names_the_partition_without_a_date(stack: RunningStack) -> None:
    conf = f'{{"partition": {{"date": "{DAY}"}}}}'
    stack.airflow("dags", "trigger", "tills", "--conf", conf, "--run-id", "by-hand")
    stack.succeeded("tills", "by-hand")
    assert stack.api("GET", "/dags/tills/dagRuns/by-hand")["logical_date"] is None
    assert stack.rows("shared.main.tills", BY_DAY) == [(date.fromisoformat(DAY), ROWS, ROWS)]


def test_a_run_at_the_cron_loads_the_day_before(stack: RunningStack) -> None:
    due = wait_for(lambda: stack.runs("ticking"), "the cron's minute")
    assert [run["run_type"] for run in due] == ["scheduled"]
    run = due[0]
    stack.succeeded("ticking", run["dag_run_id"])
    started = date.fromisoformat(run["run_after"][:10])
    ((loaded, rows, _),) = stack.rows("ticking.main.rows", BY_DAY)
    assert (started - loaded).days == 1
    assert rows == ROWS
    assert str(loaded) == run["logical_date"][:10]


def backfilled(stack: RunningStack, runs: int) -> None:
    def ended() -> bool:
        found = stack.runs("monthly", run_type="backfill")
        return len(found) == runs and all(r["state"] in ("success", "failed") for r in found)

    wait_for(ended, "the backfill", 9 * MINUTES)
    states = {run["state"] for run in stack.runs("monthly", run_type="backfill")}
    assert states == {"success"}
    wait_for(lambda: all(b["completed_at"] for b in backfills(stack)), "the backfill to close")


def backfills(stack: RunningStack) -> list[dict[str, Any]]:
    return stack.api("GET", "/backfills", dag_id="monthly")["backfills"]


def run_of(stack: RunningStack, day: date) -> str:
    runs = stack.runs("monthly", run_type="backfill")
    return next(run["dag_run_id"] for run in runs if run["logical_date"].startswith(str(day)))


def overlap(runs: list[dict[str, Any]]) -> int:
    """How many of the runs were active in the same moment, at most."""
    ends = [(run["start_date"], 1) for run in runs] + [(run["end_date"], -1) for run in runs]
    active = most = 0
    for _, change in sorted(ends):
        active += change
        most = max(most, active)
    return most
