"""What dies, or takes too long, in the middle of a run."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from tests.stack.datasets import DAY, SLOW_ROWS
from tests.stack.running import BY_DAY, RunningStack, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

WORKERS = {8082: "spark-worker-1", 8083: "spark-worker-2"}


def is_writing(stack: RunningStack, dataset: str) -> bool:
    """Whether a task of Spark's has begun to write the stage, and it is not published."""
    listed = stack.s3.list_objects_v2(Bucket="stage", Prefix=f"landfall/{dataset}/")
    keys = [found["Key"] for found in listed.get("Contents", [])]
    assert not any(key.endswith("manifest.json") for key in keys)
    return any("/tasks/attempt_" in key for key in keys)  # the job's own folder is there earlier


def test_a_spark_worker_that_dies_costs_no_row(stack: RunningStack) -> None:
    run = stack.trigger("clustered", date=DAY)
    wait_for(lambda: is_writing(stack, "clustered"), "the job to write")
    (app,) = [a["id"] for a in stack.spark(8081)["activeapps"] if "clustered" in a["name"]]
    (port,) = [p for p in WORKERS if app in {e["appid"] for e in stack.spark(p)["executors"]}]
    dead = stack.kill_service(WORKERS[port])
    stack.succeeded("clustered", run)
    table = "clustered.main.rows"
    assert stack.rows(table, BY_DAY) == [(date.fromisoformat(DAY), SLOW_ROWS, SLOW_ROWS)]
    assert stack.ledger(table, "clustered") == [(DAY, "loaded", SLOW_ROWS)]
    # Spark itself repeated what was lost: for Airflow it was one try.
    assert stack.tasks("clustered", run)["stage_partition"]["try_number"] == 1
    # The event log, on by this dataset's choice, tells that a task was lost on the way.
    events = [path for path in (stack.home / "spark-events").rglob("events*") if path.is_file()]
    assert any("ExecutorLostFailure" in path.read_text() for path in events)
    wait_for(lambda: stack.state.names[WORKERS[port]] != dead, "the worker to be started again")


def test_a_scheduler_that_dies_in_the_middle_of_a_run_goes_on_with_it(stack: RunningStack) -> None:
    run = stack.trigger("interrupted", date=DAY)
    wait_for(lambda: is_writing(stack, "interrupted"), "the job to write")
    dead = stack.kill_service("airflow-scheduler")
    wait_for(lambda: stack.state.names["airflow-scheduler"] != dead, "the scheduler's restart")
    stack.succeeded("interrupted", run)
    tasks = stack.tasks("interrupted", run)
    tries = {name: task["try_number"] for name, task in tasks.items()}
    assert tries == {"wait_for_partition": 1, "stage_partition": 2, "load_partition": 1}
    table = "interrupted.main.rows"
    assert stack.rows(table, BY_DAY) == [(date.fromisoformat(DAY), SLOW_ROWS, SLOW_ROWS)]
    assert stack.ledger(table, "interrupted") == [(DAY, "loaded", SLOW_ROWS)]


def test_a_job_that_takes_too_long_is_ended_retried_and_told_of(stack: RunningStack) -> None:
    run = stack.trigger("late", date=DAY)
    assert stack.finished("late", run) == "failed"
    tasks = stack.tasks("late", run)
    assert tasks["stage_partition"]["state"] == "failed"
    assert tasks["stage_partition"]["try_number"] == 2
    assert tasks["load_partition"]["state"] == "upstream_failed"
    told = wait_for(lambda: _read(stack.home.parent / "told"), "the dataset's hook")
    assert told.splitlines() == ["late stage_partition 2"]  # once, when no try was left
    rows = stack.rows(
        "late.main.rows", "SELECT status, error FROM late.main.ingest_runs ORDER BY run_at"
    )
    assert [status for status, _ in rows] == ["failed", "failed"]
    assert all("longer than 0.3 minutes" in error for _, error in rows)


def _read(path: Path) -> str | None:
    return path.read_text() if path.exists() else None
