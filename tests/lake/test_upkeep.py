"""Maintenance makes a lake smaller; it never deletes what landed, or what may still be needed."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from landfall.errors import ConfigError
from landfall.lake_upkeep import Action, Done, Upkeep, maintain
from landfall.load import load
from landfall.local_s3 import LocalS3
from landfall.warehouse.duckdb import DuckDBWarehouse
from landfall.warehouse.ducklake import DuckLakeWarehouse
from tests.loading import DESTINATION, Stage, fetch, rows, table
from tests.registering import SALES, Shop, access

pytestmark = pytest.mark.slow

NOW = datetime.now(UTC)
LATER = NOW + timedelta(days=100)
NW, SW = "region=NW/date=2026-02-11", "region=SW/date=2026-02-11"


def upkeep(action: Action, **more: Any) -> Upkeep:
    plain = Upkeep(action, DESTINATION, "ingest_runs", landings=(), owned=(), days=30)
    return replace(plain, **more)


def day(number: int) -> str:
    return f"2026-03-{number:02d}T00:00:00+00:00"


@pytest.fixture
def loaded(stage: Stage, warehouse: DuckLakeWarehouse) -> DuckLakeWarehouse:
    """The same partition three times: two of the table's files are history."""
    for number in (1, 2, 3):
        load(warehouse, stage.request(rows(factor=number), staged_at=day(number)))
    return warehouse


def files(warehouse: DuckLakeWarehouse) -> set[Path]:
    return set(Path(warehouse.data_path("retail")).rglob("*.parquet"))


def snapshots(warehouse: DuckLakeWarehouse) -> int:
    return int(fetch(warehouse, "SELECT count(*) FROM retail.snapshots()")[0][0])


def test_merge_leaves_the_same_rows_in_fewer_files(
    stage: Stage, warehouse: DuckLakeWarehouse
) -> None:
    for number in (1, 2, 3):
        date = f"2026-02-{number:02d}"
        partition = {"region": "*", "date": date}
        load(warehouse, stage.request(rows(date), partition=partition, staged_at=day(number)))
    before = table(warehouse)
    count = "SELECT count(*) FROM ducklake_list_files('retail', 'transactions')"
    assert fetch(warehouse, count) == [(3,)]
    dry = maintain(warehouse, upkeep(Action.MERGE, dry_run=True), NOW)
    assert "transactions: 3 files" in dry.lines
    assert fetch(warehouse, count) == [(3,)]
    done = maintain(warehouse, upkeep(Action.MERGE), NOW)
    assert "transactions: 3 of 3 files merged into 1" in done.lines
    assert fetch(warehouse, count) == [(1,)]
    assert table(warehouse) == before
    load(warehouse, stage.request(rows(), staged_at=day(9)))
    assert len(table(warehouse)) == len(before) + 10


def test_expire_and_cleanup_remove_history_only(loaded: DuckLakeWarehouse) -> None:
    before, there = table(loaded), files(loaded)
    made = snapshots(loaded)
    dry = maintain(loaded, upkeep(Action.EXPIRE, dry_run=True), LATER)
    assert len(dry.lines) == made - 1
    assert snapshots(loaded) == made
    maintain(loaded, upkeep(Action.EXPIRE), LATER)
    assert snapshots(loaded) == 1
    dry = maintain(loaded, upkeep(Action.CLEANUP, dry_run=True), LATER)
    assert dry.lines
    assert files(loaded) == there
    done = maintain(loaded, upkeep(Action.CLEANUP), LATER)
    assert {Path(line) for line in done.lines} == there - files(loaded)
    assert table(loaded) == before


def test_what_is_young_stays(loaded: DuckLakeWarehouse) -> None:
    made, there = snapshots(loaded), files(loaded)
    assert maintain(loaded, upkeep(Action.EXPIRE, days=1), NOW).lines == ()
    maintain(loaded, upkeep(Action.EXPIRE), LATER)
    assert maintain(loaded, upkeep(Action.CLEANUP, days=1), NOW).lines == ()
    assert made > 1
    assert files(loaded) == there


@pytest.mark.parametrize("action", list(Action))
def test_a_retention_below_the_floor_is_refused(
    warehouse: DuckLakeWarehouse, action: Action
) -> None:
    with pytest.raises(ConfigError, match="floor of 1"):
        maintain(warehouse, upkeep(action, days=0), NOW)


