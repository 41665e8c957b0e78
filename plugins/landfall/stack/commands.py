"""`landfall up` and `landfall down`."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.text import Text

from landfall import screens
from landfall.errors import ConfigError, TransientError
from landfall.settings import Settings
from landfall.stack import native
from landfall.stack.compose import Service, read_services
from landfall.stack.postgres import Postgres, find_postgres
from landfall.stack.state import Phase, StackFolder, State
from landfall.stack.supervisor import Supervisor, sweep

DOWN_SECONDS = 60.0
PAGE_PORT, S3_PORT, SPARK_PORT = 8080, 8333, 8081
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_DATABASE = "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"


def up(settings: Settings, console: Console) -> int:
    """Runs the stack until it is interrupted, terminated, or its parent is gone."""
    folder = StackFolder(settings.home / "stack")
    with _only_one(folder):
        state = folder.read()
        left = sweep(folder, state)
        if left:
            screens.line(console, "!", "yellow", f"ended {left} processes of a stack that crashed")
        supervisor = _supervisor(settings, folder, state, console)
        asked = _stop_signals()
        try:
            with _progress(console, supervisor):
                supervisor.start(asked)
            if not asked():
                _write_commands_env(supervisor)
                state.phase = Phase.UP
                folder.write(state)
                _show(console, supervisor)
                supervisor.watch(asked)
        except KeyboardInterrupt:  # the way in which one stops it
            pass
        finally:
            for number in STOP_SIGNALS:  # it stops already
                signal.signal(number, signal.SIG_IGN)
            screens.line(console, "·", "dim", "stopping")
            supervisor.stop()
    screens.line(console, "✓", "green", "stopped; the data stays", str(folder.path))
    return 0


def down(settings: Settings, console: Console) -> int:
    """Stops the stack, or what a crash has left of it."""
    folder = StackFolder(settings.home / "stack")
    deadline = time.monotonic() + DOWN_SECONDS
    asked = False
    while True:
        with folder.lock() as free:
            if free:
                left = sweep(folder, folder.read())
                break
        holder = folder.holder()
        if not asked and holder is not None:
            asked = True
            os.kill(holder, signal.SIGTERM)
        if time.monotonic() > deadline:
            raise TransientError("the stack does not stop.", where=str(folder.path))
        time.sleep(0.1)
    text = f"ended {left} processes that were left" if left else "stopped"
    screens.line(console, "✓", "green", text if left or asked else "the stack is not running")
    return 0


@contextmanager
def _only_one(folder: StackFolder) -> Iterator[None]:
    """One supervisor for each home; one that is about to stop is waited for."""
    deadline = time.monotonic() + DOWN_SECONDS
    patience = time.monotonic() + 2.0
    while True:
        with folder.lock() as free:
            if free:
                yield
                return
            state = folder.read()
        now = time.monotonic()
        if now > deadline or (now > patience and state.phase is not Phase.STOPPING):
            raise ConfigError(
                f"the stack is {state.phase} already (process {state.supervisor}).",
                where=state.page or str(folder.path),
                fix="use it, or stop it with make down.",
            )
        time.sleep(0.1)


def _supervisor(
    settings: Settings, folder: StackFolder, state: State, console: Console
) -> Supervisor:
    repository = settings.repository
    services = read_services(repository / "docker-compose.yaml")
    variables = {**folder.secrets(repository), **{k: v for k, v in os.environ.items() if v}}
    postgres = find_postgres(folder.path / "postgres")
    overrides: dict[str, str] = {}
    if isinstance(postgres, str):
        if (folder.path / "postgres").exists():
            raise ConfigError(f"{postgres}, but the stack's state is in it.", where="make up")
        screens.line(console, "!", "yellow", f"Airflow's state is in SQLite: {postgres}")
        services = _without(services, "postgres")
        overrides[_DATABASE] = f"sqlite:///{settings.home}/airflow/airflow.db"
    state.ports = native.choose_ports(services.values(), state.ports, variables)
    state.phase, state.supervisor = Phase.STARTING, os.getpid()
    state.page = f"http://{native.HOST}:{state.ports[PAGE_PORT]}"
    folder.write(state)
    return Supervisor(
        services=services,
        native=native.Native(
            frozenset(services), state.ports, native.paths(repository, settings.home)
        ),
        variables=variables,
        folder=folder,
        state=state,
        postgres=postgres if isinstance(postgres, Postgres) else None,
        report=lambda name, what: screens.line(console, "✓", "green", name, what),
        warn=lambda name, what: screens.line(console, "!", "yellow", name, what),
        overrides=overrides,
    )


def _without(services: Mapping[str, Service], name: str) -> dict[str, Service]:
    return {
        one.name: replace(one, depends_on={k: v for k, v in one.depends_on.items() if k != name})
        for one in services.values()
        if one.name != name
    }


def _stop_signals() -> Callable[[], bool]:
    """Says whether to stop: after a Ctrl-C, a SIGTERM or a SIGHUP, or when nobody waits for us."""
    received: list[int] = []
    parent = os.getppid()

    def receive(number: int, _: object) -> None:
        received.append(number)
        raise KeyboardInterrupt

    for number in STOP_SIGNALS:
        signal.signal(number, receive)
    return lambda: bool(received) or os.getppid() != parent


@contextmanager
def _progress(console: Console, supervisor: Supervisor) -> Iterator[None]:
    """A spinner that names what is being waited for; each service's own line comes above it."""
    if not console.is_terminal:
        yield
        return

    class _Waiting:
        def __rich__(self) -> Text:
            return Text("waiting for " + ", ".join(supervisor.waiting()), style="dim")

    from rich.live import Live
    from rich.spinner import Spinner
    from rich.table import Table

    line = Table.grid(padding=(0, 1))
    line.add_row(Spinner("dots"), _Waiting())
    with Live(line, console=console, refresh_per_second=8, transient=True):
        yield


def _write_commands_env(supervisor: Supervisor) -> None:
    """The scheduler's environment, so that a command finds what a task finds."""
    scheduler = supervisor.services["airflow-scheduler"]
    environment = supervisor.environment(scheduler)
    wanted = {name: environment[name] for name in scheduler.environment}
    pid = supervisor.state.names["airflow-api-server"]
    supervisor.folder.write_commands_env(wanted, pid)


def _show(console: Console, supervisor: Supervisor) -> None:
    ports = supervisor.state.ports
    rows = (
        ("Airflow", supervisor.state.page),
        ("user", "admin"),
        ("password", supervisor.variables["AIRFLOW_ADMIN_PASSWORD"]),
        ("Spark", f"http://{native.HOST}:{ports[SPARK_PORT]}"),
        ("S3", f"http://{native.HOST}:{ports[S3_PORT]}"),
        ("logs", str(Path(supervisor.folder.logs))),
    )
    console.print()
    for name, value in rows:
        console.print(Text(f"  {name:<10}", style="dim").append(value, style="bold"))
    console.print(Text("\nCtrl-C stops all of it.", style="dim"))
