"""The columns of the batches: Arrow types by name, and what a record must be to fit them."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import date, datetime
from decimal import Context, Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

from landfall.edge.column_types import TypeText, arrow_type
from landfall.edge.unfit import Unfit

Convert = Callable[[Any], Any]
_LARGEST_FLOAT32 = 3.4028235677973366e38
_EXACT = Context(prec=80)  # more digits than any decimal128 has
_MICROSECONDS = {"s": 1_000_000, "ms": 1_000}


class Columns:
    """A record becomes a row of these columns, or is `Unfit` with a reason."""

    def __init__(self, types: Mapping[str, TypeText], required: Collection[str] = ()) -> None:
        self.types = dict(types)
        self.schema = pa.schema([(name, arrow_type(text)) for name, text in types.items()])
        self._fields = [
            (field.name, _converter(field.type), field.name in required) for field in self.schema
        ]

    def row(self, record: Mapping[str, Any]) -> tuple[Any, ...]:
        if unknown := record.keys() - self.types.keys():
            raise Unfit(f"has {min(unknown)!r}, which is not a column")
        values = []
        for name, convert, required in self._fields:
            value = record.get(name)
            if value is not None:
                try:
                    value = convert(value)
                except ValueError as error:
                    raise Unfit(f"{name!r} {error}") from None
            elif required:
                raise Unfit(f"has no {name!r}, which is required")
            values.append(value)
        return tuple(values)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def _converter(kind: pa.DataType) -> Convert:
    if pa.types.is_string(kind):
        return _string
    if pa.types.is_boolean(kind):
        return _exactly(bool, "a truth value")
    if pa.types.is_integer(kind):
        return _integer(kind)
    if pa.types.is_floating(kind):
        return _floating(kind)
    if pa.types.is_decimal(kind):
        return _decimal(kind.precision, kind.scale)
    if pa.types.is_timestamp(kind):
        return _timestamp(kind)
    if pa.types.is_date(kind):
        return _date
    if pa.types.is_binary(kind):
        return _binary
    if pa.types.is_list(kind):
        return _list(_converter(kind.value_type))
    return _struct({field.name: _converter(field.type) for field in kind})


def _exactly(wanted: type, name: str) -> Convert:
    def convert(value: Any) -> Any:
        if isinstance(value, wanted):
            return value
        raise ValueError(f"is {_shown(value)}, not {name}")

    return convert


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"is {_shown(value)}, not a text")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ValueError(f"is {_shown(value)}, which UTF-8 cannot express") from None
    return value


def _integer(kind: pa.DataType) -> Convert:
    signed = pa.types.is_signed_integer(kind)
    low = -(2 ** (kind.bit_width - 1)) if signed else 0
    high = 2 ** (kind.bit_width - (1 if signed else 0)) - 1

    def convert(value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError(f"is {_shown(value)}, not a whole number")
        if not low <= value <= high:
            raise ValueError(f"is {_shown(value)}, which {kind} cannot hold")
        return value

    return convert


def _floating(kind: pa.DataType) -> Convert:
    largest = _LARGEST_FLOAT32 if kind.bit_width == 32 else math.inf

    def convert(value: Any) -> float:
        if not isinstance(value, int | float | Decimal) or isinstance(value, bool):
            raise ValueError(f"is {_shown(value)}, not a number")
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        too_large = math.isinf(number) and not (isinstance(value, float) and math.isinf(value))
        if too_large or largest < abs(number) < math.inf:
            raise ValueError(f"is {_shown(value)}, which {kind} cannot hold")
        return number

    return convert


def _decimal(precision: int, scale: int) -> Convert:
    limit, step = Decimal(1).scaleb(precision - scale), Decimal(1).scaleb(-scale)

    def convert(value: Any) -> Decimal:
        if not isinstance(value, int | float | Decimal | str) or isinstance(value, bool):
            raise ValueError(f"is {_shown(value)}, not a number")
        try:
            number = Decimal(str(value) if isinstance(value, float) else value)
        except InvalidOperation:
            raise ValueError(f"is {_shown(value)}, not a number") from None
        if not number.is_finite() or number.copy_abs() >= limit:
            kind = f"decimal128({precision}, {scale})"
            raise ValueError(f"is {_shown(value)}, which {kind} cannot hold")
        if _EXACT.quantize(number, step) != number:
            raise ValueError(f"is {_shown(value)}, which has more than {scale} decimals")
        return number

    return convert


def _timestamp(kind: pa.DataType) -> Convert:
    step = _MICROSECONDS.get(kind.unit, 1)

    def convert(value: Any) -> datetime:
        moment: datetime = _parsed(value, datetime, "an ISO 8601 time")
        if (moment.tzinfo is None) != (kind.tz is None):
            have = "a time zone" if moment.tzinfo else "no time zone"
            raise ValueError(f"is {_shown(value)}, which has {have}: {kind}")
        if moment.microsecond % step:
            raise ValueError(f"is {_shown(value)}, which is finer than {kind}")
        return moment

    return convert


def _date(value: Any) -> date:
    if isinstance(value, datetime):
        raise ValueError(f"is {_shown(value)}, not a date")
    day: date = _parsed(value, date, "an ISO 8601 date")
    return day


def _parsed(value: Any, kind: type[date], name: str) -> Any:
    if isinstance(value, kind):
        return value
    if isinstance(value, str):
        try:
            return kind.fromisoformat(value)
        except ValueError:
            pass
    raise ValueError(f"is {_shown(value)}, not {name}")


def _binary(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        try:
            return base64.b64decode(value, validate=True)
        except ValueError:
            pass
    raise ValueError(f"is {_shown(value)}, not base64")


def _list(convert: Convert) -> Convert:
    def convert_all(value: Any) -> list[Any]:
        if not isinstance(value, list | tuple):
            raise ValueError(f"is {_shown(value)}, not a list")
        return [None if one is None else convert(one) for one in value]

    return convert_all


def _struct(fields: Mapping[str, Convert]) -> Convert:
    def convert(value: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise ValueError(f"is {_shown(value)}, not an object")
        if unknown := value.keys() - fields.keys():
            raise ValueError(f"has {min(unknown)!r}, which is not one of its fields")
        return {
            name: None if value.get(name) is None else one(value[name])
            for name, one in fields.items()
        }

    return convert


def weigh(row: Iterable[Any]) -> int:
    """About how many bytes a row holds."""
    total = 0
    for value in row:
        kind = type(value)
        if kind is str or kind is bytes:
            total += len(value)
        elif kind is list or kind is dict:
            total += len(str(value))
        else:
            total += 8
    return total
