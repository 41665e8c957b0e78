from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

import pytest

from landfall.errors import ConfigError, SourceError
from landfall.listing import SourceFile, find_files, fingerprint, list_source, split_uri
from landfall.partition import Partition

DAY = Partition.of({"region": "*", "date": "2026-02-11"}, {"date": "date"})


class Keys:
    """A store of keys in memory, which counts what it is asked."""

    def __init__(self, keys: Iterable[str]) -> None:
        self.keys = sorted(keys)
        self.requests: list[str] = []

    def folders(self, prefix: str) -> list[str]:
        self.requests.append(prefix)
        below = (key.removeprefix(prefix) for key in self.keys if key.startswith(prefix))
        return sorted({rest.partition("/")[0] for rest in below if "/" in rest})

    def files(self, prefix: str) -> list[SourceFile]:
        self.requests.append(prefix)
        return [SourceFile(key, 10, "e") for key in self.keys if key.startswith(prefix)]


def history(days: int) -> list[str]:
    return [
        f"t/region={region}/date=2026-{1 + day // 28:02d}-{1 + day % 28:02d}/a.parquet"
        for region in ("NW", "SW")
        for day in range(days)
    ]


def keys_of(store: Keys, partition: Partition = DAY, pattern: str = "*.parquet") -> list[str]:
    return [file.key for file in find_files(store, "t/", partition, pattern).files]


def test_all_outer_keys_are_found() -> None:
    store = Keys(history(60))
    assert keys_of(store) == [
        "t/region=NW/date=2026-02-11/a.parquet",
        "t/region=SW/date=2026-02-11/a.parquet",
    ]


def test_the_number_of_requests_does_not_depend_on_the_history() -> None:
    one, many = Keys(history(40)), Keys(history(300))
    keys_of(one)
    keys_of(many)
    assert one.requests == many.requests
    assert len(one.requests) == 3


def test_a_date_that_only_begins_alike_is_not_read() -> None:
    store = Keys(["t/date=2026-02-11/a.parquet", "t/date=2026-02-110/a.parquet"])
    day = Partition.of({"date": "2026-02-11"}, {})
    assert keys_of(store, day) == ["t/date=2026-02-11/a.parquet"]


def test_a_folder_of_another_key_is_not_an_outer_key() -> None:
    store = Keys(["t/country=X/date=2026-02-11/a.parquet", "t/region=X/date=2026-02-11/a.parquet"])
    assert keys_of(store) == ["t/region=X/date=2026-02-11/a.parquet"]


@pytest.mark.parametrize("name", ["_SUCCESS", ".a.parquet", "_tmp/a.parquet", "a.csv"])
def test_what_is_no_source_file_is_listed_apart(name: str) -> None:
    folder = "t/region=NW/date=2026-02-11/"
    listing = find_files(Keys([folder + "a.parquet", folder + name]), "t/", DAY, "*.parquet")
    assert [file.name for file in listing.files] == ["a.parquet"]
    assert [file.key for file in listing.others] == [folder + name]
    assert listing.bytes == 10


def test_a_folder_without_source_files_is_not_named() -> None:
    listing = find_files(Keys(["t/region=NW/date=2026-02-11/_SUCCESS"]), "t/", DAY, "*.parquet")
    assert listing.folders == ()
    assert listing.files == ()


def test_a_key_missing_in_the_dataset_file_is_an_error_with_the_fix() -> None:
    store = Keys(["t/region=NW/date=2026-02-11/hour=06/a.parquet"])
    with pytest.raises(SourceError, match='hour: "\\*"'):
        keys_of(store)


def test_the_whole_prefix_is_one_partition_without_keys() -> None:
    assert keys_of(Keys(["t/a.parquet", "u/b.parquet"]), Partition.of({}, {})) == ["t/a.parquet"]


@pytest.mark.parametrize(
    ("uri", "parts"),
    [
        ("s3://landing/transactions", ("landing", "transactions/")),
        ("s3://landing/a/b/", ("landing", "a/b/")),
        ("s3a://landing", ("landing", "")),
    ],
)
def test_a_uri_is_bucket_and_prefix(uri: str, parts: tuple[str, str]) -> None:
    assert split_uri(uri) == parts


@pytest.mark.parametrize("uri", ["landing/transactions", "https://landing/t", "s3://"])
def test_another_uri_is_refused(uri: str) -> None:
    with pytest.raises(ConfigError, match="s3://bucket/prefix"):
        split_uri(uri)


def test_the_fingerprint_ignores_order_and_time() -> None:
    early = SourceFile("a", 1, "x", datetime(2026, 2, 11, tzinfo=UTC))
    late = SourceFile("a", 1, "x", datetime(2026, 2, 12, tzinfo=UTC))
    other = SourceFile("b", 2, "y")
    assert fingerprint([early, other]) == fingerprint([other, late])


@pytest.mark.parametrize("changed", [("c", 1, "x"), ("a", 2, "x"), ("a", 1, "z")])
def test_the_fingerprint_sees_key_size_and_etag(changed: tuple[str, int, str]) -> None:
    assert fingerprint([SourceFile("a", 1, "x")]) != fingerprint([SourceFile(*changed)])


TRIPS = (
    "trips/2022/yellow_01.parquet",
    "trips/2022/yellow_02.parquet",
    "trips/2022/green_01.parquet",
    "trips/2022/_yellow_03.parquet",
    "trips/2022/yellow_01.csv",
    "trips/2023/yellow_01.parquet",
    "trips/2023/deep/yellow_01.parquet",
    "trips_old/2022/yellow_01.parquet",
)


@pytest.mark.parametrize(
    ("glob", "found"),
    [
        ("trips/2022/yellow_*.parquet", [TRIPS[0], TRIPS[1]]),
        ("trips/*/yellow_01.parquet", [TRIPS[0], TRIPS[5]]),
        ("trips/202?/yellow_*", [TRIPS[0], TRIPS[1], TRIPS[5]]),
        ("trips/2022/[yg]*_01.parquet", [TRIPS[2], TRIPS[0]]),
        ("trips/2022/*", [TRIPS[2], TRIPS[0], TRIPS[1]]),
    ],
)
def test_a_glob_names_objects_and_never_crosses_a_folder(glob: str, found: list[str]) -> None:
    store = Keys(TRIPS)
    listing = list_source(store, f"s3://b/{glob}", Partition(()), "*.parquet")
    assert [file.key for file in listing.files] == found
    assert not listing.whole
    assert all(prefix.startswith("trips/") for prefix in store.requests)


def test_one_file_is_that_file_alone() -> None:
    store = Keys(["trips/a.parquet", "trips/a.parquet.parquet", "trips/b.parquet"])
    listing = list_source(store, "s3://b/trips/a.parquet", Partition(()), "*.parquet")
    assert [file.key for file in listing.files] == ["trips/a.parquet"]
    assert (listing.folders, listing.whole) == (("trips/",), False)


def test_a_folder_may_be_named_like_a_file() -> None:
    store = Keys(["trips/a.parquet/part-0.parquet"])
    listing = list_source(store, "s3://b/trips/a.parquet", Partition(()), "*.parquet")
    assert [file.key for file in listing.files] == ["trips/a.parquet/part-0.parquet"]
    assert listing.whole


def test_a_prefix_is_listed_as_before() -> None:
    store = Keys(history(60))
    listing = list_source(store, "s3://b/t", DAY, "*.parquet")
    assert listing == find_files(store, "t/", DAY, "*.parquet")
