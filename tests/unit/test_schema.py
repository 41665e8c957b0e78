"""The table's types never change by themselves, and no value is lost on the way into it."""

from __future__ import annotations

import pytest

from landfall.dataset import OnSchemaChange
from landfall.errors import ContractError
from landfall.schema import (
    AddColumn,
    ChangeType,
    MissingColumn,
    SchemaPlan,
    TableColumn,
    differences,
    plan,
    refuse_ambiguous,
    widens,
)

ID = TableColumn("id", "BIGINT")
NEW = TableColumn("new", "VARCHAR")


def columns(**types: str) -> list[TableColumn]:
    return [TableColumn(name, kind) for name, kind in types.items()]


@pytest.mark.parametrize(
    ("narrow", "wide"),
    [
        ("TINYINT", "SMALLINT"),
        ("INTEGER", "BIGINT"),
        ("BIGINT", "HUGEINT"),
        ("UTINYINT", "SMALLINT"),
        ("UINTEGER", "BIGINT"),
        ("UINTEGER", "UBIGINT"),
        ("FLOAT", "DOUBLE"),
        ("INTEGER", "DOUBLE"),
        ("SMALLINT", "FLOAT"),
        ("DECIMAL(10,2)", "DECIMAL(12,2)"),
        ("DECIMAL(10,2)", "DECIMAL(14,4)"),
        ("INTEGER", "DECIMAL(10,0)"),
        ("TIMESTAMP_MS", "TIMESTAMP"),
        ("STRUCT(a INTEGER)", "STRUCT(a INTEGER)"),
    ],
)
def test_a_type_that_widens_without_loss_fits(narrow: str, wide: str) -> None:
    assert widens(narrow, wide)


@pytest.mark.parametrize(
    ("narrow", "wide"),
    [
        ("BIGINT", "INTEGER"),
        ("BIGINT", "DOUBLE"),
        ("INTEGER", "FLOAT"),
        ("INTEGER", "UBIGINT"),
        ("UBIGINT", "BIGINT"),
        ("UTINYINT", "TINYINT"),
        ("DOUBLE", "FLOAT"),
        ("DOUBLE", "BIGINT"),
        ("DECIMAL(10,2)", "DECIMAL(10,4)"),
        ("DECIMAL(12,2)", "DECIMAL(10,2)"),
        ("INTEGER", "DECIMAL(9,0)"),
        ("INTEGER", "VARCHAR"),
        ("DATE", "TIMESTAMP"),
        ("TIMESTAMP", "TIMESTAMP WITH TIME ZONE"),
        ("TIMESTAMP WITH TIME ZONE", "TIMESTAMP"),
        ("TIMESTAMP", "TIMESTAMP_MS"),
        ("INTEGER[]", "BIGINT[]"),
        ("STRUCT(a INTEGER)", "STRUCT(a BIGINT)"),
        ("VARCHAR", "BLOB"),
    ],
)
def test_any_other_type_does_not_fit(narrow: str, wide: str) -> None:
    assert not widens(narrow, wide)


def test_differences_are_small_operations_that_know_what_they_destroy() -> None:
    table = columns(id="BIGINT", amount="INTEGER", old="VARCHAR", small="BIGINT")
    stage = columns(id="BIGINT", amount="BIGINT", new="DATE", small="INTEGER")
    found = differences(table, stage)
    assert found == (
        ChangeType("amount", have="INTEGER", want="BIGINT"),
        AddColumn("new", "DATE"),
        ChangeType("small", have="BIGINT", want="INTEGER"),
        MissingColumn("old"),
    )
    assert [operation.destroys for operation in found] == [True, False, False, False]


def test_names_that_differ_in_case_are_the_same_column() -> None:
    assert differences([ID], [TableColumn("ID", "BIGINT")]) == ()


def test_evolve_adds_new_columns() -> None:
    made = plan([ID], [NEW, ID], OnSchemaChange.EVOLVE, where="t")
    assert made == SchemaPlan((AddColumn("new", "VARCHAR"),), ("new", "id"))


def test_freeze_refuses_new_columns_by_name() -> None:
    with pytest.raises(ContractError, match="'new' \\(VARCHAR\\)"):
        plan([ID], [NEW, ID], OnSchemaChange.FREEZE, where="t")


def test_freeze_takes_a_stage_that_lacks_a_column() -> None:
    assert plan([ID, NEW], [ID], OnSchemaChange.FREEZE, where="t").insert == ("id",)


def test_discard_leaves_new_columns_out() -> None:
    assert plan([ID], [NEW, ID], OnSchemaChange.DISCARD, where="t") == SchemaPlan((), ("id",))


@pytest.mark.parametrize("policy", OnSchemaChange)
def test_a_wider_type_is_refused_under_every_policy(policy: OnSchemaChange) -> None:
    with pytest.raises(ContractError) as refused:
        plan(columns(n="INTEGER"), columns(n="BIGINT"), policy, where="retail.main.t")
    message = str(refused.value)
    assert all(part in message for part in ("retail.main.t", "'n'", "INTEGER", "BIGINT", "Fix:"))


def test_two_columns_that_differ_only_in_case_are_refused_by_name() -> None:
    with pytest.raises(ContractError, match="'id' and 'ID'"):
        refuse_ambiguous(["id", "amount", "ID"], where="t")
