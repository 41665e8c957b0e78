"""`make up` after the worst, and its end."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest

from tests.stack.datasets import RETAIL
from tests.stack.running import ROOT, RunningStack

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


def test_every_service_of_the_compose_file_runs(stack: RunningStack) -> None:
    import yaml

    declared = yaml.safe_load((ROOT / "docker-compose.yaml").read_text())["services"]
    assert set(stack.state.names) == set(declared)
    running = {name for name, given in declared.items() if "healthcheck" in given}
    for name in running:
        os.kill(stack.state.names[name], 0)


def test_a_second_one_in_the_same_home_is_refused(stack: RunningStack) -> None:
    second = subprocess.run(
        [ROOT / "bin" / "landfall", "up"], env=stack.env, capture_output=True, text=True
    )
    assert second.returncode == 1
    assert "the stack is up already" in second.stderr
    assert stack.state.page in second.stderr


def test_killed_outright_it_comes_up_again_with_its_state(stack: RunningStack) -> None:
    before = stack.state
    runs = {run["dag_run_id"] for run in stack.runs(RETAIL)}
    assert stack.supervisor is not None
    os.kill(stack.supervisor.pid, signal.SIGKILL)
    stack.supervisor.wait()
    assert stack.left_overs(before.sessions), "the services outlive their supervisor"
    stack.up()
    assert "processes of a stack that crashed" in stack.output
    assert stack.state.ports == before.ports
    assert not set(before.names.values()) & set(stack.state.names.values())
    assert {run["dag_run_id"] for run in stack.runs(RETAIL)} >= runs
    assert stack.s3.list_objects_v2(Bucket="landing", Prefix="transactions/")["KeyCount"] > 0


def test_an_interrupt_ends_all_of_it(stack: RunningStack) -> None:
    sessions = stack.state.sessions
    assert len(stack.left_overs(sessions)) > 9
    assert stack.interrupt() == 0
    assert stack.left_overs(sessions) == []
