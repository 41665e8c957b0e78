"""The commands as a user runs them: a home of their own, a real S3 server, a real DuckDB file."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pytest

from landfall.cli import main
from landfall.load import LoadResult, load
from landfall.local_s3 import LocalS3
from landfall.warehouse.duckdb import DuckDBWarehouse
from tests.loading import Stage, rows

DATASET = """
dataset: retail_transactions
start_date: 2026-02-01
source:
  uri: {uri}
  partition: {{region: "*", date: "{{{{ ds }}}}"}}
  types: {{region: string, date: date}}
  {source}
load: {{destination: retail.main.transactions}}
"""


@dataclass(frozen=True)
class Output:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def text(self) -> str:
        """Everything, with every run of white space as one space."""
        return " ".join(f"{self.out}\n{self.err}".split())


@dataclass
class Commands:
    """One project: its home, its dataset files, its landing, its warehouse."""

    home: Path
    s3: Any
    server: LocalS3
    capsys: pytest.CaptureFixture[str]
    monkeypatch: pytest.MonkeyPatch
    prefix: str = field(default_factory=lambda: f"t{uuid.uuid4().hex[:10]}")

    @property
    def uri(self) -> str:
        return f"s3://landing/{self.prefix}"

    @property
    def warehouse(self) -> DuckDBWarehouse:
        return DuckDBWarehouse(self.home / "warehouse")

    @property
    def database(self) -> Path:
        return self.home / "warehouse" / "retail.duckdb"

    def dataset(self, uri: str | None = None, *, source: str = "", more: str = "") -> None:
        """Writes the dataset file, with `source` as one more line of its source."""
        text = DATASET.format(uri=uri or self.uri, source=source)
        (self.home / "datasets" / "retail_transactions.yaml").write_text(text + more)

    def connection(self, name: str, **document: Any) -> None:
        self.monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", json.dumps(document))

    def land(self, path: str, query: str) -> int:
        """Lands the query's rows as one Parquet file; its size."""
        file = self.home / "landed.parquet"
        with duckdb.connect() as con:
            con.execute(f"COPY ({query}) TO '{file}' (FORMAT parquet)")
        return self.put(path, file.read_bytes())

    def put(self, path: str, body: bytes) -> int:
        self.s3.put_object(Bucket="landing", Key=f"{self.prefix}/{path}", Body=body)
        return len(body)

    def land_day(self, day: str = "2026-02-11", query: str | None = None) -> int:
        """Two regions' files of one day, without the columns that the path holds; their size."""
        query = query or f"SELECT id, amount FROM ({rows(day)})"
        return sum(
            self.land(f"region={region}/date={day}/batch_1.parquet", query)
            for region in ("MW", "NE")
        )

    def load_day(self, day: str = "2026-02-11", query: str | None = None) -> LoadResult:
        """Loads ten rows of a day, staged without Spark."""
        stage = Stage(self.home / "stage")
        partition: Mapping[str, str] = {"region": "*", "date": day}
        return load(self.warehouse, stage.request(query or rows(day), partition=partition))

    def run(self, *arguments: str) -> Output:
        code = main(arguments)
        printed = self.capsys.readouterr()
        return Output(code, printed.out, printed.err)
