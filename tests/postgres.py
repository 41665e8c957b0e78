"""A PostgreSQL of its own for the tests: on a Unix socket in a folder, never on a port."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

USER, PASSWORD = "lake", "catalog-pw-9f2c"


@dataclass(frozen=True)
class Postgres:
    socket: Path
    log: Path
    _psql: str

    def database(self) -> str:
        """A new, empty database."""
        name = f"lake_{uuid4().hex[:12]}"
        self.query(f"CREATE DATABASE {name}")
        return name

    def query(self, sql: str, database: str = "postgres") -> str:
        env = {**os.environ, "PGPASSWORD": PASSWORD}
        command = [self._psql, "-h", str(self.socket), "-U", USER, "-Atc", sql, database]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


def program(name: str) -> str | None:
    """Where Debian and others put PostgreSQL's server programs, newest first."""
    places = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), reverse=True)
    return str(places[0]) if places else shutil.which(name)


@contextmanager
def running_postgres() -> Iterator[Postgres]:
    """In a folder of its own (a socket needs a short path), stopped and removed at the end."""
    initdb, pg_ctl, psql = program("initdb"), program("pg_ctl"), program("psql")
    assert initdb and pg_ctl and psql, "PostgreSQL is missing: apt-get install -y postgresql"
    folder = Path(tempfile.mkdtemp(prefix="lf-pg-"))
    try:
        (folder / "password").write_text(PASSWORD)
        as_user = _not_root(folder)
        data, log = folder / "data", folder / "log"
        login = ["-U", USER, "--pwfile", str(folder / "password"), "--auth", "scram-sha-256"]
        _run([initdb, "-D", str(data), *login, "--no-sync"], as_user)
        options = f"-c listen_addresses='' -c unix_socket_directories='{folder}' -c fsync=off"
        control = [pg_ctl, "-D", str(data), "-w", "-l", str(log)]
        _run([*control, "-o", options, "start"], as_user)
        try:
            yield Postgres(folder, log, psql)
        finally:
            _run([*control, "-m", "immediate", "stop"], as_user)
    finally:
        shutil.rmtree(folder)


def _not_root(folder: Path) -> dict[str, Any]:
    """PostgreSQL refuses to run as root: the folder then belongs to the user of its package."""
    if os.getuid() != 0:
        return {}
    user = pwd.getpwnam("postgres")
    for path in (folder, *folder.iterdir()):
        os.chown(path, user.pw_uid, user.pw_gid)
    folder.chmod(0o755)
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def _run(command: list[str], as_user: dict[str, Any]) -> None:
    # pg_ctl's server keeps the output open: a file, and not a pipe, or the call would never end.
    with tempfile.TemporaryFile() as output:
        done = subprocess.run(
            command, stdout=output, stderr=output, cwd="/", check=False, **as_user
        )
        output.seek(0)
        assert done.returncode == 0, output.read().decode()
