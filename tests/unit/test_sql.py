"""No text of a user becomes SQL: identifiers are checked, values are bound."""

from __future__ import annotations

from datetime import date

import pytest

from landfall import sql
from landfall.errors import ConfigError
from landfall.partition import Partition
from landfall.sql import Destination

TABLE = Destination("retail", "main", "t")

HOSTILE = ("x; DROP TABLE t", 'x"', "", "1x", "a.b", "a b", "x--", "tablé", "x\n")


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_identifier_is_refused_by_its_name(name: str) -> None:
    with pytest.raises(ConfigError) as refused:
        sql.identifier(name, what="ledger")
    assert repr(name) in str(refused.value)


@pytest.mark.parametrize("name", HOSTILE)
def test_each_part_of_a_destination_is_checked(name: str) -> None:
    for parts in ((name, "main", "t"), ("retail", name, "t"), ("retail", "main", name)):
        with pytest.raises(ConfigError):
            Destination(*parts)


@pytest.mark.parametrize("text", ["t", "main.t", "a.b.c.d", "a..c"])
def test_a_destination_has_three_parts(text: str) -> None:
    with pytest.raises(ConfigError):
        Destination.parse(text)


def test_a_destination_is_quoted_where_it_becomes_sql() -> None:
    assert Destination.parse("retail.main.order").qualified == '"retail"."main"."order"'


def test_a_hostile_partition_key_never_becomes_sql() -> None:
    partition = Partition.of({"x = 1 OR TRUE --": "1"}, {})
    with pytest.raises(ConfigError, match="partition key"):
        sql.delete_partition(TABLE, partition)


def test_data_columns_may_have_any_name() -> None:
    text, _ = sql.insert_by_name(TABLE, ["f"], ["a b", "c.d", 'e"f', "select"])
    assert '"a b", "c.d", "e""f", "select"' in text


def test_a_partition_value_is_bound_with_its_type() -> None:
    partition = Partition.of({"region": "*", "date": "2026-02-11"}, {"date": "date"})
    text, parameters = sql.delete_partition(TABLE, partition)
    assert text == 'DELETE FROM "retail"."main"."t" WHERE ("date" IN (?))'
    assert parameters == [date(2026, 2, 11)]


def test_a_hostile_partition_value_stays_a_value() -> None:
    text, parameters = sql.delete_partition(TABLE, Partition.of({"region": "x' OR 1=1 --"}, {}))
    assert "OR 1=1" not in text
    assert parameters == ["x' OR 1=1 --"]


def test_null_and_values_of_one_key_are_matched_together() -> None:
    partition = Partition.of({"region": ["MW", "__HIVE_DEFAULT_PARTITION__", "NE"]}, {})
    predicate, parameters = sql.partition_predicate(partition)
    assert predicate == '("region" IN (?, ?) OR "region" IS NULL)'
    assert parameters == ["MW", "NE"]


def test_without_named_keys_everything_is_the_partition() -> None:
    assert sql.partition_predicate(Partition.of({"region": "*"}, {})) == ("TRUE", [])


def test_a_key_without_values_is_refused_rather_than_matching_everything() -> None:
    with pytest.raises(ConfigError, match="no value"):
        sql.delete_partition(TABLE, Partition.of({"region": []}, {}))


def test_many_file_names_become_several_statements() -> None:
    files = [f"s3://stage/{'x' * 300}/part-{n}.parquet" for n in range(2_500)]
    chunks = list(sql.file_chunks(files))
    assert [file for chunk in chunks for file in chunk] == files
    assert all(len("".join(chunk).encode()) <= 256 * 1024 for chunk in chunks)


def test_files_are_bound_as_one_list_and_never_as_text() -> None:
    for text, parameters in (
        sql.describe_files(["a'; --"]),
        sql.create_table_as(TABLE, ["a'; --"]),
        sql.insert_by_name(TABLE, ["a'; --"], ["id"]),
    ):
        assert "--" not in text
        assert "union_by_name = true, hive_partitioning = false" in text
        assert parameters == [["a'; --"]]
