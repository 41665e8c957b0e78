"""Which PostgreSQL the stack runs, and why it does without one."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from landfall.stack.postgres import Postgres, find_postgres

SERVER = find_postgres(Path("/tmp/landfall/stack"))


def test_a_folder_that_its_user_cannot_enter_is_named(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    found = find_postgres(closed / "home" / "postgres")
    if os.getuid() == 0:
        assert isinstance(found, str)
        assert "the user `postgres` cannot reach" in found
    else:  # the server runs as the user itself
        assert isinstance(found, Postgres)


@pytest.mark.slow
def test_the_data_folder_is_made_once_with_user_and_password() -> None:
    assert isinstance(SERVER, Postgres), SERVER
    base = Path("/tmp") / f"landfall-postgres-{os.getpid()}"
    base.mkdir(mode=0o755)
    try:
        wanted = {
            "PGDATA": str(base / "data"),
            "POSTGRES_USER": "airflow",
            "POSTGRES_PASSWORD": "not in any file",
            "POSTGRES_DB": "airflow",
        }
        SERVER.prepare(wanted)
        rules = (base / "data" / "pg_hba.conf").read_text()
        assert "scram-sha-256" in rules
        assert "trust" not in rules.replace('"trust"', "").partition("# TYPE")[2]
        made = (base / "data" / "PG_VERSION").stat().st_mtime_ns
        SERVER.prepare(wanted)
        assert (base / "data" / "PG_VERSION").stat().st_mtime_ns == made
    finally:
        shutil.rmtree(base)
