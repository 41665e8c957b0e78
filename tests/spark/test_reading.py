"""The staged rows are the partition's: its folders, its keys, its types, all of its files."""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import stage_partition
from landfall.errors import SourceError
from landfall.spark import source

pytestmark = pytest.mark.slow

DAY = "date=2026-02-11"


def test_many_small_files_become_one(landing: Any) -> None:
    for n in range(12):
        landing.put(f"{DAY}/batch_{n}.parquet", {"n": [n, n]})
    manifest = landing.stage({"date": "2026-02-11"})
    assert len(manifest.staged) == 1
    assert sorted(row["n"] for row in landing.rows(manifest)) == sorted([*range(12)] * 2)


def test_output_is_split_by_the_target_size(landing: Any) -> None:
    size = sum(len(landing.put(f"{DAY}/{n}.parquet", {"n": [n] * 50})) for n in range(6))
    manifest = landing.stage({"date": "2026-02-11"}, target_file_bytes=size // 2 + 1)
    assert len(manifest.staged) == 2


def test_the_manifest_knows_the_rows_and_bytes_of_every_file(landing: Any, s3: Any) -> None:
    landing.put(f"{DAY}/a.parquet", {"n": [1, 2, 3]})
    landing.put(f"{DAY}/b.parquet", {"n": pa.array([], pa.int64())})
    manifest = landing.stage({"date": "2026-02-11"})
    assert [s.rows for s in manifest.sources] == [3, 0]
    etags = [
        s3.head_object(Bucket="landing", Key=s.key)["ETag"].strip('"') for s in manifest.sources
    ]
    assert [s.etag for s in manifest.sources] == etags
    assert [f.bytes for f in manifest.staged] == [len(landing.object(manifest.staged[0].uri))]
    assert manifest.rows_read == manifest.rows_staged == 3


def test_a_region_with_a_leading_zero_keeps_it(landing: Any) -> None:
    landing.put("region=01/a.parquet", {"n": [1]})
    landing.put("region=2/a.parquet", {"n": [2]})
    rows = landing.rows(landing.stage({"region": "*"}))
    assert {row["region"] for row in rows} == {"01", "2"}


@pytest.mark.parametrize("kind, values", [("integer", [9, 10]), ("string", ["09", "10"])])
def test_months_have_one_stated_type(landing: Any, kind: str, values: list[Any]) -> None:
    landing.put("month=09/a.parquet", {"n": [1]})
    landing.put("month=10/a.parquet", {"n": [2]})
    rows = landing.rows(landing.stage({"month": "*"}, {"month": kind}))
    assert sorted(row["month"] for row in rows) == values


def test_every_key_type_arrives_as_stated(landing: Any) -> None:
    folder = "d=2026-02-11/t=2026-02-11 10%3A30%3A00/f=1.5/b=true"
    landing.put(f"{folder}/a.parquet", {"n": [1]})
    types = {"d": "date", "t": "timestamp", "f": "double", "b": "boolean"}
    (row,) = landing.rows(landing.stage(dict.fromkeys("dtfb", "*"), types))
    assert row == {
        "n": 1,
        "d": dt.date(2026, 2, 11),
        "t": dt.datetime(2026, 2, 11, 10, 30),
        "f": 1.5,
        "b": True,
    }


def test_escaped_and_null_keys_are_decoded(landing: Any) -> None:
    folders = ["a%2Fb", "c d", "e%3Df", "%C3%A9t%C3%A9", "g}h", "__HIVE_DEFAULT_PARTITION__"]
    for n, folder in enumerate(folders):
        landing.put(f"region={folder}/x y%.parquet", {"n": [n]})
    rows = landing.rows(landing.stage({"region": "*"}))
    found = {row["n"]: row["region"] for row in rows}
    assert found == dict(enumerate(["a/b", "c d", "e=f", "été", "g}h", None]))


def test_a_folder_whose_value_has_another_type_is_named(landing: Any) -> None:
    landing.put("year=2025/a.parquet", {"n": [1]})
    landing.put("year=old/a.parquet", {"n": [1]})
    with pytest.raises(SourceError, match="year=old"):
        landing.stage({"year": "*"}, {"year": "integer"})


def test_a_file_that_contradicts_its_path_is_refused_with_an_example(landing: Any) -> None:
    landing.put("region=NE/a.parquet", {"region": ["NE", "NE"], "n": [1, 2]})
    landing.put("region=SW/b.parquet", {"region": ["SW", "NW"], "n": [1, 2]})
    with pytest.raises(SourceError, match=r"'NW'.*SW/b\.parquet.*'SW'"):
        landing.stage({"region": "*"})
    assert not any(key.endswith("manifest.json") for key in landing.staged_keys())


def test_a_null_in_the_file_contradicts_a_value_in_the_path(landing: Any) -> None:
    landing.put("region=NE/a.parquet", {"region": ["NE", None]})
    with pytest.raises(SourceError, match="None"):
        landing.stage({"region": "NE"})


def test_a_time_of_day_contradicts_a_path_that_is_a_day(landing: Any) -> None:
    landing.put(f"{DAY}/a.parquet", {"date": [dt.datetime(2026, 2, 11, 10, 30)]})
    with pytest.raises(SourceError, match="10:30"):
        landing.stage({"date": "2026-02-11"}, {"date": "date"})


def test_a_file_that_agrees_with_its_path_gives_one_column(landing: Any) -> None:
    landing.put("year=2025/a.parquet", {"year": pa.array([2025], pa.int32()), "n": [1]})
    manifest = landing.stage({"year": "2025"}, {"year": "integer"})
    assert landing.rows(manifest) == [{"n": 1, "year": 2025}]


def test_schemas_of_all_files_are_merged(landing: Any) -> None:
    landing.put(f"{DAY}/a.parquet", {"n": [1]})
    landing.put(f"{DAY}/b.parquet", {"n": [2], "late": ["x"]})
    rows = landing.rows(landing.stage({"date": "2026-02-11"}))
    assert {(row["n"], row["late"]) for row in rows} == {(1, None), (2, "x")}


def test_only_the_folders_of_the_partition_are_read(
    landing: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    landing.put("region=NE/date=2026-02-11/a.parquet", {"n": [1]})
    landing.put("region=NE/date=2026-02-12/a.parquet", b"would fail if it were opened")
    landing.put("region=NE/date=2026-02-11/_note.txt", b"not a source file")
    opened: list[str] = []
    read = source.read

    def watched(*given: Any) -> source.Source:
        found = read(*given)
        opened.extend(found.plain.inputFiles())
        return found

    monkeypatch.setattr(stage_partition.source, "read", watched)
    landing.stage({"region": "*", "date": "2026-02-11"})
    assert [path.rpartition("region=")[2] for path in opened] == ["NE/date=2026-02-11/a.parquet"]


UTC = dt.UTC
TYPES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int8": (pa.int8(), [-128, 127]),
    "int16": (pa.int16(), [-32768, 32767]),
    "int32": (pa.int32(), [-(2**31), 2**31 - 1]),
    "int64": (pa.int64(), [-(2**63), 2**63 - 1]),
    "uint8": (pa.uint8(), [0, 255]),
    "uint16": (pa.uint16(), [0, 65535]),
    "uint32": (pa.uint32(), [0, 2**32 - 1]),
    "uint64": (pa.uint64(), [0, 2**64 - 1]),
    "float": (pa.float32(), [1.5, float("-inf")]),
    "double": (pa.float64(), [0.1, 1e308]),
    "boolean": (pa.bool_(), [True, False]),
    "small_decimal": (pa.decimal128(9, 2), [Decimal("1234567.89"), Decimal("-0.01")]),
    "large_decimal": (pa.decimal128(38, 10), [Decimal("1" * 28 + ".0123456789"), Decimal(0)]),
    "string": (pa.string(), ["été", ""]),
    "binary": (pa.binary(), [b"\x00\xff", b""]),
    "fixed_binary": (pa.binary(3), [b"abc", b"\x00\x01\x02"]),
    "a_date": (pa.date32(), [dt.date(1, 1, 1), dt.date(2026, 2, 11)]),
    "with_zone": (
        pa.timestamp("us", "UTC"),
        [dt.datetime(1500, 1, 1, tzinfo=UTC), dt.datetime(2026, 2, 11, 1, 2, 3, 456789, UTC)],
    ),
    "without_zone": (
        pa.timestamp("us"),
        [dt.datetime(1500, 1, 1), dt.datetime(2026, 2, 11, 1, 2, 3, 456789)],
    ),
    "struct": (
        pa.struct([("a", pa.int32()), ("b", pa.struct([("c", pa.string())]))]),
        [{"a": 1, "b": {"c": "x"}}, {"a": None, "b": None}],
    ),
    "list": (pa.list_(pa.list_(pa.int64())), [[[1, None], []], []]),
    "map": (pa.map_(pa.string(), pa.decimal128(5, 1)), [[("k", Decimal("1.5"))], []]),
}
WIDENED = {
    "uint8": pa.int16(),
    "uint16": pa.int32(),
    "uint32": pa.int64(),
    "uint64": pa.decimal128(20, 0),
    "fixed_binary": pa.binary(),
}


@pytest.fixture(scope="module")
def typed(spark: Any, s3: Any, access: Any) -> tuple[pa.Table, pa.Table]:
    """Each type with two values and a NULL, before and after the stage."""
    from tests.spark.conftest import Landing

    landing = Landing(spark, s3, access, "typed")
    columns = {name: pa.array([*v, None], kind) for name, (kind, v) in TYPES.items()}
    before = pa.table(columns)
    landing.put(f"{DAY}/a.parquet", before)
    return before, landing.table(landing.stage({"date": "2026-02-11"}))


@pytest.mark.parametrize("name", TYPES)
def test_a_type_arrives_unchanged(typed: tuple[pa.Table, pa.Table], name: str) -> None:
    before, after = typed
    assert after[name].to_pylist() == before[name].to_pylist()
    wanted = WIDENED.get(name, TYPES[name][0])
    assert _plain(after.schema.field(name).type) == _plain(wanted)


def _plain(kind: pa.DataType) -> str:
    """The type without the names that Parquet gives to a list's items."""
    return re.sub(r" \('\w+'\)", "", str(kind)).replace("element:", "item:")


def test_odd_column_names_arrive_unchanged(landing: Any) -> None:
    names = ["a b", "a.b", "Upper", "upper", "select", "tick`ed", "ünï", "a,b;{}()=", "_metadata"]
    landing.put(f"{DAY}/a.parquet", {name: [n] for n, name in enumerate(names)})
    manifest = landing.stage(
        {"date": "2026-02-11"},
        filter="`a b` = 0 AND `a.b` = 1 AND `tick``ed` = 5",
    )
    assert [column.name for column in manifest.columns] == [*names, "date"]
    assert landing.rows(manifest) == [
        {**{name: n for n, name in enumerate(names)}, "date": "2026-02-11"}
    ]
