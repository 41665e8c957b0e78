from __future__ import annotations

from collections import Counter
from datetime import UTC, date
from typing import Any

import pytest

from landfall import retail

DAY = date(2026, 2, 11)


@pytest.fixture(scope="module")
def records() -> list[dict[str, Any]]:
    return retail.store_day("S007", DAY)


def test_the_same_store_and_day_have_the_same_sales(records: list[dict[str, Any]]) -> None:
    assert retail.store_day("S007", DAY) == records


def test_another_store_or_day_has_others(records: list[dict[str, Any]]) -> None:
    others = [retail.store_day("S008", DAY), retail.store_day("S007", date(2026, 2, 12))]
    ids = {record["transaction_id"] for record in records}
    assert all(ids.isdisjoint(one["transaction_id"] for one in other) for other in others)


def test_a_day_is_one_batch_of_an_edge_writer(records: list[dict[str, Any]]) -> None:
    assert len(records) == retail.RECORDS_PER_DAY == 1000
    assert all(record.keys() == retail.COLUMNS.keys() for record in records)


def test_filter_and_deduplication_have_work(records: list[dict[str, Any]]) -> None:
    assert any(record["status"] == "void" for record in records)
    counts = Counter(record["transaction_id"] for record in records)
    assert sum(count > 1 for count in counts.values()) == retail.RESENT_PER_DAY


def test_a_repeated_transaction_has_two_times(records: list[dict[str, Any]]) -> None:
    moments = {(record["transaction_id"], record["event_at"]) for record in records}
    assert len(moments) == len(records)


def test_every_event_is_of_its_day_and_in_order(records: list[dict[str, Any]]) -> None:
    assert {record["event_at"].astimezone(UTC).date() for record in records} == {DAY}
    assert records == sorted(records, key=lambda record: record["event_at"])


def test_amounts_add_up(records: list[dict[str, Any]]) -> None:
    for record in records:
        expected = record["quantity"] * record["unit_price"] - record["discount"]
        assert record["amount"] == expected


def test_there_are_fifty_stores_ten_in_each_region() -> None:
    counts = Counter(retail.region_of(store) for store in retail.stores())
    assert counts == dict.fromkeys(retail.REGIONS, 10)
