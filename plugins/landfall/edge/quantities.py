"""Sizes and durations as people write them in a config: `10 GB`, `7 days`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator

_BYTES = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_BYTES |= {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}
_SECONDS = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_SECONDS |= {"second": 1.0, "minute": 60.0, "hour": 3600.0, "day": 86400.0}
_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]+)")


def _reader(units: Mapping[str, float], example: str) -> Callable[[Any], float]:
    def read(value: Any) -> float:
        if isinstance(value, int | float) and not isinstance(value, bool):
            number = float(value)
        else:
            found = _QUANTITY.fullmatch(str(value).strip())
            unit = found[2].lower() if found else ""
            scale = units.get(unit) or units.get(unit.removesuffix("s"))
            if found is None or scale is None:
                raise ValueError(f"{value!r} has no meaning here: write it like {example}")
            number = float(found[1]) * scale
        if not math.isfinite(number) or number <= 0:
            raise ValueError(f"{value!r} is not above zero: write it like {example}")
        return number

    return read


def _bytes(value: Any) -> int:
    return max(1, round(_reader(_BYTES, "10 GB")(value)))


Bytes = Annotated[int, BeforeValidator(_bytes)]
"""A size in bytes."""
Seconds = Annotated[float, BeforeValidator(_reader(_SECONDS, "10 s"))]
"""A duration in seconds."""
