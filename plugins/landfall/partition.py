"""Hive partitions: names, values, types, escaping. Pure; Airflow, Spark and the loader share it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from enum import StrEnum
from typing import Any

from landfall.errors import ConfigError

HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
EVERY = "*"
WHOLE = "(all)"

# The characters that Hive and Spark escape in a partition folder's name.
_HIVE_SPECIAL = frozenset("\"#%'*/:=?\\\x7f{[]^") | {chr(code) for code in range(1, 32)}

Value = str | int | float | bool | date | datetime | None


class KeyType(StrEnum):
    """The types a partition key can have; stated in the dataset file, never inferred."""

    STRING = "string"
    INTEGER = "integer"
    DATE = "date"
    TIMESTAMP = "timestamp"
    DOUBLE = "double"
    BOOLEAN = "boolean"


def hive_escape(value: str | None) -> str:
    """The value as Hive writes it in a folder's name."""
    if value is None or value == "":
        return HIVE_NULL
    return "".join(f"%{ord(c):02X}" if c in _HIVE_SPECIAL else c for c in value)


def hive_unescape(text: str) -> str | None:
    """The value behind a folder's name; NULL for Hive's default partition."""
    if text == HIVE_NULL:
        return None
    # A writer may escape any byte of the UTF-8 form, so decode runs of escapes together.
    return re.sub(
        r"(?:%[0-9A-Fa-f]{2})+",
        lambda run: bytes.fromhex(run.group().replace("%", "")).decode("utf-8", "replace"),
        text,
    )


def parse_value(text: str | None, key_type: KeyType, *, key: str) -> Value:
    """The typed value of a folder's (decoded) text; a value that does not fit is an error."""
    if text is None:
        return None
    try:
        match key_type:
            case KeyType.STRING:
                return text
            case KeyType.INTEGER:
                return int(text)
            case KeyType.DOUBLE:
                return float(text)
            case KeyType.DATE:
                return date.fromisoformat(text)
            case KeyType.TIMESTAMP:
                return datetime.fromisoformat(text)
            case KeyType.BOOLEAN:
                return {"true": True, "false": False}[text.lower()]
    except (ValueError, KeyError):
        raise ConfigError(
            f"partition value {text!r} is not a valid {key_type.value}.",
            where=f"partition key {key!r}",
            fix=f"correct the value, or set source.types.{key} to the type that it has.",
        ) from None


def _text(value: Value) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime):
        return value.isoformat(sep=" ")
    return str(value)


@dataclass(frozen=True)
class PartitionKey:
    """One key of the path. `values` are folder texts (NULL as None); None means every value."""

    name: str
    type: KeyType
    values: tuple[str | None, ...] | None

    @property
    def every(self) -> bool:
        return self.values is None

    @property
    def typed(self) -> tuple[Value, ...]:
        return tuple(parse_value(v, self.type, key=self.name) for v in self.values or ())

    def folder_names(self) -> list[str]:
        """Each value's folder, in the spellings that writers use for one value."""
        names: list[str] = []
        for value in self.values or ():
            spellings = [hive_escape(value)]
            if value is not None and " " in value:
                spellings.append(hive_escape(value).replace(" ", "%20"))
            names += [f"{self.name}={s}" for s in spellings]
        return list(dict.fromkeys(names))


@dataclass(frozen=True)
class Partition:
    """What one run loads: the keys in path order."""

    keys: tuple[PartitionKey, ...]

    @classmethod
    def of(cls, values: Mapping[str, str | Sequence[str]], types: Mapping[str, str]) -> Partition:
        """From rendered values: "*", one value or a list, per key, in path order."""
        keys = []
        for name, value in values.items():
            listed = [value] if isinstance(value, str) else list(value)
            wanted = None if EVERY in listed else tuple(hive_unescape(v) for v in listed)
            keys.append(PartitionKey(name, KeyType(types.get(name, "string")), wanted))
        partition = cls(tuple(keys))
        for key in partition.named:
            _ = key.typed  # a value of the wrong type is refused here, before anything is read
        return partition

    @property
    def named(self) -> tuple[PartitionKey, ...]:
        """The keys whose values this run names; the others are outer keys, all loaded together."""
        return tuple(key for key in self.keys if not key.every)

    @property
    def columns(self) -> str:
        """The named keys, as the ledger's `partition_column` shows them."""
        return "/".join(key.name for key in self.named)

    @property
    def values(self) -> str:
        """The named values, as the ledger's `load_partition` shows them: `2026-02-11`."""
        return "/".join(self._joined(key) for key in self.named)

    @property
    def label(self) -> str:
        """One text for one partition, whatever the spelling of its folder: `date=2026-02-11`."""
        return "/".join(f"{key.name}={self._joined(key)}" for key in self.named) or WHOLE

    @staticmethod
    def _joined(key: PartitionKey) -> str:
        texts = (hive_escape(_text(v)).replace(",", "%2C") for v in key.typed)
        return ",".join(sorted(texts))

    def to_json(self) -> dict[str, Any]:
        return {
            key.name: {
                "type": key.type.value,
                "values": None if key.values is None else list(key.values),
            }
            for key in self.keys
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Partition:
        return cls(
            tuple(
                PartitionKey(
                    name,
                    KeyType(key["type"]),
                    None if key["values"] is None else tuple(key["values"]),
                )
                for name, key in document.items()
            )
        )
