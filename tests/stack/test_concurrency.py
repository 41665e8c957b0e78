"""Runs that meet: all of them end right, by waiting."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path

import pytest

from tests.stack.datasets import DAY, ROWS
from tests.stack.running import BY_DAY, RunningStack, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

HOLD = "import duckdb, sys; con = duckdb.connect(sys.argv[1]); print('held', flush=True); input()"


@contextmanager
def held(database: Path) -> Iterator[int]:
    """Another process has the DuckDB file open, as a shell would; its number."""
    database.parent.mkdir(exist_ok=True)
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, database],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process.pid
        process.communicate("\n")


def test_runs_that_want_one_file_at_once_wait_and_end_right(stack: RunningStack) -> None:
    with held(stack.home / "warehouse" / "shared.duckdb") as holder:
        runs = [
            ("tills", stack.trigger("tills", date=DAY)),
            ("tills", stack.trigger("tills", date=DAY)),
            ("visits", stack.trigger("visits", date=DAY)),
        ]
        line = f"is held by process {holder}: waiting"

        def is_waiting(dag: str, run: str) -> bool:
            return stack.tasks(dag, run)["load_partition"][
                "state"
            ] == "running" and line in stack.log(dag, run, "load_partition")

        for dag, run in runs:
            wait_for(lambda dag=dag, run=run: is_waiting(dag, run), f"{dag} {run} to wait")
    for dag, run in runs:
        stack.succeeded(dag, run)
        tasks = stack.tasks(dag, run)
        assert {task["try_number"] for task in tasks.values()} == {1}
    for dag in ("tills", "visits"):
        table = f"shared.main.{dag}"
        assert stack.rows(table, BY_DAY) == [(date.fromisoformat(DAY), ROWS, ROWS)]
        ended = {status for _, status, _ in stack.ledger(table, dag)}
        assert "loaded" in ended
        assert ended <= {"loaded", "superseded"}
