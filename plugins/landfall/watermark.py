"""Values of a watermark: their types, their order, and how far an overlap reaches back.

A watermark travels as text: in the dataset file, the trigger's conf, the manifest and the table.
Nothing here needs more than the standard library, so that it travels to a Spark cluster as it is.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum

from landfall.errors import ConfigError

Mark = datetime | date | int | str
Span = timedelta | int

_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*(second|minute|hour|day|week)s?", re.IGNORECASE)
_SPAN_FORM = 'write it like "15 minutes" (seconds, minutes, hours, days, weeks), or as a number'


class MarkType(StrEnum):
    """The types that a watermark column can have."""

    TIMESTAMP = "timestamp"
    TIMESTAMPTZ = "timestamptz"
    DATE = "date"
    INTEGER = "integer"
    STRING = "string"


def parse_mark(text: str, kind: MarkType, *, where: str) -> Mark:
    """The value behind the text; timestamps without a zone are UTC."""
    try:
        match kind:
            case MarkType.TIMESTAMP:
                return _utc(text).replace(tzinfo=None)
            case MarkType.TIMESTAMPTZ:
                return _utc(text)
            case MarkType.DATE:
                return _utc(text).date()
            case MarkType.INTEGER:
                return int(text)
            case MarkType.STRING:
                return text
    except ValueError:
        raise ConfigError(
            f"{text!r} is not a valid {kind.value}, which the watermark column is.",
            where=where,
            fix="write a value of the column's type, e.g. "
            f"{'42' if kind is MarkType.INTEGER else '2022-11-02'}.",
        ) from None


def _utc(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def mark_text(mark: Mark) -> str:
    """The one text of a value, which Spark, DuckDB and `parse_mark` read as that value."""
    return mark.isoformat(sep=" ") if isinstance(mark, datetime) else str(mark)


def same_form(text: str, kind: MarkType, *, where: str) -> str:
    """The text, in the form that every other watermark of the kind has."""
    return mark_text(parse_mark(text, kind, where=where))


def before(one: str, other: str, kind: MarkType) -> bool:
    """Whether one watermark's text means less than the other's."""
    left, right = (parse_mark(text, kind, where="watermark") for text in (one, other))
    return left < right  # type: ignore[operator]  # both are of the one kind


def greatest(kind: MarkType, *texts: str | None) -> str | None:
    """The greatest of those that are there."""
    found: str | None = None
    for text in texts:
        if text is not None and (found is None or before(found, text, kind)):
            found = text
    return found


def parse_span(text: str) -> Span:
    """`15 minutes` as a time span, `100` as a number. ValueError for anything else."""
    stripped = text.strip()
    if stripped.isdecimal():
        return int(stripped)
    found = _SPAN.fullmatch(stripped)
    if found is None:
        raise ValueError(f"{text!r} is not a span: {_SPAN_FORM}")
    return timedelta(**{f"{found[2].lower()}s": float(found[1])})


def check_span(span: Span, kind: MarkType, *, where: str) -> None:
    """Refuse a span that cannot be taken from a value of this type."""
    if not span:
        return
    of_time = kind in (MarkType.TIMESTAMP, MarkType.TIMESTAMPTZ, MarkType.DATE)
    if kind is MarkType.STRING:
        fix = "leave it out: texts have an order, but no distance."
    elif of_time != isinstance(span, timedelta):
        fix = f"write it like {'15 minutes' if of_time else '100'!r}."
    elif kind is MarkType.DATE and span != timedelta(days=getattr(span, "days", 0)):
        fix = "use whole days."
    else:
        return
    raise ConfigError(
        f"{span!s} does not fit a watermark column of type {kind.value}.", where=where, fix=fix
    )


def minus(text: str, span: Span, kind: MarkType, *, where: str) -> str:
    """The watermark that lies the span before this one."""
    check_span(span, kind, where=where)
    mark = parse_mark(text, kind, where=where)
    if not span or isinstance(mark, str):
        return mark_text(mark)
    try:
        return mark_text(mark - span)  # type: ignore[operator]  # check_span has compared them
    except OverflowError:  # before the first year there is nothing
        first = datetime.min.replace(tzinfo=UTC)
        return same_form(first.isoformat(), kind, where=where)


def furthest(now: datetime, ahead: Span, kind: MarkType) -> str | None:
    """The greatest watermark that a source clock may show now; None where there is no clock."""
    if isinstance(ahead, int) or kind in (MarkType.INTEGER, MarkType.STRING):
        return None
    moment = now.astimezone(UTC) + ahead
    return same_form(moment.isoformat(), kind, where="watermark.ahead")
