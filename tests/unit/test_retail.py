from __future__ import annotations

import io
from collections import Counter
from datetime import UTC, date, datetime
from typing import Any

import pyarrow.parquet as pq
import pytest

from landfall import retail

DAY = date(2026, 2, 11)


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pq.read_table(io.BytesIO(retail.batch("NW", DAY, 1))).to_pylist()
    return found


def test_the_same_batch_has_the_same_bytes() -> None:
    assert retail.batch("NW", DAY, 1) == retail.batch("NW", DAY, 1)


def test_another_region_day_or_number_is_another_batch() -> None:
    batches = [
        retail.batch("NW", DAY, 1),
        retail.batch("SW", DAY, 1),
        retail.batch("NW", date(2026, 2, 12), 1),
        retail.batch("NW", DAY, 2),
    ]
    assert len(set(batches)) == 4


def test_a_file_is_about_as_large_as_an_edge_writes_it() -> None:
    assert 80_000 <= len(retail.batch("NW", DAY, 1)) <= 90_000


def test_a_file_is_zstd_and_holds_no_partition_key() -> None:
    file = pq.ParquetFile(io.BytesIO(retail.batch("NW", DAY, 1)))
    assert file.metadata.row_group(0).column(0).compression == "ZSTD"
    assert not {"region", "date"} & set(file.schema_arrow.names)


def test_filter_and_deduplication_have_work(rows: list[dict[str, Any]]) -> None:
    assert any(row["status"] == "void" for row in rows)
    counts = Counter(row["transaction_id"] for row in rows)
    assert sum(count > 1 for count in counts.values()) == retail.RESENT_PER_FILE


def test_a_repeated_transaction_has_two_times(rows: list[dict[str, Any]]) -> None:
    moments = {(row["transaction_id"], row["event_at"]) for row in rows}
    assert len(moments) == len(rows)


def test_every_event_is_of_its_day(rows: list[dict[str, Any]]) -> None:
    assert {row["event_at"].astimezone(UTC).date() for row in rows} == {DAY}


def test_amounts_add_up(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        assert row["amount"] == row["quantity"] * row["unit_price"] - row["discount"]


def test_there_are_fifty_stores() -> None:
    assert len({store for region in retail.REGIONS for store in retail.stores(region)}) == 50


def test_a_batch_is_named_after_the_time_it_was_sent() -> None:
    sent = int(datetime(2026, 2, 11, 21, 30, 10, tzinfo=UTC).timestamp())
    assert retail.batch_name(DAY, 2) == f"batch_{sent}_002.parquet"