def test_orphans_are_deleted_on_demand_and_only_old_ones(loaded: DuckLakeWarehouse) -> None:
    orphan = Path(loaded.data_path("retail")) / "main" / "transactions" / "left-over.parquet"
    orphan.write_bytes(b"of a load that was killed")
    assert maintain(loaded, upkeep(Action.CLEANUP), LATER).lines == ()
    assert maintain(loaded, upkeep(Action.CLEANUP, orphans=True), NOW).lines == ()
    dry = maintain(loaded, upkeep(Action.CLEANUP, orphans=True, dry_run=True), LATER)
    assert dry.lines == (str(orphan),)
    assert orphan.exists()
    before = table(loaded)
    maintain(loaded, upkeep(Action.CLEANUP, orphans=True), LATER)
    assert not orphan.exists()
    assert table(loaded) == before


@pytest.mark.parametrize("action", list(Action))
def test_a_landing_inside_the_data_path_is_refused(
    loaded: DuckLakeWarehouse, action: Action
) -> None:
    """DuckLake would take landed files there for orphans."""
    inside = f"{loaded.data_path('retail')}landing"
    with pytest.raises(ConfigError, match="lie in each other"):
        maintain(loaded, upkeep(action, landings=(inside,)), NOW)


def test_a_plain_duckdb_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="only a DuckLake"):
        maintain(DuckDBWarehouse(tmp_path), upkeep(Action.MERGE), NOW)


@pytest.fixture(params=["warehouse", "postgres_lake"])
def shop(request: pytest.FixtureRequest, s3_server: LocalS3, s3: Any) -> Shop:
    """Two files registered, and one of them deleted from the table again."""
    made = Shop(s3_server, s3, request.getfixturevalue(request.param))
    made.put(f"{NW}/a.parquet", {"id": [1]})
    made.put(f"{SW}/b.parquet", {"id": [2]})
    made.run()
    made.execute("DELETE FROM retail.main.sales WHERE region = 'SW'")
    return made


def keep_up(shop: Shop, action: Action, *, owned: bool = False, dry_run: bool = False) -> Done:
    uri = shop.dataset().source.uri
    asked = upkeep(action, destination=SALES, landings=(uri,), dry_run=dry_run)
    asked = replace(asked, owned=(uri,) if owned else ())
    return maintain(shop.warehouse, asked, LATER, {uri: access(shop.server)})


def landed(shop: Shop) -> list[str]:
    listed = shop.s3.list_objects_v2(Bucket="landing", Prefix=f"{shop.prefix}/")
    return [entry["Key"].rpartition("/")[2] for entry in listed.get("Contents", [])]


def test_a_landed_file_is_never_deleted(shop: Shop) -> None:
    keep_up(shop, Action.EXPIRE)
    dry = keep_up(shop, Action.CLEANUP, dry_run=True)
    assert [path.rpartition("/")[2] for path in dry.kept] == ["b.parquet"]
    assert not [line for line in dry.lines if line.startswith("s3://landing")]
    done = keep_up(shop, Action.CLEANUP)
    assert done.lines, "the lake's own history was to be deleted"
    assert landed(shop) == ["a.parquet", "b.parquet"]
    assert keep_up(shop, Action.CLEANUP).kept == ()
    assert shop.ids() == [1]


def test_a_landed_file_that_is_ducklakes_is_deleted_when_no_snapshot_needs_it(shop: Shop) -> None:
    keep_up(shop, Action.CLEANUP, owned=True)
    assert landed(shop) == ["a.parquet", "b.parquet"]
    keep_up(shop, Action.EXPIRE)
    keep_up(shop, Action.CLEANUP, owned=True)
    assert landed(shop) == ["a.parquet"]
    assert shop.ids() == [1]
    assert shop.run().problems == ()


def test_landed_files_are_never_merged(shop: Shop) -> None:
    """DuckLake fails on files from several folders (ducklake#1082)."""
    for number in (3, 4):
        shop.put(f"{NW}/{number}.parquet", {"id": [number]})
    shop.run()
    done = keep_up(shop, Action.MERGE, owned=True)
    assert len(done.kept) == 3
    assert done.lines[0].startswith("ingest_runs:")
    assert shop.ids() == [1, 3, 4]
