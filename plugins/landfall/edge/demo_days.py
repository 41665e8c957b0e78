"""Whole days of sales, landed through edge writers: the same objects, however often."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import Any

from landfall import retail
from landfall.edge.clock import SetClock
from landfall.edge.config import EdgeConfig
from landfall.edge.simulate import local_config, local_credentials, of_store
from landfall.edge.writer import EdgeWriter
from landfall.errors import Unreachable
from landfall.listing import split_uri
from landfall.local_s3 import LocalS3

_PATH = "region={store_region}/date={date}/batch_{unix}_{count}_{writer}.parquet"
_SHIP_SECONDS = 60.0
_AT_ONCE = 4


@dataclass(frozen=True)
class Landed:
    """What `land_days` found and did: the files of all days, and how many it had to write."""

    files: int
    written: int
    bytes: int


def land_days(
    client: Any,
    server: LocalS3,
    landing: str,
    days: Sequence[date],
    home: Path,
    *,
    stores: int = retail.STORES,
) -> Landed:
    """Each store writes one batch a day. What is there already is left as it is."""
    names = retail.stores(stores)
    before = _present(client, landing, days)
    missing = [store for store in names if not _has_all(before, store, days)]
    home.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home) as folder, local_credentials(server):
        config = local_config(server, Path(folder), landing=landing, path=_PATH)
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(lambda store: _write(of_store(config, store), store, days), missing))
    after = _present(client, landing, days) if missing else before
    mine = [size for (store, _), size in after.items() if store in set(names)]
    return Landed(len(mine), len(after) - len(before), sum(mine))


def _write(config: EdgeConfig, store: str, days: Sequence[date]) -> None:
    clock = SetClock(datetime.combine(min(days), time.min, UTC))
    writer = EdgeWriter(config, clock=clock, writer=store, ticking=False)
    for day in days:
        for record in retail.store_day(store, day):
            clock.advance_to(record["event_at"])
            writer.write(record)
        writer.flush()
    if not writer.close(drain_seconds=_SHIP_SECONDS):
        raise Unreachable(f"the batches of {store} could not be landed: {_last_error(config)}.")


def _last_error(config: EdgeConfig) -> str:
    from landfall.edge.status import read_status

    assert config.buffer.folder is not None
    return read_status(config.buffer.folder, []).last_error or "S3 is slow"


def _has_all(present: dict[tuple[str, date], int], store: str, days: Iterable[date]) -> bool:
    return all((store, day) in present for day in days)


def _present(client: Any, landing: str, days: Iterable[date]) -> dict[tuple[str, date], int]:
    """Sizes of what the stores have landed, by store and day."""
    bucket, prefix = split_uri(landing)
    sizes: dict[tuple[str, date], int] = {}
    pages = client.get_paginator("list_objects_v2")
    for day in days:
        for region in retail.REGIONS:
            folder = f"{prefix}region={region}/date={day.isoformat()}/"
            for page in pages.paginate(Bucket=bucket, Prefix=folder):
                for item in page.get("Contents", []):
                    found = re.search(r"_(S\d+)\.parquet$", item["Key"])
                    if found:
                        sizes[found[1], day] = item["Size"]
    return sizes
