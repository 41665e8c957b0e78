"""Every environment variable that Landfall itself reads, in one place."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_REPOSITORY = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Settings:
    """Where Landfall finds its input and keeps its state. All paths are absolute."""

    home: Path
    """All state on disk lives below it. `LANDFALL_HOME`, else `.landfall/` beside `plugins/`."""

    datasets_dir: Path
    """The dataset files. `LANDFALL_DATASETS`, else `dags/datasets/`."""

    jars_dir: Path
    """The jars that Spark needs for S3. `LANDFALL_JARS`, else `jars/` in the home."""

    stage_uri: str
    """The prefix under which Spark stages. `LANDFALL_STAGE_URI`, without a trailing slash."""

    @property
    def warehouse_dir(self) -> Path:
        """Local DuckDB files, one for each database."""
        return self.home / "warehouse"

    @property
    def repository(self) -> Path:
        """The project's folder: the one that `plugins/` is in."""
        return _REPOSITORY

    @property
    def spark_job(self) -> Path:
        """The Spark application, beside `plugins/` as the project lays it out."""
        return _REPOSITORY / "spark_jobs" / "stage_partition.py"

    @property
    def s3_dir(self) -> Path:
        """The local S3 server: its data, its log and its credentials."""
        return self.home / "s3"


def load_settings(env: Mapping[str, str] = os.environ) -> Settings:
    """Reads the settings from `env`. A variable that is set but empty counts as not set."""
    home = _path(env, "LANDFALL_HOME", _REPOSITORY / ".landfall")
    return Settings(
        home=home,
        datasets_dir=_path(env, "LANDFALL_DATASETS", _REPOSITORY / "dags" / "datasets"),
        jars_dir=_path(env, "LANDFALL_JARS", home / "jars"),
        stage_uri=(env.get("LANDFALL_STAGE_URI") or "s3://stage/landfall").rstrip("/"),
    )


def _path(env: Mapping[str, str], name: str, default: Path) -> Path:
    value = env.get(name)
    return Path(value).expanduser().absolute() if value else default
