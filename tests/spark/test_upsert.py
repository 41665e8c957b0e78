"""The Spark job of an upsert: which rows it loads, deletes and rejects, and what it opens."""

from __future__ import annotations

import datetime as dt
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from landfall.errors import ConfigError, ContractError, SourceChanged
from landfall.manifest import Manifest, OpenFile, StagedFile, StagedSource, Upsert, files_to_json
from landfall.s3_access import S3Access
from tests.spark.conftest import Landing
from tests.spark.counting import CountingProxy

pytestmark = pytest.mark.slow

NOW = "2026-02-12T00:00:00.000000+00:00"
HOUR = dt.timedelta(hours=1)
DAY = dt.datetime(2026, 2, 11)


def at(*hours: float | None) -> pa.Array:
    moments = [None if hour is None else DAY + hour * HOUR for hour in hours]
    return pa.array(moments, pa.timestamp("us"))


def opened(landing: Landing, *known: StagedSource) -> list[OpenFile]:
    """Every file of the landing; those that are known with what is known of them."""
    listed = landing.client.list_objects_v2(Bucket="landing", Prefix=f"{landing.root}/")
    by_key = {source.key: source for source in known}
    found = []
    for entry in listed["Contents"]:
        file = OpenFile(entry["Key"], entry["Size"], entry["ETag"].strip('"'))
        if was := by_key.get(file.key):
            ends = (was.read_until, was.watermark_min, was.watermark_max)
            file = OpenFile(file.key, file.size, file.etag, True, *ends)
        found.append(file)
    return found


def stage(
    landing: Landing,
    files: list[OpenFile] | None = None,
    *,
    partition: Mapping[str, Any] | None = None,
    spec: Mapping[str, Any] | None = None,
    before_check: Any = lambda: None,
    **part: Any,
) -> Manifest:
    made = landing.spec(partition or {}, **(spec or {}))
    values: dict[str, Any] = {
        "key": ("id",),
        "column": "at",
        "kind": None,
        "overlap": "0",
        "ahead": "1 day",
        "start": None,
        "late_before": None,
        "until": None,
        "replay": False,
        "on_null": "fail",
        "late": "load",
        "deleted": None,
        "staged_at": NOW,
        "files_uri": made.files_uri,
    }
    bucket, _, key = made.files_uri.removeprefix("s3://").partition("/")
    body = files_to_json(opened(landing) if files is None else files).encode()
    landing.client.put_object(Bucket=bucket, Key=key, Body=body)
    made = replace(made, upsert=Upsert(**{**values, **part}))
    return landing.run(made, before_check=before_check)


def rows(landing: Landing, files: tuple[StagedFile, ...]) -> list[dict[str, Any]]:
    tables = [pq.read_table(io.BytesIO(landing.object(file.uri))) for file in files]
    return [row for table in tables for row in table.to_pylist()]


def ids(landing: Landing, manifest: Manifest) -> list[int]:
    return sorted(row["id"] for row in rows(landing, manifest.staged))


def part_of(manifest: Manifest) -> Any:
    assert manifest.upsert is not None
    return manifest.upsert


def test_the_newest_row_of_each_key_is_staged_and_its_mark_is_reached(landing: Landing) -> None:
    landing.put("a.parquet", {"id": [1, 1, 2], "at": at(1, 3, 2), "n": [1, 2, 3]})
    landing.put("b.parquet", {"id": [1], "at": at(2), "n": [4]})
    manifest = stage(landing)
    found = {row["id"]: row["n"] for row in rows(landing, manifest.staged)}
    assert found == {1: 2, 2: 3}
    assert (manifest.rows_read, manifest.rows_deduplicated, manifest.rows_staged) == (4, 2, 2)
    assert (part_of(manifest).kind, part_of(manifest).reached) == (
        "timestamp",
        "2026-02-11 03:00:00",
    )
    assert [(s.rows, s.watermark_min, s.watermark_max) for s in manifest.sources] == [
        (3, "2026-02-11 01:00:00", "2026-02-11 03:00:00"),
        (1, "2026-02-11 02:00:00", "2026-02-11 02:00:00"),
    ]


