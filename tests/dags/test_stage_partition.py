"""The Spark submit: what counts is the manifest."""

from __future__ import annotations

import uuid
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pytest
from airflow.sdk.exceptions import AirflowFailException

from landfall.dag import build_dag
from landfall.dataset import Dataset
from landfall.local_s3 import LocalS3

pytestmark = pytest.mark.slow


def test_spark_that_succeeds_without_a_manifest_has_failed(
    tmp_path: Path, s3_server: LocalS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    from landfall.settings import load_settings

    monkeypatch.setenv("LANDFALL_JARS", str(load_settings().jars_dir))
    monkeypatch.setenv("LANDFALL_HOME", str(tmp_path))
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", s3_server.connection_json())
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type": "spark", "host": "local[1]"}')
    dataset = Dataset.model_validate(
        {
            "dataset": "silent",
            "start_date": "2026-01-01",
            "source": {"uri": f"s3://landing/{uuid.uuid4().hex}", "partition": {"date": "x"}},
            "load": {"destination": "silent.main.silent"},
        }
    )
    dag = build_dag(dataset)
    stage: Any = dag.get_task("stage_partition")
    stage.application = str(tmp_path / "nothing.py")
    Path(stage.application).write_text("print('done')\n")
    stage.partition = {"date": "x"}
    context = {"dag": dag, "run_id": "manual", "ti": SimpleNamespace(try_number=1)}
    with pytest.raises(AirflowFailException, match="no manifest was published"):
        type(stage).execute.__wrapped__(stage, context)
    with duckdb.connect(str(tmp_path / "warehouse" / "silent.duckdb")) as con:
        ((status, error),) = con.execute("SELECT status, error FROM ingest_runs").fetchall()
    assert status == "failed"
    assert "no manifest was published" in error
