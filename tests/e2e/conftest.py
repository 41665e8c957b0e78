"""Airflow, Spark, S3 and DuckDB as a user runs them, with state of their own for each test file."""

from __future__ import annotations

import io
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from landfall.local_s3 import LocalS3
from landfall.settings import load_settings

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Run:
    dag_id: str
    run_id: str
    state: str
    tasks: dict[str, str]


@dataclass
class Chain:
    """One Airflow with its dataset files, its landing and its warehouse."""

    home: Path
    server: LocalS3
    s3: Any
    extra_env: dict[str, str] = field(default_factory=dict)
    log: str = ""
    """All that Airflow said so far."""

    @property
    def datasets(self) -> Path:
        return self.home / "datasets"

    @property
    def env(self) -> dict[str, str]:
        return {
            **os.environ,
            "AIRFLOW__LOGGING__LOGGING_LEVEL": "INFO",
            "LANDFALL_HOME": str(self.home),
            "LANDFALL_JARS": str(load_settings().jars_dir),
            "LANDFALL_DATASETS": str(self.datasets),
            "AIRFLOW_HOME": str(self.home / "airflow"),
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{self.database}",
            "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "dags"),
            "AIRFLOW__CORE__PLUGINS_FOLDER": str(ROOT / "plugins"),
            "AIRFLOW_CONN_AWS_DEFAULT": self.server.connection_json(),
            "AIRFLOW_CONN_SPARK_DEFAULT": '{"conn_type": "spark", "host": "local[2]"}',
            "SPARK_LOCAL_DIRS": str(self.home / "tmp"),
            **self.extra_env,
        }

    @property
    def database(self) -> Path:
        return self.home / "airflow" / "airflow.db"

    def dataset(self, name: str, uri: str, **sections: Any) -> str:
        """Adds a dataset file; sections are merged into a minimal one."""
        document: dict[str, Any] = {
            "dataset": name,
            "start_date": "2026-01-01",
            "source": {"uri": uri, "partition": {"date": "{{ ds }}"}, "types": {"date": "date"}},
            "load": {"destination": f"{name}.main.{name}"},
            "run": {"retries": 0},
        }
        for section, keys in sections.items():
            document[section] = {**document.get(section, {}), **keys}
        (self.datasets / f"{name}.yaml").write_text(yaml.safe_dump(document, sort_keys=False))
        return name

    def ship(self, name: str) -> None:
        """Adds one of the dataset files that Landfall comes with, as it is."""
        shutil.copy(ROOT / "dags" / "datasets" / f"{name}.yaml", self.datasets)

    def prefix(self) -> str:
        return f"s3://landing/{uuid.uuid4().hex[:12]}"

    def put(self, uri: str, body: bytes | Mapping[str, Any]) -> None:
        bucket, _, key = uri.removeprefix("s3://").partition("/")
        content = body if isinstance(body, bytes) else parquet(body)
        self.s3.put_object(Bucket=bucket, Key=key, Body=content)

    def empty(self, bucket: str) -> None:
        """The next test file lands and stages under the same names."""
        for page in self.s3.get_paginator("list_objects_v2").paginate(Bucket=bucket):
            for entry in page.get("Contents", []):
                self.s3.delete_object(Bucket=bucket, Key=entry["Key"])

    def airflow(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self._call([str(Path(sys.executable).with_name("airflow")), *arguments])

    def landfall(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self._call([sys.executable, "-m", "landfall.cli", *arguments])

    def runs(self, *wanted: tuple[str, str | None] | tuple[str, str | None, Any]) -> list[Run]:
        """Runs of (dataset, date or None, conf), one after the other."""
        asked = json.dumps([(*run, None)[:3] for run in wanted])
        script = str(Path(__file__).with_name("run_dags.py"))
        done = self._call([sys.executable, script, asked, str(ROOT / "dags")])
        lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
        assert lines, done.stdout[-3000:] + done.stderr[-3000:]
        return [Run(**run) for run in json.loads(lines[-1].removeprefix("RESULT "))]

    def _call(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            command, env=self.env, cwd=self.home, capture_output=True, text=True, check=False
        )
        self.log += done.stdout + done.stderr
        return done

    def query(self, database: str, sql: str) -> list[tuple[Any, ...]]:
        path = self.home / "warehouse" / f"{database}.duckdb"
        with duckdb.connect(str(path), read_only=True) as con:
            return con.execute(sql).fetchall()

    def exists(self, database: str, table: str) -> bool:
        sql = f"SELECT 1 FROM information_schema.tables WHERE table_name = '{table}'"
        return bool(self.query(database, sql))

    def ledger(self, database: str) -> list[tuple[Any, ...]]:
        """Status, partition, rows, deleted and error of each run, oldest first."""
        columns = "status, load_partition, row_count, rows_deleted, error"
        return self.query(database, f"SELECT {columns} FROM main.ingest_runs ORDER BY run_at")

    def airflow_rows(self, sql: str) -> list[tuple[Any, ...]]:
        with sqlite3.connect(self.database) as con:
            return con.execute(sql).fetchall()


def parquet(columns: Mapping[str, Any]) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table(dict(columns)), sink)
    return sink.getvalue()


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Airflow's database as set-up makes it, once: it takes a quarter of a minute."""
    home = tmp_path_factory.mktemp("airflow")
    env = {**os.environ, "AIRFLOW_HOME": str(home)}
    env["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"] = f"sqlite:///{home}/airflow.db"
    airflow = str(Path(sys.executable).with_name("airflow"))
    subprocess.run([airflow, "db", "migrate"], env=env, capture_output=True, check=True)
    return home / "airflow.db"


@pytest.fixture(scope="module")
def chain(
    tmp_path_factory: pytest.TempPathFactory, s3_server: LocalS3, s3: Any, empty_database: Path
) -> Iterator[Chain]:
    home = tmp_path_factory.mktemp("chain")
    made = Chain(home, s3_server, s3)
    for folder in ("airflow", "datasets", "tmp"):
        (home / folder).mkdir()
    shutil.copy(empty_database, made.database)
    yield made
    for bucket in ("landing", "stage"):
        made.empty(bucket)
    shutil.rmtree(home)
