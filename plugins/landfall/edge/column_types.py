"""Arrow types as a config writes them, and which ones a first batch of records has."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import pyarrow as pa

TypeText: TypeAlias = Any
"""`int32`, `timestamp[us, tz=UTC]`, …; `[type]` for a list, `{name: type}` for a struct."""

_PLAIN = {"string": "string", "bool": "bool", "boolean": "bool", "binary": "binary"}
_PLAIN |= {"float32": "float32", "float64": "float64", "double": "float64"}
_PLAIN |= {"date": "date32", "date32": "date32"}
_PLAIN |= {name: name for size in (8, 16, 32, 64) for name in (f"int{size}", f"uint{size}")}
_TIMESTAMP = re.compile(r"timestamp\[(s|ms|us|ns)(?:,\s*tz=UTC)?\]")
_DECIMAL = re.compile(r"decimal(?:128)?\((\d+),\s*(\d+)\)")
_KNOWN = "string, bool, int8 … int64, uint8 … uint64, float32, float64, date32, binary, "
_KNOWN += "timestamp[us], timestamp[us, tz=UTC], decimal128(10, 2), [type], {name: type}"


def check_type(text: TypeText) -> None:
    """Raises ValueError for what is no type; needs no Arrow."""
    if isinstance(text, list) and len(text) == 1:
        check_type(text[0])
    elif isinstance(text, Mapping) and text:
        for inner in text.values():
            check_type(inner)
    elif isinstance(text, str) and (found := _DECIMAL.fullmatch(text)):
        precision, scale = int(found[1]), int(found[2])
        if not 1 <= precision <= 38 or scale > precision:
            raise ValueError(f"{text!r}: 1 to 38 digits, and not more of them decimals")
    elif not isinstance(text, str) or not (text in _PLAIN or _TIMESTAMP.fullmatch(text)):
        raise ValueError(f"{text!r} is not a type: use one of {_KNOWN}")


def arrow_type(text: TypeText) -> pa.DataType:
    """The Arrow type of a checked text."""
    import pyarrow as pa

    if isinstance(text, list):
        return pa.list_(arrow_type(text[0]))
    if isinstance(text, Mapping):
        return pa.struct([(name, arrow_type(inner)) for name, inner in text.items()])
    if found := _TIMESTAMP.fullmatch(text):
        return pa.timestamp(found[1], tz="UTC" if "tz=" in text else None)
    if found := _DECIMAL.fullmatch(text):
        return pa.decimal128(int(found[1]), int(found[2]))
    return pa.type_for_alias(_PLAIN[text])


def inferred(records: Iterable[Mapping[str, Any]]) -> dict[str, TypeText]:
    """The columns of these records, in the order in which they first appear.

    The first value that says a type decides, except that whole numbers give way to others. What
    says none (null, an empty list) counts as text.
    """
    types: dict[str, TypeText | None] = {}
    for record in records:
        for name, value in record.items():
            types[name] = _merged(types.get(name), _of(value))
    return {name: _settled(text) for name, text in types.items()}


def _of(value: Any) -> TypeText | None:
    match value:
        case None:
            return None
        case bool():
            return "bool"
        case int():
            return "int64"
        case float() | Decimal():
            return "float64"
        case bytes():
            return "binary"
        case datetime():
            return "timestamp[us, tz=UTC]" if value.tzinfo else "timestamp[us]"
        case date():
            return "date32"
        case list() | tuple():
            inner: TypeText | None = None
            for one in value:
                inner = _merged(inner, _of(one))
            return [inner]
        case Mapping():
            return {str(name): _of(one) for name, one in value.items()} or None
        case _:
            return "string"


def _merged(one: TypeText | None, two: TypeText | None) -> TypeText | None:
    if one is None:
        return two
    if isinstance(one, list) and isinstance(two, list):
        return [_merged(one[0], two[0])]
    if isinstance(one, dict) and isinstance(two, dict):
        names = dict.fromkeys([*one, *two])
        return {name: _merged(one.get(name), two.get(name)) for name in names}
    return two if (one, two) == ("int64", "float64") else one


def _settled(text: TypeText | None) -> TypeText:
    if isinstance(text, list):
        return [_settled(text[0])]
    if isinstance(text, dict):
        return {name: _settled(inner) for name, inner in text.items()}
    return text or "string"