def test_of_equally_new_rows_that_of_the_file_written_last_stays(landing: Landing) -> None:
    landing.put("b.parquet", {"id": [1], "at": at(1), "n": [1]})
    first = landing.client.head_object(Bucket="landing", Key=f"{landing.root}/b.parquet")
    while True:  # S3 tells times by the second
        landing.put("a.parquet", {"id": [1], "at": at(1), "n": [2]})
        now = landing.client.head_object(Bucket="landing", Key=f"{landing.root}/a.parquet")
        if now["LastModified"] > first["LastModified"]:
            break
    assert [row["n"] for row in rows(landing, stage(landing).staged)] == [2]


def test_rows_out_of_range_are_counted_and_left(landing: Landing) -> None:
    landing.put("a.parquet", {"id": [1, 2, 3, 4], "at": at(1, 2, 3, 4)})
    manifest = stage(landing, start="2026-02-11T02:00:00", until="2026-02-11 04:00:00")
    assert ids(landing, manifest) == [2, 3]
    part = part_of(manifest)
    assert (part.rows_outside, part.reached) == (2, "2026-02-11 03:00:00")
    assert [source.read_until for source in manifest.sources] == ["2026-02-11 04:00:00"]
    assert manifest.sources[0].watermark_max == "2026-02-11 04:00:00"


def test_a_known_file_is_read_from_where_it_was_left(landing: Landing) -> None:
    landing.put("a.parquet", {"id": [1, 2, 3], "at": at(1, 2, None), "n": [1, 1, 1]})
    first = stage(landing, until="2026-02-11 02:00:00", on_null="load")
    assert ids(landing, first) == [1, 3]
    landing.put("b.parquet", {"id": [4], "at": at(1), "m": [1]})
    manifest = stage(landing, opened(landing, *first.sources), kind="timestamp")
    assert ids(landing, manifest) == [2, 4]
    assert part_of(manifest).rows_outside == 2
    assert {column.name for column in manifest.columns} == {"id", "at", "n", "m"}
    assert {s.key.rpartition("/")[2]: (s.rows, s.watermark_max) for s in manifest.sources} == {
        "a.parquet": (3, "2026-02-11 02:00:00"),
        "b.parquet": (1, "2026-02-11 01:00:00"),
    }


def test_late_rows_are_counted_and_loaded_or_rejected_with_the_row(landing: Landing) -> None:
    landing.put("a.parquet", {"id": [1, 2, 2], "at": at(1, 3, 0)})
    late = {"late_before": "2026-02-11 02:00:00"}
    loaded = stage(landing, **late)
    assert (ids(landing, loaded), part_of(loaded).rows_late) == ([1, 2], 2)
    rejected = stage(landing, **late, late="reject")
    assert (ids(landing, rejected), part_of(rejected).rows_late) == ([2], 2)
    assert rejected.rows_rejected == 2
    kept = rows(landing, part_of(rejected).rejects)
    assert sorted(json.loads(row["__landfall_row"])["id"] for row in kept) == [1, 2]
    assert "late: at is 2026-02-11 0" in kept[0]["__landfall_reason"]
    assert kept[0]["__landfall_file"].endswith("a.parquet")


@pytest.mark.parametrize(("on_null", "found"), [("load", [1, 2]), ("reject", [1])])
def test_rows_without_watermark_are_loaded_or_rejected(
    landing: Landing, on_null: str, found: list[int]
) -> None:
    landing.put("a.parquet", {"id": [1, 2], "at": at(1, None)})
    manifest = stage(landing, on_null=on_null)
    assert ids(landing, manifest) == found
    assert manifest.rows_rejected == 2 - len(found)


def test_rows_without_watermark_fail_the_run_with_an_example(landing: Landing) -> None:
    landing.put("a.parquet", {"id": [1, 2, 3], "at": at(1, None, None)})
    with pytest.raises(ContractError, match=r'2 rows have no watermark .* example \{"id":2'):
        stage(landing)


