from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from landfall.errors import ConfigError
from landfall.watermark import (
    MarkType,
    before,
    check_span,
    furthest,
    greatest,
    minus,
    parse_span,
    same_form,
)

NOW = datetime(2022, 11, 2, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("kind", "text", "form"),
    [
        (MarkType.TIMESTAMP, "2022-11-02", "2022-11-02 00:00:00"),
        (MarkType.TIMESTAMP, "2022-11-02T02:00:00+02:00", "2022-11-02 00:00:00"),
        (MarkType.TIMESTAMP, "2022-11-02 00:00:00.5", "2022-11-02 00:00:00.500000"),
        (MarkType.TIMESTAMPTZ, "2022-11-02 00:00:00", "2022-11-02 00:00:00+00:00"),
        (MarkType.TIMESTAMPTZ, "2022-11-02T02:00:00+02:00", "2022-11-02 00:00:00+00:00"),
        (MarkType.DATE, "2022-11-02", "2022-11-02"),
        (MarkType.INTEGER, "0042", "42"),
        (MarkType.STRING, "0042", "0042"),
    ],
)
def test_one_value_has_one_form(kind: MarkType, text: str, form: str) -> None:
    assert same_form(text, kind, where="here") == form
    assert same_form(form, kind, where="here") == form


@pytest.mark.parametrize(
    ("kind", "text"),
    [(MarkType.INTEGER, "2022-11-02"), (MarkType.TIMESTAMP, "42"), (MarkType.DATE, "soon")],
)
def test_a_value_of_another_type_is_refused(kind: MarkType, text: str) -> None:
    with pytest.raises(ConfigError, match=f"conf.until: '{text}' is not a valid {kind}"):
        same_form(text, kind, where="conf.until")


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        (MarkType.INTEGER, "9", "10"),
        (MarkType.STRING, "10", "9"),
        (MarkType.TIMESTAMP, "2022-11-02 00:00:00", "2022-11-02 00:00:00.000001"),
        (MarkType.DATE, "2022-11-02", "2022-11-10"),
    ],
)
def test_order_is_that_of_the_values(kind: MarkType, one: str, other: str) -> None:
    assert before(one, other, kind)
    assert not before(other, one, kind)
    assert greatest(kind, other, None, one) == other


def test_the_greatest_of_nothing_is_nothing() -> None:
    assert greatest(MarkType.INTEGER, None, None) is None


@pytest.mark.parametrize(
    ("kind", "text", "span", "earlier"),
    [
        (MarkType.TIMESTAMP, "2022-11-02 00:10:00", "15 minutes", "2022-11-01 23:55:00"),
        (MarkType.TIMESTAMPTZ, "2022-11-02 00:10:00", "1 hour", "2022-11-01 23:10:00+00:00"),
        (MarkType.DATE, "2022-11-02", "2 days", "2022-10-31"),
        (MarkType.INTEGER, "100", "40", "60"),
        (MarkType.STRING, "b", "0", "b"),
        (MarkType.TIMESTAMP, "0001-01-01 00:00:01", "1 week", "0001-01-01 00:00:00"),
        (MarkType.DATE, "0001-01-01", "1 week", "0001-01-01"),
    ],
)
def test_an_overlap_reaches_back(kind: MarkType, text: str, span: str, earlier: str) -> None:
    assert minus(text, parse_span(span), kind, where="overlap") == earlier


@pytest.mark.parametrize(
    ("kind", "span", "fix"),
    [
        (MarkType.STRING, "1 day", "leave it out"),
        (MarkType.INTEGER, "1 day", "'100'"),
        (MarkType.TIMESTAMP, "100", "'15 minutes'"),
        (MarkType.DATE, "36 hours", "whole days"),
    ],
)
def test_a_span_of_another_type_is_refused(kind: MarkType, span: str, fix: str) -> None:
    with pytest.raises(ConfigError, match=fix):
        check_span(parse_span(span), kind, where="load.watermark.overlap")


@pytest.mark.parametrize("text", ["", "1 fortnight", "-1 day", "1 day ago"])
def test_a_span_is_a_number_or_a_time(text: str) -> None:
    with pytest.raises(ValueError, match="is not a span"):
        parse_span(text)


def test_a_clock_may_run_ahead_by_so_much() -> None:
    assert furthest(NOW, timedelta(days=1), MarkType.TIMESTAMP) == "2022-11-03 12:00:00"
    assert furthest(NOW, timedelta(days=1), MarkType.DATE) == "2022-11-03"
    assert furthest(NOW, timedelta(days=1), MarkType.INTEGER) is None
