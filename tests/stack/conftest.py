"""One running stack for all tests of this folder: nine services of docker-compose.yaml."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from landfall.settings import load_settings
from landfall.stack.postgres import INSTALL, find_postgres
from tests.stack import datasets
from tests.stack.running import RunningStack, wait_for


@pytest.fixture
def stack(shared_stack: RunningStack) -> RunningStack:
    """The stack, running."""
    shared_stack.keep_up()
    return shared_stack


@pytest.fixture(scope="session")
def shared_stack() -> Iterator[RunningStack]:
    # Not in pytest's own folders: the user that runs PostgreSQL may not enter those.
    base = Path(tempfile.mkdtemp(prefix="landfall-stack-"))
    base.chmod(0o755)
    home = base / "home"
    home.mkdir()
    found = find_postgres(home / "stack")
    assert not isinstance(found, str), f"these tests need PostgreSQL: {found}. Run: {INSTALL}"
    for name in ("venv", "jars", "stamps"):
        (home / name).symlink_to(load_settings().home.resolve() / name)
    for name in ("spark", "tmp"):
        (home / name).mkdir()
    tick = datetime.now(UTC).replace(second=0, microsecond=0) + timedelta(minutes=3)
    datasets.write(base / "datasets", home, tick)
    datasets.write_hook(base / "hooks", base / "told")
    running = RunningStack(
        home,
        {
            "LANDFALL_DATASETS": str(base / "datasets"),
            "LANDFALL_PYTHONPATH": str(base / "hooks"),
        },
    )
    try:
        running.up()
        datasets.land(running.s3, tick)
        running.api("POST", "/connections", datasets.LOCAL_SPARK)
        for name in datasets.NAMES:
            wait_for(lambda name=name: _is_known(running, name), f"the DAG {name}")
        yield running
    finally:
        if running.supervisor is not None and running.supervisor.poll() is None:
            running.interrupt()
        shutil.rmtree(base, ignore_errors=True)


def _is_known(running: RunningStack, name: str) -> bool:
    known = running.api("GET", "/dags", limit=100)["dags"]
    return name in {dag["dag_id"] for dag in known}