def test_deletions_are_staged_apart(landing: Landing) -> None:
    landing.put("a.parquet", {"id": [1, 1, 2], "at": at(1, 2, 1), "op": ["I", "D", "I"]})
    manifest = stage(landing, deleted="op = 'D'", spec={"select": {"id": "id", "at": "at"}})
    assert ids(landing, manifest) == [2]
    assert [row["id"] for row in rows(landing, part_of(manifest).deletes)] == [1]
    assert part_of(manifest).reached == "2026-02-11 02:00:00"


def test_rows_without_a_key_are_refused_with_count_and_example(landing: Landing) -> None:
    ids_ = pa.array([1, None, None], pa.int64())
    landing.put("a.parquet", {"id": ids_, "at": at(1, 1, 1), "n": [1, 2, 3]})
    with pytest.raises(ContractError, match=r'2 rows have no key \(id\).*"n":2'):
        stage(landing)


def test_a_clock_that_runs_ahead_is_refused_with_the_row(landing: Landing) -> None:
    landing.put("a.parquet", {"id": [1, 2], "at": at(1, 50)})
    with pytest.raises(ContractError, match=r'future .*2026-02-13 00:00:00.*"id":2'):
        stage(landing)
    assert ids(landing, stage(landing, ahead=None)) == [1, 2]
    assert ids(landing, stage(landing, until="2026-02-12")) == [1]


@pytest.mark.parametrize(
    ("kind", "values", "until", "reached"),
    [
        ("integer", pa.array([1, 9, 10], "i2"), "10", "9"),
        ("string", ["a", "b", "c"], "c", "b"),
        ("date", [dt.date(2026, 2, day) for day in (9, 10, 11)], "2026-02-11", "2026-02-10"),
        (
            "timestamptz",
            pa.array([DAY, DAY + HOUR, DAY + 2 * HOUR], pa.timestamp("us", "UTC")),
            "2026-02-11T04:00:00+02:00",
            "2026-02-11 01:00:00+00:00",
        ),
    ],
)
def test_any_type_that_has_an_order_can_be_a_watermark(
    landing: Landing, kind: str, values: Any, until: str, reached: str
) -> None:
    landing.put("a.parquet", {"id": [1, 2, 3], "at": values})
    part = part_of(stage(landing, until=until))
    assert (part.kind, part.reached, part.rows_outside) == (kind, reached, 1)


@pytest.mark.parametrize(
    ("part", "kind", "said"),
    [
        ({"column": "when"}, ConfigError, "there is no column 'when'"),
        ({"column": "n"}, ConfigError, "'n' is double, which cannot be a watermark"),
        ({"kind": "integer"}, ContractError, "is timestamp, but the stored one is integer"),
        ({"key": ("id", "nr")}, ConfigError, "there is no column 'nr'"),
        ({"overlap": "100"}, ConfigError, "does not fit a watermark column of type timestamp"),
        ({"until": "soon"}, ConfigError, "'soon' is not a valid timestamp"),
        ({"deleted": "op = 'D'"}, ConfigError, "load.deleted: \"op = 'D'\" cannot be used"),
    ],
)
def test_what_cannot_be_followed_is_refused(
    landing: Landing, part: Any, kind: type[Exception], said: str
) -> None:
    landing.put("a.parquet", {"id": [1], "at": at(1), "n": [1.5]})
    with pytest.raises(kind, match=said):
        stage(landing, **part)


def test_a_file_that_changed_since_it_was_chosen_is_tried_again(landing: Landing) -> None:
    landing.put("a.parquet", {"id": [1], "at": at(1)})
    files = opened(landing)
    landing.put("a.parquet", {"id": [1, 2], "at": at(1, 2)})
    with pytest.raises(SourceChanged, match=r"a\.parquet changed"):
        stage(landing, files)
    with pytest.raises(SourceChanged, match=r"a\.parquet changed"):
        stage(landing, before_check=lambda: landing.put("a.parquet", {"id": [3], "at": at(1)}))


def test_a_file_that_arrives_meanwhile_is_left_for_the_next_run(landing: Landing) -> None:
    landing.put("a.parquet", {"id": [1], "at": at(1)})
    late = {"id": [2], "at": at(2)}
    manifest = stage(landing, before_check=lambda: landing.put("b.parquet", late))
    assert ids(landing, manifest) == [1]


