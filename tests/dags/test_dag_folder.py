"""The DAG folder: what the scheduler sees of dataset files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]

PARSE = """
import json, sys, time
started = time.monotonic()
from airflow.dag_processing.dagbag import DagBag
bag = DagBag(dag_folder=sys.argv[1])
print("RESULT " + json.dumps({
    "seconds": time.monotonic() - started,
    "dags": {d.dag_id: [t.task_id for t in d.topological_sort()] for d in bag.dags.values()},
    "errors": list(bag.import_errors.values()),
    "heavy": sorted({"pyspark", "duckdb", "pyarrow", "pandas"} & set(sys.modules)),
    "paused": {d.dag_id: d.is_paused_upon_creation for d in bag.dags.values()},
    "timetable": {d.dag_id: type(d.timetable).__name__ for d in bag.dags.values()},
}))
"""


def parse(tmp_path: Path, datasets: Path | None = None) -> dict:
    env = {
        **os.environ,
        "AIRFLOW_HOME": str(tmp_path / "airflow"),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(ROOT / "plugins"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "PYTHONPATH": str(ROOT / "plugins"),
    }
    if datasets is not None:
        env["LANDFALL_DATASETS"] = str(datasets)
    done = subprocess.run(
        [sys.executable, "-c", PARSE, str(ROOT / "dags")], env=env, capture_output=True, text=True
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert lines, done.stderr[-3000:]
    return json.loads(lines[0].removeprefix("RESULT "))


def dataset(name: str, **more: object) -> dict:
    return {
        "dataset": name,
        "start_date": "2026-01-01",
        "source": {"uri": f"s3://landing/{name}", "partition": {"date": "{{ ds }}"}},
        "load": {"destination": f"lake.main.{name}"},
        **more,
    }


def test_every_shipped_dataset_becomes_a_dag_of_three_tasks(tmp_path: Path) -> None:
    result = parse(tmp_path)
    assert result["errors"] == []
    chain = ["wait_for_partition", "stage_partition", "load_partition"]
    names = ("retail_transactions", "pypi_downloads", "taxi_trips")
    assert result["dags"] == dict.fromkeys(names, chain)
    assert result["paused"] == {name: name != "retail_transactions" for name in names}
    # A run after midnight must load the day before.
    assert set(result["timetable"].values()) == {"CronDataIntervalTimetable"}


def test_a_hundred_datasets_parse_in_time_and_without_heavy_imports(tmp_path: Path) -> None:
    for n in range(100):
        (tmp_path / f"d{n:03}.yaml").write_text(yaml.safe_dump(dataset(f"d{n:03}")))
    result = parse(tmp_path, tmp_path)
    assert len(result["dags"]) == 100
    assert result["heavy"] == []
    assert result["seconds"] < 30  # the limit that Airflow itself sets by default


def test_a_bad_file_is_an_import_error_and_takes_no_other_dataset_down(tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text(yaml.safe_dump(dataset("good")))
    (tmp_path / "bad.yaml").write_text(yaml.safe_dump(dataset("bad", sorce={})))
    (tmp_path / "worse.yaml").write_text("dataset: [")
    result = parse(tmp_path, tmp_path)
    assert set(result["dags"]) == {"good"}
    (error,) = result["errors"]
    assert "bad.yaml: unknown key 'sorce'. Did you mean 'source'?" in error
    assert "worse.yaml: is not valid YAML" in error


def test_two_datasets_that_would_delete_each_others_rows_are_refused(tmp_path: Path) -> None:
    same = {"load": {"destination": "lake.main.same"}}
    (tmp_path / "a.yaml").write_text(yaml.safe_dump(dataset("a", **same)))
    (tmp_path / "b.yaml").write_text(yaml.safe_dump(dataset("b", **same)))
    result = parse(tmp_path, tmp_path)
    assert set(result["dags"]) == {"a"}
    assert "b.yaml: load.destination lake.main.same is written by a.yaml too" in result["errors"][0]


def test_the_library_is_never_run_as_top_level_modules(tmp_path: Path) -> None:
    """Without the ignore file, plugins/landfall/warehouse/duckdb.py would shadow duckdb."""
    code = (
        "from airflow.plugins_manager import *; import airflow.plugins_manager as p;"
        "getattr(p, 'ensure_plugins_loaded', getattr(p, '_get_plugins', lambda: 0))();"
        "import duckdb; print(duckdb.__version__)"
    )
    env = {
        **os.environ,
        "AIRFLOW_HOME": str(tmp_path / "airflow"),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(ROOT / "plugins"),
    }
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip().splitlines()[-1] == "1.5.5"
