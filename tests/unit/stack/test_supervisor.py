"""Order, health, restart and end of services, on a small compose file of shell commands."""

from __future__ import annotations

import os
import subprocess
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from landfall.errors import TransientError
from landfall.stack import processes
from landfall.stack.compose import read_services
from landfall.stack.native import Native
from landfall.stack.state import Phase, StackFolder, State
from landfall.stack.supervisor import Supervisor, sweep

pytestmark = pytest.mark.slow


@pytest.fixture
def said() -> list[str]:
    """The services of which the supervisor reported something, in order."""
    return []


@pytest.fixture
def make(tmp_path: Path, said: list[str]) -> Iterator[Callable[[str], Supervisor]]:
    """A supervisor of the services in a text; whatever it started is ended after the test."""
    made: list[Supervisor] = []

    def hear(name: str, _: str) -> None:
        said.append(name)

    def make(text: str) -> Supervisor:
        file = tmp_path / "compose.yaml"
        file.write_text("services:\n" + textwrap.indent(textwrap.dedent(text), "  "))
        services = read_services(file)
        folder = StackFolder(tmp_path / "stack")
        folder.logs.mkdir(parents=True, exist_ok=True)
        native = Native(frozenset(services), {1: 1}, {"/there": str(tmp_path)})
        one = Supervisor(services, native, {}, folder, State(), None, hear, hear)
        made.append(one)
        return one

    yield make
    for one in made:
        sweep(one.folder, one.state)


def wait_until(true: Callable[[], bool]) -> Callable[[], bool]:
    deadline = time.monotonic() + 30

    def look() -> bool:
        assert time.monotonic() < deadline
        return true()

    return look


SLEEPER = """
    {name}:
      image: x
      command: [bash, -c, "{before}touch /there/{name}.ready; sleep 100 & wait"]
      healthcheck: {{test: [CMD, test, -e, /there/{name}.ready], start_interval: 1s}}
      restart: on-failure
      stop_grace_period: 1s
"""


def test_a_service_starts_when_those_before_it_are_healthy(
    make: Callable[[str], Supervisor], said: list[str]
) -> None:
    before = "test -e /there/first.ready && test -e /there/once.done && "
    last = SLEEPER.format(name="last", before=before)
    once = """
    once:
      image: x
      command: [touch, /there/once.done]
      depends_on: {first: {condition: service_healthy}}
    """
    after = "  depends_on: {once: {condition: service_completed_successfully}}\n"
    first = SLEEPER.format(name="first", before="sleep 0.5; ")
    make(textwrap.dedent(last) + after + textwrap.dedent(once) + textwrap.dedent(first)).start()
    assert said == ["first", "once", "last"]


def test_a_service_that_dies_is_started_again(make: Callable[[str], Supervisor]) -> None:
    supervisor = make(SLEEPER.format(name="worker", before=""))
    supervisor.start()
    first = supervisor.state.names["worker"]
    os.kill(first, 9)
    supervisor.watch(wait_until(lambda: supervisor.state.names["worker"] != first))
    assert processes.of_session(first) == []


def test_a_service_that_dies_again_and_again_is_given_up(
    make: Callable[[str], Supervisor],
) -> None:
    supervisor = make(
        """
        broken:
          image: x
          command: [bash, -c, "echo no such luck; exit 3"]
          healthcheck: {test: [CMD, "false"], start_interval: 1s}
          restart: on-failure
        """
    )
    with pytest.raises(TransientError, match=r"broken: ended 6 times within a minute(.|\n)*luck"):
        supervisor.start()


def test_a_step_that_fails_ends_the_start_with_its_last_words(
    make: Callable[[str], Supervisor],
) -> None:
    supervisor = make("once: {image: x, command: [bash, -c, 'echo why; exit 2']}")
    with pytest.raises(TransientError, match=r"once: ended with 2(.|\n)*why"):
        supervisor.start()


def test_the_end_leaves_no_process_not_even_one_that_left_its_session(
    make: Callable[[str], Supervisor],
) -> None:
    supervisor = make(SLEEPER.format(name="parent", before="setsid sleep 101 & "))
    supervisor.start()
    sessions = dict(supervisor.state.sessions)
    assert len(processes.members(supervisor.folder.path, sessions)) >= 3
    supervisor.stop()
    assert processes.members(supervisor.folder.path, sessions) == []
    assert supervisor.folder.read().phase is Phase.DOWN


def test_a_crashed_stack_is_found_again_and_nothing_else(
    make: Callable[[str], Supervisor],
) -> None:
    supervisor = make(SLEEPER.format(name="orphan", before=""))
    supervisor.start()
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as bystander:
        state = supervisor.folder.read()  # all that a new process knows
        # A number that another process got meanwhile must not be mistaken for ours.
        state.sessions[bystander.pid] = 1.0
        assert sweep(supervisor.folder, state) >= 2
        assert bystander.poll() is None
        bystander.kill()


def test_commands_hear_of_the_stack_while_it_runs(tmp_path: Path) -> None:
    folder = StackFolder(tmp_path)
    ask = ["bash", "-c", f'. {folder.commands_env}; echo "$A|$B"']
    folder.write_commands_env({"A": '{"x": "a b"}', "B": "theirs"}, os.getpid())
    assert folder.commands_env.stat().st_mode & 0o077 == 0
    env = {"PATH": os.environ["PATH"], "B": "mine"}
    shown = subprocess.run(ask, env=env, capture_output=True, text=True, check=True).stdout
    assert shown == '{"x": "a b"}|mine\n'
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    folder.write_commands_env({"A": "stale", "B": ""}, ended.pid)
    shown = subprocess.run(ask, env=env, capture_output=True, text=True, check=True).stdout
    assert shown == "|mine\n"
