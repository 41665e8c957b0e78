from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from landfall.edge.column_types import inferred
from landfall.edge.columns import Columns
from landfall.edge.lines import parse
from landfall.edge.unfit import Unfit

MOMENT = datetime(2026, 2, 11, 12, 0, 0, 5000, tzinfo=UTC)


@pytest.mark.parametrize(
    ("kind", "value", "fitted"),
    [
        ("string", "ä", "ä"),
        ("bool", True, True),
        ("int16", -32768, -32768),
        ("uint8", 255, 255),
        ("float64", 3, 3.0),
        ("float32", Decimal("1.5"), 1.5),
        ("decimal128(4, 2)", "12.3", Decimal("12.3")),
        ("decimal128(4, 2)", Decimal("12.300"), Decimal("12.3")),
        ("decimal128(4, 2)", 0.1, Decimal("0.1")),
        ("date32", "2026-02-11", date(2026, 2, 11)),
        ("timestamp[us, tz=UTC]", "2026-02-11T12:00:00.005Z", MOMENT),
        ("timestamp[ms]", "2026-02-11T12:00:00.005", MOMENT.replace(tzinfo=None)),
        ("binary", "aGk=", b"hi"),
        (["int8"], [1, None], [1, None]),
        ({"a": "int8", "b": "string"}, {"a": 1}, {"a": 1, "b": None}),
        ("int8", None, None),
    ],
)
def test_a_value_fits(kind: Any, value: Any, fitted: Any) -> None:
    columns = Columns({"x": kind})
    row = columns.row({"x": value})
    assert row == (fitted,)
    assert pa.array(row, columns.schema.field("x").type).to_pylist() == [fitted]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("string", 5),
        ("string", "\ud800"),
        ("bool", 1),
        ("int16", 32768),
        ("int16", 1.0),
        ("int16", True),
        ("uint8", -1),
        ("float64", "1.5"),
        ("float64", 10**400),
        ("float32", 1e39),
        ("decimal128(4, 2)", "12.345"),
        ("decimal128(4, 2)", 100),
        ("decimal128(4, 2)", "NaN"),
        ("decimal128(4, 2)", "one"),
        ("date32", "11.02.2026"),
        ("date32", MOMENT),
        ("timestamp[us, tz=UTC]", "2026-02-11T12:00:00"),
        ("timestamp[us]", "2026-02-11T12:00:00Z"),
        ("timestamp[s, tz=UTC]", "2026-02-11T12:00:00.5Z"),
        ("timestamp[us, tz=UTC]", 1770768000),
        ("binary", "not base64!"),
        (["int8"], 5),
        (["int8"], ["x"]),
        ({"a": "int8"}, {"b": 1}),
    ],
)
def test_a_value_that_does_not_fit_is_named(kind: Any, value: Any) -> None:
    with pytest.raises(Unfit, match=r"^'x' "):
        Columns({"x": kind}).row({"x": value})


def test_a_field_that_is_no_column_is_unfit() -> None:
    with pytest.raises(Unfit, match="has 'y', which is not a column"):
        Columns({"x": "int8"}).row({"x": 1, "y": 2})


def test_a_required_column_must_be_there() -> None:
    with pytest.raises(Unfit, match="has no 'x', which is required"):
        Columns({"x": "int8"}, required=["x"]).row({})


def test_columns_come_from_the_first_records() -> None:
    types = inferred(
        [
            {"a": None, "b": 1, "c": [], "d": {"e": None}},
            {"a": "x", "b": Decimal("1.5"), "c": [1], "d": {"f": True}, "g": None},
            {"b": "now a text"},
        ]
    )
    assert types == {
        "a": "string",
        "b": "float64",
        "c": ["int64"],
        "d": {"e": "string", "f": "bool"},
        "g": "string",
    }


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"{", "is not JSON"),
        (b'{"a": NaN}', "NaN is not a number in JSON"),
        (b"[1]", "is not a JSON object"),
        (b'{"a": "\xff"}', "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b'{"a": "' + b"x" * 200_000 + b'"}', "is longer than input.max_line"),
    ],
)
def test_a_line_that_is_no_record_says_why(line: bytes, said: str) -> None:
    found = parse(line, 150_000)
    assert isinstance(found, Unfit)
    assert said in str(found)
    assert found.line


def test_numbers_of_a_line_stay_exact() -> None:
    assert parse(b'\xef\xbb\xbf{"price": 0.1}\r\n', 100) == {"price": Decimal("0.1")}


def test_an_empty_line_is_nothing() -> None:
    assert parse(b" \r\n", 100) is None
