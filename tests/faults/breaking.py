"""Real faults under a load: a connection that ends, a process that dies, a disk that is full."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import resource
import signal
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from landfall.errors import LandfallError
from landfall.load import LoadRequest, load
from landfall.warehouse.duckdb import DuckDBWarehouse

Fault = Callable[[Any], None]

# Each child starts from a process without threads, which a fork of the tests' own would not.
_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["duckdb", "landfall.load", "landfall.warehouse.duckdb"])


class Moment(StrEnum):
    BEFORE = "before"
    AFTER = "after"


def lose(con: Any) -> None:
    """The connection ends, and with it its transaction."""
    con.close()
    con.execute("SELECT 1")


def refuse(con: Any) -> None:
    """An error that stays; DuckDB aborts the transaction."""
    con.execute("SELECT error('broken off')")


def interrupt(_: Any) -> None:
    raise KeyboardInterrupt


def die(_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class OneThread(DuckDBWarehouse):
    """For hundreds of small loads, which threads would only slow down."""

    def __init__(self, directory: Path, **more: Any) -> None:
        super().__init__(directory, options={"threads": "1"}, **more)


class Breaking(OneThread):
    """The fault strikes at statement number `at`, counted over all connections, and only there."""

    def __init__(
        self, directory: Path, fault: Fault = lose, *, at: int = 0, moment: Moment = Moment.BEFORE
    ) -> None:
        super().__init__(directory)
        self.fault, self.at, self.moment = fault, at, moment
        self.statements: list[str] = []
        self.opened = 0
        self.unreachable: range = range(0)
        """Numbers of the connections that cannot be made."""

    def _open(self, database: str, *, read_only: bool) -> Any:
        self.opened += 1
        if self.opened in self.unreachable:
            raise ConnectionError("connection refused")
        return _Connection(self, super()._open(database, read_only=read_only))


@dataclass(frozen=True)
class _Connection:
    warehouse: Breaking
    con: Any

    def execute(self, text: str, parameters: Any = None) -> Any:
        self.warehouse.statements.append(text)
        struck = len(self.warehouse.statements) == self.warehouse.at
        if struck and self.warehouse.moment is Moment.BEFORE:
            self.warehouse.fault(self.con)
        result = self.con.execute(text, parameters) if parameters else self.con.execute(text)
        if struck and self.warehouse.moment is Moment.AFTER:
            self.warehouse.fault(self.con)
        return result

    def close(self) -> None:
        self.con.close()


def killed_load(directory: Path, request: LoadRequest, at: int, moment: Moment) -> int | None:
    """Loads in a process that kills itself at that statement; how the process ended."""
    process = _processes.Process(target=_load_and_die, args=(directory, request, at, moment))
    process.start()
    process.join()
    return process.exitcode


def _load_and_die(directory: Path, request: LoadRequest, at: int, moment: Moment) -> None:
    load(Breaking(directory, die, at=at, moment=moment), request)


@dataclass(frozen=True)
class Refusal:
    """An error of Landfall, as another process met it."""

    kind: str
    message: str
    where: str
    recorded: bool


def in_child(prepare: Callable[[], None], work: Callable[..., Any], *arguments: Any) -> Any:
    """What `work` returns in a process of its own, prepared first, or the refusal it ends with."""
    here, there = _processes.Pipe(duplex=False)
    process = _processes.Process(target=_prepared, args=(there, prepare, work, *arguments))
    process.start()
    there.close()
    try:
        return here.recv()
    finally:
        process.join()


def _prepared(
    answer: Connection, prepare: Callable[[], None], work: Callable[..., Any], *arguments: Any
) -> None:
    prepare()
    try:
        answer.send(work(*arguments))
    except LandfallError as error:
        kind = type(error).__name__
        answer.send(Refusal(kind, str(error), error.where or "", error.recorded))


@dataclass(frozen=True)
class FullDisk:
    """No file grows beyond `size`, for any user; DuckDB sees its writes fail half-way."""

    size: int

    def __call__(self) -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (self.size, self.size))


def obey_permissions() -> None:
    """Also root is bound by a file's mode afterwards: its capabilities are gone."""
    if os.geteuid() != 0:
        return
    version_3, this_process = 0x20080522, 0
    header = (ctypes.c_uint32 * 2)(version_3, this_process)
    nothing = (ctypes.c_uint32 * 6)()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.capset(header, nothing) != 0:
        raise OSError(ctypes.get_errno(), "capset")
