"""The commands of docs/edge.md, run as written."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from landfall import local_s3
from landfall.settings import load_settings
from tests.edge.test_config import REPOSITORY

DOCUMENT = (REPOSITORY / "docs" / "edge.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", DOCUMENT, re.DOTALL | re.MULTILINE)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A home of its own, with the packages of the project's."""
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "venv").symlink_to(load_settings().home / "venv")
    yield folder
    local_s3.stop(folder / "s3")


@pytest.mark.slow
def test_every_command_runs_as_written(home: Path) -> None:
    commands = blocks("bash")
    (code,) = blocks("python")
    assert len(commands) == 2
    script = "\n".join(["set -euo pipefail", *commands, f"python - <<'END'\n{code}\nEND"])
    done = subprocess.run(
        ["bash", "-c", f". bin/env\n{script}"],
        cwd=REPOSITORY,
        env={**os.environ, "LANDFALL_HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "1 batches, 1 records" in done.stdout
    assert "✓ 50 stores" in done.stdout
    server = local_s3.start(home / "s3")
    keys = [item["Key"] for item in local_s3._client(server).list_objects_v2(
        Bucket="landing", Prefix="transactions/")["Contents"]]  # fmt: skip
    assert sum("date=2026-03-01" in key for key in keys) == 2
    assert any("region=N%2FW/" in key for key in keys)
