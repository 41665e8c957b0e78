"""How a stage's columns differ from the table's, and what the dataset's policy makes of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from landfall.dataset import OnSchemaChange
from landfall.errors import ContractError


@dataclass(frozen=True)
class TableColumn:
    """A column as DuckDB describes it; `type` is DuckDB's own text for the type."""

    name: str
    type: str


@dataclass(frozen=True)
class AddColumn:
    """The stage has a column that the table lacks."""

    column: str
    type: str
    destroys = False


@dataclass(frozen=True)
class MissingColumn:
    """The table has a column that the stage lacks: its new rows hold NULL there."""

    column: str
    destroys = False


@dataclass(frozen=True)
class ChangeType:
    """The table has one type (`have`), the stage another (`want`)."""

    column: str
    have: str
    want: str

    @property
    def destroys(self) -> bool:
        """Whether a staged value could be lost or altered in the table's type."""
        return not widens(self.want, self.have)


Operation = AddColumn | MissingColumn | ChangeType


@dataclass(frozen=True)
class SchemaPlan:
    """What to add to the table, and which staged columns to insert."""

    add: tuple[AddColumn, ...]
    insert: tuple[str, ...]


# Bits of magnitude that each integer type holds, by sign.
_SIGNED = {"TINYINT": 7, "SMALLINT": 15, "INTEGER": 31, "BIGINT": 63, "HUGEINT": 127}
_UNSIGNED = {"UTINYINT": 8, "USMALLINT": 16, "UINTEGER": 32, "UBIGINT": 64, "UHUGEINT": 128}
_FLOATING = {"FLOAT": 24, "DOUBLE": 53}
_DECIMAL = re.compile(r"DECIMAL\((\d+),\s*(\d+)\)")


def widens(narrow: str, wide: str) -> bool:
    """Whether every value of type `narrow` is exactly a value of type `wide`."""
    if narrow == wide:
        return True
    if narrow == "FLOAT" and wide == "DOUBLE":
        return True
    if narrow in ("TIMESTAMP_S", "TIMESTAMP_MS") and wide in ("TIMESTAMP", "TIMESTAMP_MS"):
        return narrow != "TIMESTAMP_MS" or wide == "TIMESTAMP"
    bits = _SIGNED.get(narrow) or _UNSIGNED.get(narrow)
    if bits is not None:
        if wide in _UNSIGNED:
            return narrow in _UNSIGNED and bits <= _UNSIGNED[wide]
        if room := _SIGNED.get(wide) or _FLOATING.get(wide):
            return bits <= room
    return _fits_decimal(narrow, bits, wide)


def _fits_decimal(narrow: str, bits: int | None, wide: str) -> bool:
    target = _DECIMAL.fullmatch(wide)
    if target is None:
        return False
    scale = int(target[2])
    digits = int(target[1]) - scale
    if bits is not None:
        return len(str(2**bits)) <= digits
    source = _DECIMAL.fullmatch(narrow)
    if source is None:
        return False
    return int(source[2]) <= scale and int(source[1]) - int(source[2]) <= digits


def refuse_ambiguous(names: Iterable[str], *, where: str) -> None:
    """Refuse two columns that DuckDB, which ignores case in names, would take for one."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(name.lower(), name)
        if other is not name:
            raise ContractError(
                f"columns {other!r} and {name!r} differ only in case, which DuckDB ignores.",
                where=where,
                fix="rename one of them with transform.select.",
            )


def differences(
    table: Sequence[TableColumn], stage: Sequence[TableColumn]
) -> tuple[Operation, ...]:
    """Every difference, in the stage's order, then the columns that the stage lacks."""
    have = {column.name.lower(): column for column in table}
    staged = {column.name.lower() for column in stage}
    operations: list[Operation] = []
    for column in stage:
        known = have.get(column.name.lower())
        if known is None:
            operations.append(AddColumn(column.name, column.type))
        elif known.type != column.type:
            operations.append(ChangeType(known.name, have=known.type, want=column.type))
    operations += [MissingColumn(c.name) for c in table if c.name.lower() not in staged]
    return tuple(operations)


def plan(
    table: Sequence[TableColumn],
    stage: Sequence[TableColumn],
    policy: OnSchemaChange,
    *,
    where: str,
) -> SchemaPlan:
    """What to do under the policy. A change that could lose a value is refused under each."""
    operations = differences(table, stage)
    for operation in operations:
        if isinstance(operation, ChangeType) and operation.destroys:
            raise _type_refused(operation, where)
    new = tuple(o for o in operations if isinstance(o, AddColumn))
    if new and policy is OnSchemaChange.FREEZE:
        names = ", ".join(f"{o.column!r} ({o.type})" for o in new)
        raise ContractError(
            f"the stage has columns that the table lacks: {names}.",
            where=where,
            fix="add them to the table, leave them out with transform.select, or set "
            "contract.on_schema_change to evolve or discard.",
        )
    if policy is OnSchemaChange.DISCARD:
        left_out = {o.column for o in new}
        return SchemaPlan((), tuple(c.name for c in stage if c.name not in left_out))
    return SchemaPlan(new, tuple(c.name for c in stage))


def _type_refused(change: ChangeType, where: str) -> ContractError:
    return ContractError(
        f"column {change.column!r} is {change.have} in the table and {change.want} in the stage; "
        "not every staged value fits.",
        where=where,
        fix=f"cast it with transform.select to {change.have}, or alter the table's column to "
        f"{change.want}.",
    )
