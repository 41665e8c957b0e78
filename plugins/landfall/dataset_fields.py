"""The kinds of values in a dataset file, and what each of them must look like."""

from __future__ import annotations

import re
from datetime import date, datetime
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from landfall.watermark import parse_span

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_S3_URI = re.compile(r"s3://[a-z0-9][a-z0-9.\-]{1,61}[a-z0-9](/[^\s]*)?")


def _identifier(text: str) -> str:
    if not _IDENTIFIER.fullmatch(text):
        raise ValueError(
            f"{text!r} is not an identifier: use letters, digits and underscores, "
            "starting with a letter or an underscore"
        )
    return text


def _destination(text: str) -> str:
    parts = text.split(".")
    if len(parts) != 3:
        raise ValueError(f"write {text!r} as database.schema.table")
    for part in parts:
        _identifier(part)
    return text


def _s3_uri(text: str) -> str:
    if not _S3_URI.fullmatch(text) or any(c in text for c in "*?["):
        raise ValueError(f"{text!r} is not a prefix in S3: write it as s3://bucket/prefix")
    return text.rstrip("/")


def _source_uri(text: str) -> str:
    """A prefix, a glob or one file; a glob within the bucket's name is none."""
    if not _S3_URI.fullmatch(text):
        raise ValueError(f"{text!r} is not in S3: write it as s3://bucket/prefix")
    return text.rstrip("/")


def is_glob(uri: str) -> bool:
    return any(character in uri for character in "*?[")


def _mark(value: Any) -> Any:
    """YAML reads a date or a number where a watermark stands: take it as the text it was."""
    if isinstance(value, bool) or not isinstance(value, date | int):
        return value
    return value.isoformat(sep=" ") if isinstance(value, datetime) else str(value)


def _span(text: str) -> str:
    parse_span(text)
    return text


def cron(text: str | None) -> str | None:
    if text is None:
        return None
    from croniter import croniter

    if not text.startswith("@") and not croniter.is_valid(text):
        raise ValueError(f'{text!r} is not a cron expression: write it like "30 6 * * *"')
    presets = ("@hourly", "@daily", "@weekly", "@monthly", "@yearly")
    if text.startswith("@") and text not in presets:
        raise ValueError(f"{text!r} is not a preset: use one of {', '.join(presets)}, or a cron")
    return text


Identifier = Annotated[str, AfterValidator(_identifier)]
DestinationName = Annotated[str, AfterValidator(_destination)]
S3Uri = Annotated[str, AfterValidator(_s3_uri)]
SourceUri = Annotated[str, AfterValidator(_source_uri)]
MarkText = Annotated[str, BeforeValidator(_mark), Field(min_length=1)]
SpanText = Annotated[str, BeforeValidator(_mark), AfterValidator(_span)]


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)
