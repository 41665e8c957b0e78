"""Starts the services in their order, waits for each one's health, restarts, stops all of them."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from landfall.errors import TransientError
from landfall.stack import processes
from landfall.stack.compose import Service, fill_in
from landfall.stack.native import Native
from landfall.stack.postgres import Postgres
from landfall.stack.state import Phase, StackFolder, State

START_SECONDS = 300.0
LOOK_SECONDS = 0.25
RESTARTS = 5
"""More than this many in RESTART_SECONDS, and the service is given up."""
RESTART_SECONDS = 60.0
_INHERITED = ("PATH", "HOME", "USER", "LANG", "LC_ALL", "TMPDIR")


@dataclass
class _Running:
    process: subprocess.Popen[bytes]
    begun: float
    probe: subprocess.Popen[bytes] | None = None
    next_probe: float = 0.0
    ready: bool = False
    ends: list[float] = field(default_factory=list)


@dataclass
class Supervisor:
    """Runs the services of a compose file; `report` and `warn` hear (service, what happened)."""

    services: Mapping[str, Service]
    native: Native
    variables: Mapping[str, str]
    folder: StackFolder
    state: State
    postgres: Postgres | None
    report: Callable[[str, str], None]
    warn: Callable[[str, str], None]
    overrides: Mapping[str, str] = field(default_factory=dict)
    """Values of the environment that differ from the file's."""
    _running: dict[str, _Running] = field(default_factory=dict)

    def command(self, service: Service) -> list[str]:
        words = [*service.entrypoint, *service.command]
        return [fill_in(word, self.variables) for word in self.native.command(words)]

    def environment(self, service: Service) -> dict[str, str]:
        inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        own = {
            name: fill_in(self.native.text(str(value)), self.variables)
            for name, value in service.environment.items()
        }
        changed = {name: value for name, value in self.overrides.items() if name in own}
        return {**inherited, **own, **changed, processes.MARK: str(self.folder.path)}

    def start(self, until: Callable[[], bool] = lambda: False) -> None:
        """Returns when every service is healthy or done, or when it is time to stop."""
        deadline = time.monotonic() + START_SECONDS
        while not self._all_ready() and not until():
            for service in self.services.values():
                if service.name not in self._running and self._may_start(service):
                    self._start(service)
            for name in self._running:
                self._look(name)
            if time.monotonic() > deadline:
                late = [name for name in self.services if not self._is_ready(name)]
                raise self._failure(late[0], f"is not healthy after {START_SECONDS:.0f} s")
            time.sleep(LOOK_SECONDS)

    def watch(self, until: Callable[[], bool]) -> None:
        """Restarts what fails, as the file says, until it is time to stop."""
        while not until():
            for name in self._running:
                self._look(name)
            time.sleep(LOOK_SECONDS)

    def waiting(self) -> list[str]:
        return [name for name in self._running if not self._is_ready(name)]

    def stop(self) -> None:
        """Ends every service after those that depend on it; nothing of the stack is left."""
        self.state.phase = Phase.STOPPING
        self.folder.write(self.state)
        left = dict(self._running)
        while left:
            needed = {other for name in left for other in self.services[name].depends_on}
            leaves = [name for name in left if name not in needed]
            processes.stop(
                (left[name].process, signal.Signals[one.stop_signal], one.stop_seconds)
                for name, one in ((name, self.services[name]) for name in leaves)
            )
            for name in leaves:
                self.report(name, "stopped")
                del left[name]
        sweep(self.folder, self.state)

    def _may_start(self, service: Service) -> bool:
        return all(self._is_ready(other) for other in service.depends_on)

    def _is_ready(self, name: str) -> bool:
        return name in self._running and self._running[name].ready

    def _all_ready(self) -> bool:
        return all(self._is_ready(name) for name in self.services)

    def _start(self, service: Service) -> None:
        environment = self.environment(service)
        command = self.command(service)
        user = None
        folder = Path(self.native.text(service.working_dir or str(self.folder.path)))
        for volume in service.volumes:
            Path(self.native.text(volume)).mkdir(parents=True, exist_ok=True)
        if service.image.startswith("postgres:"):
            assert self.postgres is not None
            self.postgres.prepare(environment)
            environment["PATH"] = f"{self.postgres.bin}:{environment['PATH']}"
            folder, user = Path(environment["PGDATA"]), self.postgres.user
        log = self.folder.logs / f"{service.name}.log"
        process = processes.start(command, environment, folder=folder, log=log, user=user)
        before = self._running.get(service.name)
        ends = before.ends if before else []
        self._running[service.name] = _Running(process, time.monotonic(), ends=ends)
        self.state.sessions[process.pid] = processes.birth(process.pid)
        self.state.names[service.name] = process.pid
        self.folder.write(self.state)

    def _look(self, name: str) -> None:
        service, running = self.services[name], self._running[name]
        code = running.process.poll()
        if code is None:
            if service.healthcheck is not None and not running.ready:
                self._probe(service, running)
        elif service.runs_once and code == 0:
            self._now_ready(name, running, "done")
        elif service.runs_once or not service.restarts:
            raise self._failure(name, f"ended with {code}")
        else:
            self._restart(service, running, code)

    def _probe(self, service: Service, running: _Running) -> None:
        """Runs the file's own health check beside all else; healthy once it succeeds."""
        assert service.healthcheck is not None
        if running.probe is None and time.monotonic() >= running.next_probe:
            test = self.native.command([*service.entrypoint, *service.healthcheck.test])
            environment = self.environment(service)
            if self.postgres is not None:
                environment["PATH"] = f"{self.postgres.bin}:{environment['PATH']}"
            running.probe = processes.start(
                test,
                environment,
                folder=self.folder.path,
                log=self.folder.logs / f"{service.name}.health.log",
            )
        elif running.probe is not None and running.probe.poll() is not None:
            if running.probe.returncode == 0:
                self._now_ready(service.name, running, "healthy")
            running.probe = None
            running.next_probe = time.monotonic() + service.healthcheck.pause

    def _now_ready(self, name: str, running: _Running, word: str) -> None:
        if not running.ready:
            running.ready = True
            self.report(name, f"{word} after {time.monotonic() - running.begun:.1f} s")

    def _restart(self, service: Service, running: _Running, code: int) -> None:
        now = time.monotonic()
        running.ends = [end for end in running.ends if end > now - RESTART_SECONDS] + [now]
        if len(running.ends) > RESTARTS:
            raise self._failure(service.name, f"ended {len(running.ends)} times within a minute")
        self.warn(service.name, f"ended with {code}: starting it again")
        # What it started may have outlived it, and holds its ports.
        sid = running.process.pid
        processes.kill(lambda: processes.of_session(sid))
        self._start(service)

    def _failure(self, name: str, what: str) -> TransientError:
        log = self.folder.logs / f"{name}.log"
        lines = log.read_text(errors="replace").splitlines()[-12:] if log.exists() else []
        text = "\n".join(f"  {line}" for line in lines)
        return TransientError(f"{what}; the end of {log}:\n{text}\n", where=name)


def sweep(folder: StackFolder, state: State) -> int:
    """Kills whatever is left of the stack, and forgets it; how many processes it were."""
    killed = processes.kill(lambda: processes.members(folder.path, state.sessions))
    for port in state.ports.values():
        # weed makes these at a fixed place, and a killed one leaves them behind.
        for left in Path("/tmp").glob(f"seaweedfs-*-grpc-{port}.sock"):  # noqa: S108
            left.unlink(missing_ok=True)
    folder.commands_env.unlink(missing_ok=True)
    state.phase, state.sessions, state.names = Phase.DOWN, {}, {}
    folder.write(state)
    return killed
