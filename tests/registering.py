"""A landing in real S3 whose files a lake registers."""

from __future__ import annotations

import io
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from landfall.dataset import Dataset
from landfall.landing import Landing, list_whole_landing
from landfall.listing import split_uri
from landfall.local_s3 import LocalS3
from landfall.partition import Partition
from landfall.register import RegisterRequest, RegisterResult, register
from landfall.run_rows import RunInfo
from landfall.s3 import S3Store
from landfall.s3_access import S3Access
from landfall.sql import Destination
from landfall.warehouse.base import Warehouse
from landfall.warehouse.s3_secret import create_s3_secret

SALES = Destination("retail", "main", "sales")


def access(server: LocalS3) -> S3Access:
    return S3Access(server.access_key, server.secret_key, endpoint=server.endpoint)


def parquet(columns: Mapping[str, Any]) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table(dict(columns)), sink)
    return sink.getvalue()


@dataclass
class Shop:
    """A dataset of mode register with a prefix of its own."""

    server: LocalS3
    s3: Any
    warehouse: Warehouse
    prefix: str = field(default_factory=lambda: f"sales-{uuid4().hex[:8]}")
    more: dict[str, Any] = field(default_factory=dict)

    def dataset(self) -> Dataset:
        document: dict[str, Any] = {
            "dataset": "sales",
            "start_date": "2026-02-01",
            "source": {
                "uri": f"s3://landing/{self.prefix}",
                "partition": {"region": "*", "date": "{{ ds }}"},
                "types": {"date": "date"},
            },
            "load": {"destination": SALES.text, "mode": "register"},
        }
        for section, keys in self.more.items():
            document[section] = {**document.get(section, {}), **keys}
        return Dataset.model_validate(document)

    def put(self, path: str, columns: Mapping[str, Any] | bytes) -> str:
        key = f"{self.prefix}/{path}"
        body = columns if isinstance(columns, bytes) else parquet(columns)
        self.s3.put_object(Bucket="landing", Key=key, Body=body)
        return key

    def put_many(self, bodies: Mapping[str, bytes]) -> None:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda item: self.put(*item), bodies.items()))

    def listing(self) -> Landing:
        source = self.dataset().source
        store = S3Store(self.s3, split_uri(source.uri)[0], connection="aws_default")
        return list_whole_landing(store, source, datetime.now(UTC))

    def request(self) -> RegisterRequest:
        dataset = self.dataset()
        partition = {"region": "*", "date": "2026-02-11"}
        return RegisterRequest(
            dataset=dataset.dataset,
            source_uri=dataset.source.uri,
            config_hash=dataset.config_hash,
            partition=Partition.of(partition, dataset.source.types),
            landing=self.listing(),
            destination=SALES,
            ledger="ingest_runs",
            on_schema_change=dataset.contract.on_schema_change,
            run=RunInfo("sales", "manual", 1, datetime.now(UTC)),
        )

    def run(self) -> RegisterResult:
        return register(self.warehouse, self.request(), access(self.server))

    def query(self, text: str) -> list[Any]:
        """What a reader of the lake sees who may read the landing."""
        return self._run(text, read_only=True)

    def execute(self, text: str) -> list[Any]:
        return self._run(text, read_only=False)

    def _run(self, text: str, *, read_only: bool) -> list[Any]:
        with self.warehouse.connect("retail", read_only=read_only) as con:
            create_s3_secret(con, access(self.server), "s3://landing/", name="reader")
            return con.execute(text).fetchall()

    def ids(self, where: str = "TRUE") -> list[int]:
        rows = self.query(f"SELECT id FROM retail.main.sales WHERE {where} ORDER BY id")
        return [row[0] for row in rows]
