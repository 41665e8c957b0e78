"""Filter, deduplicate and select do what the dataset file says, and every row is accounted for."""

from __future__ import annotations

import datetime as dt
import json
import os
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import stage_partition
from landfall.manifest import Manifest
from landfall.s3_access import SOURCE_ENV, STAGE_ENV
from landfall.spark.store import Store
from tests.spark.conftest import Landing, once

pytestmark = pytest.mark.slow

DAY = "date=2026-02-11"
THE_DAY = {"date": "2026-02-11"}
REPOSITORY = Path(__file__).resolve().parents[2]


def test_every_row_read_is_filtered_deduplicated_or_staged(landing: Landing) -> None:
    landing.put(f"region=NE/{DAY}/a.parquet", {"id": [1, 1, 2], "ok": [True, True, False]})
    landing.put(f"region=SW/{DAY}/b.parquet", {"id": [1, 3, 4], "ok": [True, True, None]})
    manifest = landing.stage(
        {"region": "*", **THE_DAY}, filter="ok", deduplicate=once("id"), select={"id": "id"}
    )
    counts = (manifest.rows_read, manifest.rows_filtered, manifest.rows_deduplicated)
    assert (*counts, manifest.rows_staged) == (6, 2, 2, 2)
    assert [file.rows for file in manifest.staged] == [2]


def test_a_filter_that_is_null_drops_the_row(landing: Landing) -> None:
    landing.put(f"{DAY}/a.parquet", {"n": [1, None, 3]})
    manifest = landing.stage(THE_DAY, filter="n > 1")
    assert [row["n"] for row in landing.rows(manifest)] == [3]
    assert manifest.rows_filtered == 2


@pytest.mark.parametrize("expression", ["n > 5", "1 = 0"])
@pytest.mark.parametrize("deduplicate", [None, once("n")])
def test_no_row_left_is_a_stage_without_files(
    landing: Landing, expression: str, deduplicate: Any
) -> None:
    landing.put(f"region=NE/{DAY}/a.parquet", {"n": [1, 2]})
    landing.put(f"region=SW/{DAY}/a.parquet", {"n": [1, 2]})
    manifest = landing.stage({"region": "*", **THE_DAY}, filter=expression, deduplicate=deduplicate)
    assert manifest.staged == ()
    assert (manifest.rows_read, manifest.rows_filtered, manifest.rows_staged) == (4, 4, 0)
    assert [column.name for column in manifest.columns] == ["n", "region", "date"]


def test_files_without_rows_are_a_stage_without_rows(landing: Landing) -> None:
    landing.put(f"{DAY}/a.parquet", {"n": pa.array([], pa.int64())})
    manifest = landing.stage(THE_DAY)
    assert (manifest.staged, manifest.rows_read, manifest.rows_staged) == ((), 0, 0)


def test_the_latest_row_of_each_key_stays(landing: Landing) -> None:
    at = [dt.datetime(2026, 2, 11, hour) for hour in (9, 12, 10)]
    landing.put(f"{DAY}/a.parquet", {"id": [1, 1, 1], "at": [*at], "n": [1, 2, 3]})
    landing.put(
        f"{DAY}/b.parquet",
        {"id": [1, 2], "at": pa.array([None, None], pa.timestamp("us")), "n": [4, 5]},
    )
    manifest = landing.stage(THE_DAY, deduplicate=once("id", latest_by="at"))
    assert sorted((r["id"], r["n"]) for r in landing.rows(manifest)) == [(1, 2), (2, 5)]


def test_null_keys_are_one_key(landing: Landing) -> None:
    ids = pa.array([None, None, 1], pa.int64())
    landing.put(f"{DAY}/a.parquet", {"id": ids, "other": ["x", "x", "x"]})
    manifest = landing.stage(THE_DAY, deduplicate=once("id", "other"))
    assert manifest.rows_staged == 2


def test_ties_are_broken_the_same_way_whatever_the_order(landing: Landing) -> None:
    rows = [
        {"id": i % 3, "n": i, "m": [(str(i), i)], "at": dt.datetime(2026, 2, 11, 0, 0, 0, i)}
        for i in range(30)
    ]
    shape = pa.schema(
        {
            "id": pa.int64(),
            "n": pa.int64(),
            "m": pa.map_(pa.string(), pa.int64()),
            "at": pa.timestamp("us"),
        }
    )
    chosen = []
    for name, order in (("up", rows), ("down", rows[::-1])):
        one = replace(landing, root=f"{landing.root}-{name}")
        for part in range(2):
            table = pa.Table.from_pylist(order[part * 15 : part * 15 + 15], shape)
            one.put(f"{DAY}/{part}.parquet", table)
        manifest = one.stage(THE_DAY, deduplicate=once("id"), select={"id": "id", "n": "n"})
        chosen.append({(row["id"], row["n"]) for row in one.rows(manifest)})
    assert len(chosen[0]) == 3
    assert chosen[0] == chosen[1]


