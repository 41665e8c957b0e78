"""PostgreSQL from the system's package, prepared as the container image's entry point does it."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from landfall.errors import WarehouseError

INSTALL = "sudo apt-get install -y postgresql"
# Where packages put the server, which is not on everyone's PATH.
_PLACES = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql@*/bin")


@dataclass(frozen=True)
class Postgres:
    """An installed server, and the user that has to run it: it refuses to run as root."""

    bin: Path
    user: str | None

    def prepare(self, environment: Mapping[str, str]) -> None:
        """A data folder with the user, the password and the database that `environment` names."""
        data = Path(environment["PGDATA"])
        if (data / "PG_VERSION").exists():
            return
        data.mkdir(parents=True, exist_ok=True)
        if self.user:
            shutil.chown(data, self.user, self.user)
        with tempfile.NamedTemporaryFile("w", prefix="landfall-") as password:
            password.write(environment["POSTGRES_PASSWORD"])
            password.flush()
            if self.user:
                shutil.chown(password.name, self.user)
            name = environment["POSTGRES_USER"]
            self._run(
                *("initdb", f"--pgdata={data}", f"--username={name}", f"--pwfile={password.name}"),
                *("--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-sync"),
                folder=data,
            )
        # A single-user server needs neither port nor password.
        self._run(
            *("postgres", "--single", "-D", str(data), "postgres"),
            folder=data,
            said=f'CREATE DATABASE "{environment["POSTGRES_DB"]}"\n',
        )

    def _run(self, program: str, *arguments: str, folder: Path, said: str = "") -> None:
        done = subprocess.run(
            [self.bin / program, *arguments],
            cwd=folder,
            env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"},
            input=said,
            capture_output=True,
            text=True,
            check=False,
            user=self.user,
            group=self.user,
            extra_groups=[] if self.user else None,
        )
        if done.returncode:
            raise WarehouseError(done.stderr.strip() or f"{program} failed.", where=program)


def find_postgres(data: Path) -> Postgres | str:
    """The newest installed server that can keep its data there, or why there is none."""
    found = [folder for place in _PLACES for folder in Path("/").glob(place.lstrip("/"))]
    on_path = shutil.which("postgres")
    folders = [f for f in found if (f / "postgres").exists() and (f / "initdb").exists()]
    if on_path:
        folders.append(Path(on_path).resolve().parent)
    if not folders:
        return f"PostgreSQL is not installed ({INSTALL})"
    newest = max(folders, key=_version)
    if os.getuid() != 0:
        return Postgres(newest, None)
    try:
        pwd.getpwnam("postgres")
    except KeyError:
        return "there is no user `postgres` to run PostgreSQL, which refuses to run as root"
    closed = _closed_folder(data)
    if closed:
        return f"the user `postgres` cannot reach {closed}"
    return Postgres(newest, "postgres")


def _version(folder: Path) -> float:
    number = folder.parent.name.rpartition("-")[2].rpartition("@")[2]
    return float(number) if number.replace(".", "", 1).isdigit() else 0.0


def _closed_folder(data: Path) -> Path | None:
    """The first folder on the way that only its owner may enter."""
    for folder in reversed(data.absolute().parents):
        if folder.exists() and not folder.stat().st_mode & 0o001:
            return folder
    return None
