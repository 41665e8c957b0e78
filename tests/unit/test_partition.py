from __future__ import annotations

from datetime import date, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from landfall.errors import ConfigError
from landfall.partition import (
    HIVE_NULL,
    KeyType,
    Partition,
    PartitionKey,
    hive_escape,
    hive_unescape,
    parse_value,
)


@given(st.text(min_size=1).filter(lambda text: text != HIVE_NULL))
def test_any_text_survives_a_folder_name(text: str) -> None:
    assert hive_unescape(hive_escape(text)) == text


@given(st.text(min_size=1))
def test_an_escaped_value_is_one_folder(text: str) -> None:
    assert not set(hive_escape(text)) & set("/=*?[")


def test_null_and_empty_are_hives_default_partition() -> None:
    assert hive_escape(None) == hive_escape("") == HIVE_NULL
    assert hive_unescape(HIVE_NULL) is None


def test_escapes_of_utf_8_bytes_are_decoded_together() -> None:
    assert hive_unescape("caf%C3%A9") == "café"


@pytest.mark.parametrize(
    ("text", "key_type", "value"),
    [
        ("01", KeyType.STRING, "01"),
        ("01", KeyType.INTEGER, 1),
        ("2026-02-11", KeyType.DATE, date(2026, 2, 11)),
        ("2026-02-11 06:30:00", KeyType.TIMESTAMP, datetime(2026, 2, 11, 6, 30)),
        ("1.5", KeyType.DOUBLE, 1.5),
        ("TRUE", KeyType.BOOLEAN, True),
        (None, KeyType.DATE, None),
    ],
)
def test_a_value_has_the_stated_type(text: str | None, key_type: KeyType, value: Any) -> None:
    parsed = parse_value(text, key_type, key="k")
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("text", "key_type"),
    [
        ("NW", KeyType.INTEGER),
        ("11.02.2026", KeyType.DATE),
        ("soon", KeyType.TIMESTAMP),
        ("much", KeyType.DOUBLE),
        ("yes", KeyType.BOOLEAN),
    ],
)
def test_a_value_of_another_type_is_refused_with_key_and_fix(text: str, key_type: KeyType) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_value(text, key_type, key="k")
    assert repr(text) in str(caught.value)
    assert "'k'" in str(caught.value)
    assert "source.types.k" in str(caught.value)


def test_a_partition_checks_its_values_when_it_is_made() -> None:
    with pytest.raises(ConfigError, match="not a valid date"):
        Partition.of({"date": "yesterday"}, {"date": "date"})


def test_outer_keys_are_not_named() -> None:
    partition = Partition.of({"region": "*", "date": "2026-02-11"}, {"date": "date"})
    assert [key.name for key in partition.named] == ["date"]
    assert partition.columns == "date"
    assert partition.values == "2026-02-11"
    assert partition.label == "date=2026-02-11"


def test_a_partition_without_named_keys_is_the_whole_landing() -> None:
    assert Partition.of({}, {}).label == "(all)"
    assert Partition.of({"region": "*"}, {}).label == "(all)"


def test_two_spellings_of_one_value_have_one_label() -> None:
    labels = {Partition.of({"month": m}, {"month": "integer"}).label for m in ("9", "09")}
    assert labels == {"month=9"}


def test_the_order_of_a_list_does_not_matter_to_the_label() -> None:
    labels = {Partition.of({"region": r}, {}).label for r in (("SW", "NW"), ("NW", "SW"))}
    assert labels == {"region=NW,SW"}


def test_a_comma_within_a_value_is_not_a_list() -> None:
    assert Partition.of({"city": "A,B"}, {}).label != Partition.of({"city": ["A", "B"]}, {}).label


def test_a_space_is_looked_for_in_both_spellings() -> None:
    key = PartitionKey("city", KeyType.STRING, ("New York",))
    assert key.folder_names() == ["city=New York", "city=New%20York"]


def test_the_default_partition_is_a_folder_of_its_own() -> None:
    partition = Partition.of({"region": HIVE_NULL}, {})
    assert partition.named[0].typed == (None,)
    assert partition.named[0].folder_names() == [f"region={HIVE_NULL}"]


def test_a_partition_survives_json() -> None:
    partition = Partition.of(
        {"region": "*", "date": ["2026-02-11", HIVE_NULL], "n": "01"},
        {"date": "date", "n": "integer"},
    )
    assert Partition.from_json(partition.to_json()) == partition