def test_select_gives_its_columns_and_the_partition_keys(landing: Landing) -> None:
    landing.put(f"region=NE/{DAY}/a.parquet", {"a b": [2], "n": [3]})
    manifest = landing.stage(
        {"region": "*", **THE_DAY},
        {"date": "date"},
        filter="n = 3",
        select={"Double It": "`a b` * 2", "region": "region"},
    )
    assert landing.rows(manifest) == [
        {"Double It": 4, "region": "NE", "date": dt.date(2026, 2, 11)}
    ]


def test_the_stage_is_committed_by_the_magic_committer(landing: Landing) -> None:
    landing.put(f"{DAY}/a.parquet", {"n": [1]})
    manifest = landing.stage(THE_DAY)
    success = manifest.staged[0].uri.rpartition("/")[0] + "/_SUCCESS"
    assert json.loads(landing.object(success))["committer"] == manifest.committer == "magic"


def test_the_manifest_is_written_last(landing: Landing, monkeypatch: pytest.MonkeyPatch) -> None:
    landing.put(f"{DAY}/a.parquet", {"n": [1]})
    before: list[str] = []
    write = Store.write_text

    def watched(store: Store, key: str, text: str) -> None:
        before.extend(landing.staged_keys())
        write(store, key, text)

    monkeypatch.setattr(Store, "write_text", watched)
    spec = landing.spec(THE_DAY)
    manifest = landing.run(spec)
    written = Manifest.from_json(landing.object(spec.manifest_uri).decode(), where="here")
    assert written == manifest
    added = {key for key in set(landing.staged_keys()) - set(before) if not key.endswith("/")}
    assert added == {f"{landing.root}/{spec.attempt}/manifest.json"}


def test_staged_files_are_zstd_and_read_by_duckdb(landing: Landing, tmp_path: Path) -> None:
    zoned = pa.array([dt.datetime(2026, 2, 11, tzinfo=dt.UTC)], pa.timestamp("us", "UTC"))
    plain = pa.array([dt.datetime(2026, 2, 11)], pa.timestamp("ms"))
    landing.put(f"{DAY}/a.parquet", {"zoned": zoned, "plain": plain, "small": pa.array([1], "i1")})
    manifest = landing.stage(THE_DAY, {"date": "date"})
    local = tmp_path / "part.parquet"
    local.write_bytes(landing.object(manifest.staged[0].uri))
    with duckdb.connect() as connection:
        described = connection.execute(f"DESCRIBE FROM '{local}'").fetchall()
        codecs = connection.execute(f"SELECT compression FROM parquet_metadata('{local}')")
        assert set(codecs.fetchall()) == {("ZSTD",)}
    assert [row[1] for row in described] == [
        "TIMESTAMP WITH TIME ZONE",
        "TIMESTAMP",
        "TINYINT",
        "DATE",
    ]


def test_the_job_runs_by_spark_submit_and_prints_no_secret(
    landing: Landing, jars: list[Path], tmp_path: Path
) -> None:
    landing.put(f"{DAY}/a.parquet", {"n": [1, 2]})
    package = tmp_path / "landfall.zip"
    with zipfile.ZipFile(package, "w") as archive:
        for name in (
            "__init__",
            "errors",
            "partition",
            "listing",
            "manifest",
            "s3_access",
            "watermark",
        ):
            archive.write(REPOSITORY / f"plugins/landfall/{name}.py", f"landfall/{name}.py")
        for path in (REPOSITORY / "plugins/landfall/spark").glob("*.py"):
            archive.write(path, f"landfall/spark/{path.name}")
    good = landing.spec(THE_DAY)
    bad = landing.spec({"date": "2000-01-01"})
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "PYSPARK_PYTHON": sys.executable,
        SOURCE_ENV: landing.access.to_json(),
        STAGE_ENV: landing.access.to_json(),
        **{k: os.environ[k] for k in ("JAVA_HOME",) if k in os.environ},
    }
    jobs = [
        subprocess.Popen(
            [
                Path(sys.executable).with_name("spark-submit"),
                "--master=local[2]",
                f"--jars={','.join(map(str, jars))}",
                f"--py-files={package}",
                Path(stage_partition.__file__),
                spec.to_json(),
            ],
            env=environment,
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for spec in (good, bad)
    ]
    try:
        outputs = [job.communicate(timeout=120) for job in jobs]
    finally:
        for job in jobs:
            job.kill()
    (staged, _), (failed, _) = outputs
    assert staged == f"landfall-staged: {good.manifest_uri} rows=2 files=1\n"
    (line,) = failed.splitlines()
    assert json.loads(line.removeprefix("landfall-error: "))["kind"] == "SourceError"
    assert [job.returncode for job in jobs] == [0, 1]
    assert landing.access.secret_key is not None
    for text in (*outputs[0], *outputs[1], landing.object(good.manifest_uri).decode()):
        assert landing.access.secret_key not in text
