"""Where a batch goes: the path template of the config, filled in and escaped as Hive does."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import cached_property, lru_cache
from typing import Any

from landfall.edge.unfit import Unfit
from landfall.partition import hive_escape

DATE = "date"
_OF_THE_BATCH = ("unix", "count", "writer")
_PLACE = re.compile(r"\{([^{}]*)\}")
_FIELD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FOLDER = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=\{(\w+)\}")
# S3 takes keys of 1,024 bytes, most file systems names of 255; the file name needs its share.
_LONGEST_FOLDER = 240


@dataclass(frozen=True)
class PathTemplate:
    """Folders made of a record's fields and its date, then a file name made of the batch's."""

    text: str

    def __post_init__(self) -> None:
        *folders, name = self.text.split("/")
        for place in _PLACE.findall(self.text):
            if not _FIELD.fullmatch(place):
                raise ValueError(f"{{{place}}} is not a field's name")
        if re.search(r"[{}]", _PLACE.sub("", self.text)):
            raise ValueError("a brace stands alone: write a field as {name}")
        if not self.text.endswith(".parquet"):
            raise ValueError("the path must end with .parquet")
        if any(part in ("", ".", "..") for part in folders):
            raise ValueError("a folder of the path is empty, '.' or '..'")
        for folder in folders:
            places = _PLACE.findall(folder)
            if places and not _FOLDER.fullmatch(folder):
                raise ValueError(f"write the folder {folder!r} as key={{field}}")
            if set(places) & set(_OF_THE_BATCH):
                raise ValueError(f"{folder!r}: {', '.join(_OF_THE_BATCH)} belong in the file name")
        named = _PLACE.findall(name)
        if unknown := set(named) - set(_OF_THE_BATCH):
            raise ValueError(
                f"{{{min(unknown)}}} cannot stand in the file name: make it a folder, key={{field}}"
            )
        if not {"count", "writer"} <= set(named):
            raise ValueError(
                "the file name needs {count} and {writer}: without them names would collide"
            )

    @cached_property
    def _places(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(_PLACE.findall(self.text.rpartition("/")[0])))

    @cached_property
    def fields(self) -> tuple[str, ...]:
        """The record's fields that the folders are made of."""
        return tuple(place for place in self._places if place != DATE)

    @property
    def uses_date(self) -> bool:
        return DATE in self._places

    @cached_property
    def keys(self) -> dict[str, str]:
        """Each Hive key, and the place that its value comes from."""
        folders = (_FOLDER.fullmatch(folder) for folder in self.text.split("/")[:-1])
        return {found[1]: found[2] for found in folders if found}

    def folder(self, record: Mapping[str, Any], day: date | None) -> str:
        """The folder of a record; raises `Unfit` when it lacks a field."""
        texts = tuple([_text(name, record.get(name)) for name in self.fields])
        return _folder(self, texts, day)

    def name(self, *, at: datetime, count: int, writer: str) -> str:
        """The file name of a batch. Count and writer alone make it unique."""
        values = {"unix": str(int(at.timestamp())), "count": f"{count:03d}", "writer": writer}
        return _PLACE.sub(lambda place: values[place[1]], self.text.rpartition("/")[2])


@lru_cache(maxsize=1024)
def _folder(template: PathTemplate, texts: tuple[str, ...], day: date | None) -> str:
    values = {DATE: day.isoformat() if day else ""}
    for name, text in zip(template.fields, texts, strict=True):
        values[name] = hive_escape(text)
        if "\0" in text or len(values[name].encode("utf-8", "replace")) > _LONGEST_FOLDER:
            raise Unfit(f"{name!r} is too long for a folder's name, or holds a zero character")
    return _PLACE.sub(lambda place: values[place[1]], template.text.rpartition("/")[0])


def _text(name: str, value: Any) -> str:
    if value is None:
        raise Unfit(f"has no {name!r}, which its path is made of")
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int) or type(value) is date:
        return str(value)
    raise Unfit(f"{name!r} is {value!r}: a path is made of texts, whole numbers and dates")


def utc_day(name: str, value: Any) -> date:
    """The day of an event in UTC; raises `Unfit` when the value says none."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise Unfit(f"{name!r} is {value!r}, which is not an ISO 8601 time") from None
    if isinstance(value, datetime):
        if value.tzinfo is None:
            return value.date()
        try:
            return value.astimezone(UTC).date()
        except OverflowError:
            raise Unfit(f"{name!r} is {value}, which UTC cannot express") from None
    if isinstance(value, date):
        return value
    raise Unfit(f"has no time in {name!r}, which its date is made of")
