"""What a stack remembers between starts: its ports, its sessions and its secrets."""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import IO

from landfall.private_file import write_private
from landfall.stack.compose import read_env_file


class Phase(StrEnum):
    STARTING = "starting"
    UP = "up"
    STOPPING = "stopping"
    DOWN = "down"


@dataclass
class State:
    phase: Phase = Phase.DOWN
    supervisor: int = 0
    page: str = ""
    """The address of Airflow's page."""
    ports: dict[int, int] = field(default_factory=dict)
    sessions: dict[int, float | None] = field(default_factory=dict)
    """Each service's first process, and when it began."""
    names: dict[str, int] = field(default_factory=dict)
    """The same processes by service."""


@dataclass(frozen=True)
class StackFolder:
    """`stack/` in Landfall's home."""

    path: Path

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def commands_env(self) -> Path:
        """What `bin/airflow` and `bin/landfall` read to speak with the running stack."""
        return self.path / "env"

    def read(self) -> State:
        try:
            given = json.loads((self.path / "state.json").read_text())
        except FileNotFoundError:
            return State()
        return State(
            phase=Phase(given["phase"]),
            supervisor=given["supervisor"],
            page=given["page"],
            ports={int(port): here for port, here in given["ports"].items()},
            sessions={int(sid): born for sid, born in given["sessions"].items()},
            names=given["names"],
        )

    def write(self, state: State) -> None:
        write_private(self.path / "state.json", json.dumps(asdict(state), indent=1))

    def secrets(self, repository: Path) -> dict[str, str]:
        """Made once, by the same command that makes compose's .env."""
        target = self.path / ".env"
        command = [repository / "bin" / "compose-env", target]
        subprocess.run(command, check=True, capture_output=True)
        return read_env_file(target)

    def write_commands_env(self, variables: Mapping[str, str], pid: int) -> None:
        """Shell lines that set what is not set already; `pid` lives as long as they are true."""
        lines = [f"kill -0 {pid} 2>/dev/null || return 0"]
        lines += [f"export {k}=${{{k}-{shlex.quote(v)}}}" for k, v in variables.items()]
        write_private(self.commands_env, "\n".join(lines) + "\n")

    @contextmanager
    def lock(self) -> Iterator[bool]:
        """Held as long as the supervisor lives, however it ends. Says whether it was free."""
        self.logs.mkdir(parents=True, exist_ok=True)
        with (self.path / "lock").open("a+") as handle:
            yield _take(handle)

    def holder(self) -> int | None:
        """The process that took the lock last; it lives if the lock is not free."""
        text = (self.path / "lock").read_text()
        return int(text) if text else None


def _take(handle: IO[str]) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    handle.truncate(0)
    handle.write(str(os.getpid()))
    handle.flush()
    return True
