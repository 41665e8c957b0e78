"""Batches: open ones collect rows of one folder, sealed ones are Parquet files."""

from __future__ import annotations

import io
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from landfall.edge.sources import Origin

# What Arrow raises for a value that passed the columns' own checks.
_REFUSALS = (pa.ArrowException, ValueError, TypeError, OverflowError)


@dataclass(frozen=True)
class Taken:
    """A record on its way: as it came, and where it came from."""

    record: Any
    origin: Origin | None


@dataclass
class OpenBatch:
    """Rows of one folder, in the order in which they came."""

    folder: str
    opened: float
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    taken: list[Taken] = field(default_factory=list)
    bytes: int = 0

    def add(self, row: tuple[Any, ...], taken: Taken, size: int) -> None:
        self.rows.append(row)
        self.taken.append(taken)
        self.bytes += size

    def refuse(self, schema: pa.Schema) -> list[tuple[Taken, str]]:
        """Takes out the rows that Arrow itself refuses, with its reason."""
        refused: list[tuple[Taken, str]] = []
        kept: list[int] = []
        for number, row in enumerate(self.rows):
            try:
                _table([row], schema)
                kept.append(number)
            except _REFUSALS as error:
                refused.append((self.taken[number], f"Arrow refuses it: {error}"))
        self.rows = [self.rows[number] for number in kept]
        self.taken = [self.taken[number] for number in kept]
        return refused


def parquet(
    rows: Sequence[tuple[Any, ...]], schema: pa.Schema, left_out: Collection[str]
) -> bytes | None:
    """The rows as a zstd Parquet file; None when Arrow refuses one of them."""
    try:
        table = _table(rows, schema)
    except _REFUSALS:
        return None
    target = io.BytesIO()
    names = [name for name in schema.names if name not in left_out]
    pq.write_table(table.select(names), target, compression="zstd")
    return target.getvalue()


def _table(rows: Sequence[tuple[Any, ...]], schema: pa.Schema) -> pa.Table:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, schema.types, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)
