"""Processes of a stack: found again after a crash, and ended with all that they started."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

import psutil

MARK = "LANDFALL_STACK"
"""In the environment of every process of a stack; its value is the stack's folder."""

KILL_SECONDS = 10.0


def start(
    command: list[str],
    environment: Mapping[str, str],
    *,
    folder: Path,
    log: Path,
    user: str | None = None,
) -> subprocess.Popen[bytes]:
    """Starts a command in a session of its own, so that a Ctrl-C here does not reach it."""
    with log.open("ab") as target:
        return subprocess.Popen(
            command,
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=target,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            user=user,
            group=user,
            extra_groups=[] if user else None,
        )


def birth(pid: int) -> float | None:
    """When the process began; tells it from a later one that got its number."""
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
    except psutil.Error:
        return None


def members(folder: Path, sessions: Mapping[int, float | None]) -> list[psutil.Process]:
    """Every living process of the stack: in one of its sessions, or with its mark.

    Neither is enough alone: some leave their session, and some overwrite their environment.
    """
    own = {sid for sid, born in sessions.items() if birth(sid) in (None, born)}
    found = []
    for process in psutil.process_iter():
        try:
            belongs = os.getsid(process.pid) in own or _is_marked(process, folder)
            if belongs and process.pid != os.getpid() and birth(process.pid) is not None:
                found.append(process)
        except (ProcessLookupError, PermissionError, psutil.NoSuchProcess):
            continue  # ended meanwhile, or another user's: not ours
    return found


def of_session(sid: int) -> list[psutil.Process]:
    """Every living process of one session."""
    found = []
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) == sid and birth(process.pid) is not None:
                found.append(process)
        except (ProcessLookupError, PermissionError):
            continue
    return found


def _is_marked(process: psutil.Process, folder: Path) -> bool:
    try:
        return bool(process.environ().get(MARK) == str(folder))
    except (psutil.AccessDenied, psutil.ZombieProcess, OSError):
        return False


def stop(
    started: Iterable[tuple[subprocess.Popen[bytes], signal.Signals, float]],
) -> None:
    """Asks each to end and waits as long as it is granted; what is left is for `kill`."""
    asked = list(started)
    for process, number, _ in asked:
        if process.poll() is None:
            process.send_signal(number)
    begun = time.monotonic()
    for process, _, seconds in asked:
        try:
            process.wait(max(0.05, begun + seconds - time.monotonic()))
        except subprocess.TimeoutExpired:
            continue


def kill(find: Callable[[], Collection[psutil.Process]]) -> int:
    """Kills what `find` finds until it finds nothing; how many it were."""
    killed: set[int] = set()
    deadline = time.monotonic() + KILL_SECONDS
    while left := find():
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes do not end: {[process.pid for process in left]}")
        for process in left:
            try:
                process.kill()
                killed.add(process.pid)
            except psutil.NoSuchProcess:
                continue
        psutil.wait_procs(left, timeout=1)
    return len(killed)
