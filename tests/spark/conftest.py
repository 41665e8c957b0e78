"""One Spark session for the whole folder; each test has a landing of its own."""

from __future__ import annotations

import io
import itertools
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import stage_partition
from landfall import local_s3
from landfall.manifest import Deduplicate, Manifest, StageSpec
from landfall.partition import Partition
from landfall.s3_access import S3Access
from landfall.settings import load_settings


@pytest.fixture(scope="session")
def access(s3_server: local_s3.LocalS3) -> S3Access:
    return S3Access(s3_server.access_key, s3_server.secret_key, endpoint=s3_server.endpoint)


@pytest.fixture(scope="session")
def jars() -> list[Path]:
    found = sorted(load_settings().jars_dir.glob("*.jar"))
    if not found:
        pytest.fail("the jars are missing: run `make setup`")
    return found


@pytest.fixture(scope="session")
def spark(jars: list[Path]) -> Iterator[SparkSession]:
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", ",".join(map(str, jars)))
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "4")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@dataclass
class Landing:
    """A prefix in the landing bucket, and the stages made of it."""

    spark: SparkSession
    client: Any
    access: S3Access
    root: str
    attempts: Iterator[int] = field(default_factory=itertools.count)

    def put(self, path: str, table: pa.Table | Mapping[str, Any] | bytes) -> bytes:
        """Lands one file below the root; a table as Parquet."""
        body = table if isinstance(table, bytes) else parquet(table)
        self.client.put_object(Bucket="landing", Key=f"{self.root}/{path}", Body=body)
        return body

    def spec(
        self,
        partition: Mapping[str, Any],
        types: Mapping[str, str] | None = None,
        **changes: Any,
    ) -> StageSpec:
        values: dict[str, Any] = {
            "dataset": "tested",
            "source_uri": f"s3://landing/{self.root}",
            "files": "*.parquet",
            "partition": Partition.of(partition, types or {}),
            "stage_uri": f"s3://stage/{self.root}",
            "attempt": f"attempt-{next(self.attempts)}",
            "dag_run_id": "manual",
            "config_hash": "0",
        }
        return StageSpec(**{**values, **changes})

    def stage(
        self,
        partition: Mapping[str, Any],
        types: Mapping[str, str] | None = None,
        *,
        before_check: Callable[[], None] = lambda: None,
        **changes: Any,
    ) -> Manifest:
        return self.run(self.spec(partition, types, **changes), before_check=before_check)

    def run(self, spec: StageSpec, *, before_check: Callable[[], None] = lambda: None) -> Manifest:
        both = {"landing": self.access, "stage": self.access}
        return stage_partition.run(self.spark, spec, both, before_check=before_check)

    def rows(self, manifest: Manifest) -> list[dict[str, Any]]:
        return self.table(manifest).to_pylist()

    def table(self, manifest: Manifest) -> pa.Table:
        """What the staged files hold, read without Spark."""
        tables = [pq.read_table(io.BytesIO(self.object(file.uri))) for file in manifest.staged]
        return pa.concat_tables(tables)

    def object(self, uri: str) -> bytes:
        bucket, _, key = uri.removeprefix("s3://").partition("/")
        body: bytes = self.client.get_object(Bucket=bucket, Key=key)["Body"].read()
        return body

    def staged_keys(self) -> list[str]:
        """Everything that stands in the stage for this landing."""
        listed = self.client.list_objects_v2(Bucket="stage", Prefix=f"{self.root}/")
        return [entry["Key"] for entry in listed.get("Contents", [])]


def parquet(table: pa.Table | Mapping[str, Any]) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table if isinstance(table, pa.Table) else pa.table(table), sink)
    return sink.getvalue()


def once(*key: str, latest_by: str | None = None) -> Deduplicate:
    return Deduplicate(key, latest_by)


@pytest.fixture
def landing(spark: SparkSession, s3: Any, access: S3Access) -> Landing:
    return Landing(spark, s3, access, f"t{uuid.uuid4().hex[:10]}")