def test_partition_keys_may_be_given_and_be_part_of_the_key(landing: Landing) -> None:
    landing.put("region=NE/a.parquet", {"id": [1], "at": at(1)})
    landing.put("region=SW/a.parquet", {"id": [1], "at": at(1)})
    manifest = stage(landing, partition={"region": "*"}, key=("region", "id"))
    found = sorted((row["region"], row["id"]) for row in rows(landing, manifest.staged))
    assert found == [("NE", 1), ("SW", 1)]


@pytest.mark.parametrize(
    ("uri", "found"), [("yellow_*.parquet", [1, 2]), ("yellow_1.parquet", [1]), ("", [1, 2, 3])]
)
def test_the_uri_may_be_a_glob_one_file_or_a_prefix(
    landing: Landing, uri: str, found: list[int]
) -> None:
    for number, name in enumerate(("yellow_1", "yellow_2", "green_1"), start=1):
        landing.put(f"{name}.parquet", {"id": [number], "at": at(1)})
    files = [
        file for file in opened(landing) if not uri or file.key.endswith(uri.rpartition("*")[2])
    ]
    files = [file for file in files if not uri or "/yellow_" in file.key]
    source_uri = f"s3://landing/{landing.root}/{uri}".rstrip("/")
    assert ids(landing, stage(landing, files, spec={"source_uri": source_uri})) == found


def test_the_file_of_a_row_can_be_selected(landing: Landing) -> None:
    landing.put("a.parquet", {"id": [1], "at": at(1)})
    select = {"id": "id", "at": "at", "source_file": "_metadata.file_path"}
    (row,) = rows(landing, stage(landing, spec={"select": select}).staged)
    assert row["source_file"] == f"s3a://landing/{landing.root}/a.parquet"


@pytest.fixture
def counted(landing: Landing) -> Iterator[CountingProxy]:
    """The landing's bucket, reached through a proxy that writes down what is opened."""
    assert landing.access.endpoint is not None
    with CountingProxy(landing.access.endpoint) as proxy:
        landing.access = S3Access(
            landing.access.access_key, landing.access.secret_key, endpoint=proxy.endpoint
        )
        forget_filesystems(landing)
        yield proxy
    forget_filesystems(landing)


def forget_filesystems(landing: Landing) -> None:
    """Hadoop keeps one for each bucket, with the endpoint that it was made with."""
    jvm: Any = landing.spark.sparkContext._jvm
    jvm.org.apache.hadoop.fs.FileSystem.closeAll()


def test_only_new_files_are_opened_and_known_row_groups_skipped(
    landing: Landing, counted: CountingProxy
) -> None:
    # Spark compares times with a zone to a row group's statistics, but none without.
    zoned = pa.timestamp("us", "UTC")
    noise = [f"{n * 7919 % 100_003:06d}" * 20 for n in range(20_000)]
    hours = at(*(n / 1000 for n in range(20_000))).cast(zoned)
    big = pa.table({"id": list(range(20_000)), "at": hours, "noise": noise})
    sink = io.BytesIO()
    pq.write_table(big, sink, row_group_size=1_000, compression="none")
    landing.put("big.parquet", sink.getvalue())
    landing.put("old.parquet", {"id": [1], "at": at(1).cast(zoned), "noise": ["x"]})
    first = stage(landing, until="2026-02-11 19:00:00")
    size = len(sink.getvalue())
    assert counted.bytes_of(f"{landing.root}/big.parquet") > size / 2
    landing.put("new.parquet", {"id": [2], "at": at(30).cast(zoned), "noise": ["x"]})
    unfinished = [file for file in opened(landing, *first.sources) if "old" not in file.key]
    counted.clear()
    manifest = stage(landing, unfinished, kind="timestamptz", ahead=None)
    assert manifest.rows_staged == 1_001
    names = {key.rpartition("/")[2] for key in counted.opened() if landing.root in key}
    assert {"big.parquet", "new.parquet"} <= names
    assert "old.parquet" not in names
    assert counted.bytes_of(f"{landing.root}/big.parquet") < size / 4
