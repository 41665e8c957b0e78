"""JSON lines: one object a line."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

from landfall.edge.unfit import Unfit

_BOM = b"\xef\xbb\xbf"


def parse(line: bytes, max_line: int) -> dict[str, Any] | Unfit | None:
    """The record of a line; why it is none; None for an empty line."""
    text = line.removeprefix(_BOM).strip()
    if not text:
        return None
    if len(text) > max_line:
        return Unfit(f"is longer than input.max_line ({max_line} bytes)", _shown(text[:max_line]))
    try:
        # Numbers stay exact: a price of 0.1 must not become a float on its way to a decimal.
        record = json.loads(text.decode(), parse_float=Decimal, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        return Unfit(f"is not JSON: {error}", _shown(text))
    return record if isinstance(record, dict) else Unfit("is not a JSON object", _shown(text))


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not a number in JSON")


def _shown(line: bytes) -> str:
    return line.decode("utf-8", "backslashreplace")
