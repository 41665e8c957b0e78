from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from landfall.settings import load_settings

REPOSITORY = Path(__file__).resolve().parents[2]


def test_defaults_lie_inside_the_project() -> None:
    settings = load_settings({})
    assert settings.home == REPOSITORY / ".landfall"
    assert settings.datasets_dir == REPOSITORY / "dags" / "datasets"
    assert settings.jars_dir == REPOSITORY / ".landfall" / "jars"
    assert settings.warehouse_dir == REPOSITORY / ".landfall" / "warehouse"
    assert settings.stage_uri == "s3://stage/landfall"


def test_state_follows_the_home(tmp_path: Path) -> None:
    settings = load_settings({"LANDFALL_HOME": str(tmp_path)})
    assert settings.jars_dir == tmp_path / "jars"
    assert settings.warehouse_dir == tmp_path / "warehouse"
    assert settings.s3_dir == tmp_path / "s3"


def test_each_variable_wins_over_its_default(tmp_path: Path) -> None:
    settings = load_settings(
        {
            "LANDFALL_DATASETS": str(tmp_path / "datasets"),
            "LANDFALL_JARS": str(tmp_path / "jars"),
            "LANDFALL_STAGE_URI": "s3://elsewhere/stage/",
        }
    )
    assert settings.datasets_dir == tmp_path / "datasets"
    assert settings.jars_dir == tmp_path / "jars"
    assert settings.stage_uri == "s3://elsewhere/stage"


def test_an_empty_variable_counts_as_not_set() -> None:
    assert load_settings({"LANDFALL_HOME": "", "LANDFALL_STAGE_URI": ""}) == load_settings({})


def test_reading_the_settings_imports_nothing_heavy() -> None:
    code = (
        "import sys, landfall.settings, landfall.local_s3;"
        "heavy = {'boto3', 'duckdb', 'pyspark', 'airflow', 'pyarrow'};"
        "print(sorted(heavy & sys.modules.keys()))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        cwd=REPOSITORY / "plugins",
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.strip() == "[]"
