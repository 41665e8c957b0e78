"""Looking at what writers have written."""

from __future__ import annotations

import io
import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from landfall import retail
from landfall.edge.writer import EdgeWriter

NOON = datetime(2026, 2, 11, 12, tzinfo=UTC)


def sales(number: int, *, store: str = "S001", seed: str = "test") -> list[dict[str, Any]]:
    chance = random.Random(f"{seed}/{store}")
    return [retail.sale(chance, store, NOON + timedelta(seconds=n)) for n in range(number)]


def as_json(record: dict[str, Any]) -> str:
    plain = {
        name: value.isoformat() if isinstance(value, datetime) else value
        for name, value in record.items()
    }
    return json.dumps(plain, default=str)


def crash(writer: EdgeWriter) -> None:
    """Ends it as a kill would: what is not durable is gone."""
    writer.wait_until_shipped(60)
    for shipper in writer._shippers:
        shipper.stop(60)
    writer.buffer.close()


def ids(records: list[dict[str, Any]]) -> list[str]:
    return sorted(record["transaction_id"] for record in records)


def files_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*.parquet"))


def rows_in(folder: Path) -> list[dict[str, Any]]:
    """All rows of all files, read one by one: a partition folder adds nothing."""
    rows: list[dict[str, Any]] = []
    for name in files_in(folder):
        rows += pq.ParquetFile(folder / name).read().to_pylist()
    return rows


def objects_in(s3: Any, bucket: str) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket):
        for item in page.get("Contents", []):
            if not item["Key"].endswith("/"):
                found[item["Key"]] = s3.get_object(Bucket=bucket, Key=item["Key"])["Body"].read()
    return found


def rows_in_bucket(s3: Any, bucket: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for body in objects_in(s3, bucket).values():
        rows += pq.read_table(io.BytesIO(body)).to_pylist()
    return rows


def dead_letters(buffer: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for path in sorted((buffer / "dead_letters").glob("*.jsonl"))
        for line in path.read_text().splitlines()
    ]
