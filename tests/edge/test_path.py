from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone

import pytest

from landfall.edge.config import DEFAULT_PATH
from landfall.edge.path import PathTemplate, utc_day
from landfall.edge.unfit import Unfit
from landfall.partition import HIVE_NULL, hive_unescape

TEMPLATE = PathTemplate(DEFAULT_PATH)
DAY = date(2026, 2, 11)


@pytest.mark.parametrize(
    ("region", "folder"),
    [
        ("NW", "region=NW"),
        ("N/W", "region=N%2FW"),
        ("", f"region={HIVE_NULL}"),
        ("a=b", "region=a%3Db"),
        ("..", "region=.."),
        ("{writer}", "region=%7Bwriter}"),
        ("Süd", "region=Süd"),
        (7, "region=7"),
        (True, "region=true"),
    ],
)
def test_a_value_is_one_folder_escaped_as_hive_does(region: object, folder: str) -> None:
    made = TEMPLATE.folder({"store_region": region}, DAY)
    assert made == f"transactions/{folder}/date=2026-02-11"
    if isinstance(region, str) and region:
        assert hive_unescape(folder.removeprefix("region=")) == region


@pytest.mark.parametrize("record", [{}, {"store_region": None}])
def test_a_record_without_region_is_unfit(record: dict[str, object]) -> None:
    with pytest.raises(Unfit, match="has no 'store_region'"):
        TEMPLATE.folder(record, DAY)


@pytest.mark.parametrize("region", ["x" * 300, "a\0b", 1.5, ["NW"]])
def test_a_value_that_no_folder_can_have_is_unfit(region: object) -> None:
    with pytest.raises(Unfit):
        TEMPLATE.folder({"store_region": region}, DAY)


def test_the_name_tells_time_count_and_writer() -> None:
    name = TEMPLATE.name(at=datetime(2026, 2, 11, tzinfo=UTC), count=7, writer="ab12")
    assert name == "batch_1770768000_007_ab12.parquet"


@pytest.mark.parametrize(
    ("value", "day"),
    [
        ("2026-02-11T23:30:00Z", date(2026, 2, 11)),
        ("2026-02-11T23:30:00-02:00", date(2026, 2, 12)),
        (datetime(2026, 2, 11, 23, 30, tzinfo=timezone(timedelta(hours=-2))), date(2026, 2, 12)),
        (date(2026, 2, 11), date(2026, 2, 11)),
        ("2026-02-11", date(2026, 2, 11)),
    ],
)
def test_the_day_of_an_event_is_in_utc(value: object, day: date) -> None:
    assert utc_day("event_at", value) == day


@pytest.mark.parametrize("value", [None, "yesterday", 1770768000, "0001-01-01T00:00:00+05:00"])
def test_an_event_without_a_day_is_unfit(value: object) -> None:
    with pytest.raises(Unfit):
        utc_day("event_at", value)
