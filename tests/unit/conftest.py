"""A project of its own for each test of a command, and a second process in its way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from landfall.local_s3 import LocalS3
from landfall.settings import load_settings
from tests.commands import Commands
from tests.loading import holding


@pytest.fixture
def commands(
    tmp_path: Path,
    s3: Any,
    s3_server: LocalS3,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Commands:
    (tmp_path / "datasets").mkdir()
    monkeypatch.setenv("LANDFALL_JARS", str(load_settings().jars_dir))
    monkeypatch.setenv("LANDFALL_HOME", str(tmp_path))
    monkeypatch.setenv("LANDFALL_DATASETS", str(tmp_path / "datasets"))
    monkeypatch.setenv("AIRFLOW__LOGGING__LOGGING_LEVEL", "ERROR")
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", s3_server.connection_json())
    made = Commands(tmp_path, s3, s3_server, capsys, monkeypatch)
    # The default, named: whatever this machine's Airflow knows, no test reaches it.
    made.connection("landfall_warehouse", conn_type="duckdb")
    made.connection("spark_default", conn_type="spark", host="local[*]")
    made.dataset()
    return made


@pytest.fixture
def holder(commands: Commands) -> Iterator[int]:
    """Another process that holds the loaded database's file: its number."""
    commands.load_day()
    with holding(commands.database) as process:
        yield process.pid
