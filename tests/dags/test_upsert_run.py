"""An upsert's tasks: with nothing new no Spark job is submitted, and the run says so."""

from __future__ import annotations

import io
import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from landfall.dataset import Dataset, OnSchemaChange
from landfall.load import LoadRequest, RunInfo, load
from landfall.local_s3 import LocalS3
from landfall.manifest import Manifest, StagedFile, StagedSource, files_from_json
from landfall.partition import Partition
from landfall.sql import Destination
from landfall.warehouse.duckdb import DuckDBWarehouse

pytestmark = pytest.mark.slow

EVENTS = Destination("events", "main", "events")


class Chain:
    """The second and the third task of one dataset, run as Airflow runs them."""

    def __init__(self, dataset: Dataset, file: Path) -> None:
        from landfall.dag import table_asset
        from landfall.operators import StagePartition

        self.dataset = dataset
        self.warehouse = DuckDBWarehouse(file.parent, path=file)
        self.asset = table_asset(dataset)
        self.operator: Any = StagePartition(
            task_id="stage_partition", dataset=dataset, partition={}
        )

    def context(self, conf: dict[str, Any]) -> dict[str, Any]:
        return {
            "dag": SimpleNamespace(dag_id="events"),
            "run_id": "manual",
            "ti": SimpleNamespace(try_number=1),
            "dag_run": SimpleNamespace(conf=conf),
            "outlet_events": {self.asset: SimpleNamespace(extra=None)},
        }

    def stage(self, **conf: Any) -> str:
        uri: str = self.operator.execute(self.context(conf))
        return uri

    def load(self, uri: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """What the task gives back, and what the asset event says."""
        from landfall.load_task import load_partition

        context = self.context({})
        summary = load_partition(self.dataset, self.asset, {}, uri, context)
        return summary, context["outlet_events"][self.asset].extra


@pytest.fixture
def put(s3: Any) -> Callable[[str, list[int]], None]:
    def land(key: str, marks: list[int]) -> None:
        sink = io.BytesIO()
        pq.write_table(pa.table({"id": marks, "mark": marks}), sink)
        s3.put_object(Bucket="landing", Key=key, Body=sink.getvalue())

    return land


@pytest.fixture
def chain(s3_server: LocalS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Chain:
    root = uuid.uuid4().hex
    file = tmp_path / "events.duckdb"
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", s3_server.connection_json())
    monkeypatch.setenv(
        "AIRFLOW_CONN_LANDFALL_WAREHOUSE", f'{{"conn_type": "duckdb", "host": "{file}"}}'
    )
    dataset = Dataset.model_validate(
        {
            "dataset": "events",
            "start_date": "2026-01-01",
            "source": {"uri": f"s3://landing/{root}"},
            "load": {
                "destination": EVENTS.text,
                "mode": "upsert",
                "key": ["id"],
                "watermark": {"column": "mark", "overlap": 5},
            },
            "stage": {"uri": f"s3://stage/{root}"},
            # Whoever submits a job is found out: there is no such cluster.
            "spark": {"connection": "no_such_cluster"},
        }
    )
    return Chain(dataset, file)


def load_first(chain: Chain, tmp_path: Path) -> None:
    """The first run's load, with what Spark would have staged of the landing."""
    from landfall.operators import list_landing
    from landfall.reading import plan_reading, read_known

    dataset = chain.dataset
    assert dataset.upsert is not None
    listing = list_landing(dataset, {})
    known = read_known(chain.warehouse, dataset, Partition(()))
    reading = plan_reading(dataset.upsert, known, listing, {}, datetime.now(UTC))
    path = tmp_path / "staged.parquet"
    pq.write_table(pa.table({"id": [10], "mark": [10]}), path)
    part = replace(reading.nothing(dataset), kind="integer", reached="10")
    manifest = Manifest(
        dataset="events",
        partition=Partition(()),
        dag_run_id="manual",
        attempt="first",
        staged_at=reading.staged_at.isoformat(),
        source_uri=dataset.source.uri,
        sources=tuple(StagedSource(f.key, f.size, f.etag, 1, "10", "10") for f in listing.files),
        staged=(StagedFile(str(path), 1, path.stat().st_size),),
        rows_read=1,
        rows_filtered=0,
        rows_deduplicated=0,
        rows_rejected=0,
        rows_staged=1,
        columns=(),
        config_hash="c",
        committer="magic",
        upsert=part,
    )
    run = RunInfo("events", "manual", 1, reading.staged_at)
    request = LoadRequest(
        manifest, f"{tmp_path}/manifest.json", EVENTS, "ingest_runs", OnSchemaChange.EVOLVE,
        False, run,
    )  # fmt: skip
    load(chain.warehouse, request)


def test_a_new_file_is_handed_to_spark_and_nothing_new_is_not(
    chain: Chain, put: Callable[..., None], s3: Any, tmp_path: Path
) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    root = chain.dataset.source.uri.removeprefix("s3://landing/")
    put(f"{root}/a.parquet", [10])
    with pytest.raises(AirflowFailException, match="no_such_cluster"):
        chain.stage()
    load_first(chain, tmp_path)

    summary, event = chain.load(chain.stage())  # no Spark job: that would have failed
    assert event == summary
    wanted = ("rows_loaded", "rows_updated", "rows_inserted", "total_rows", "watermark")
    assert [summary[name] for name in wanted] == [0, 0, 0, 1, "10"]
    with chain.warehouse.connect("events", read_only=True) as con:
        rows = con.execute(
            "SELECT status, mode, row_count, watermark FROM events.main.ingest_runs "
            "ORDER BY run_at DESC LIMIT 1"
        ).fetchall()
    assert rows == [("loaded", "upsert", 0, "10")]

    put(f"{root}/b.parquet", [11])
    with pytest.raises(AirflowFailException, match="no_such_cluster"):
        chain.stage()
    assert opened(s3, root) == [f"{root}/b.parquet"]
    with pytest.raises(AirflowFailException, match="no_such_cluster"):
        chain.stage(**{"from": 9})
    assert opened(s3, root) == [f"{root}/a.parquet", f"{root}/b.parquet"]


def opened(s3: Any, root: str) -> list[str]:
    """The files that the newest attempt was told to open."""
    listed = s3.list_objects_v2(Bucket="stage", Prefix=f"{root}/")["Contents"]
    newest = max(e["Key"] for e in listed if e["Key"].endswith("/files.json"))
    body = s3.get_object(Bucket="stage", Key=newest)["Body"].read().decode()
    return [file.key for file in files_from_json(body)]


def test_a_conf_that_is_no_range_fails_before_spark_and_is_in_the_ledger(
    chain: Chain, put: Callable[..., None], tmp_path: Path
) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    root = chain.dataset.source.uri.removeprefix("s3://landing/")
    put(f"{root}/a.parquet", [10])
    load_first(chain, tmp_path)
    with pytest.raises(AirflowFailException, match=r"conf\.until: 'soon' is not a valid integer"):
        chain.stage(until="soon")
    with chain.warehouse.connect("events", read_only=True) as con:
        rows = con.execute(
            "SELECT status, mode FROM events.main.ingest_runs ORDER BY run_at DESC LIMIT 1"
        ).fetchall()
    assert rows == [("failed", "upsert")]


def test_an_upsert_runs_one_at_a_time_unless_asked(chain: Chain) -> None:
    from landfall.dag import build_dag

    assert build_dag(chain.dataset).max_active_runs == 1
    asked = chain.dataset.run.model_validate({"max_active_runs": 3})
    assert build_dag(chain.dataset.model_copy(update={"run": asked})).max_active_runs == 3


def test_plan_and_status_speak_of_the_watermark(
    chain: Chain, put: Callable[..., None], tmp_path: Path
) -> None:
    from rich.console import Console

    from landfall import screens
    from landfall.plan import make_plan
    from landfall.settings import load_settings
    from landfall.status import statuses

    def shown(show: Callable[..., None], what: Any) -> str:
        console = Console(file=io.StringIO(), width=160)
        show(console, what)
        return console.file.getvalue()  # type: ignore[attr-defined]

    settings, dataset = load_settings(), chain.dataset
    root = dataset.source.uri.removeprefix("s3://landing/")
    put(f"{root}/a.parquet", [10])
    first = make_plan(dataset, "2026-01-01", settings)
    assert first.watermark is not None
    assert (first.watermark.watermark, first.watermark.opens) == (None, 1)
    assert 'PRIMARY KEY ("id")' in first.statements[0]
    assert 'ON CONFLICT ("id") DO UPDATE' in first.statements[-1]
    load_first(chain, tmp_path)

    second = make_plan(dataset, "2026-01-01", settings)
    assert "none of 1 files: no Spark job" in shown(screens.show_plan, second)
    assert second.to_json()["watermark"]["watermark"] == "10"
    replay = make_plan(dataset, "2026-01-01", settings, {"from": 3, "until": 20})
    assert "from 3 until 20" in shown(screens.show_plan, replay)

    (status,) = found = statuses([dataset], settings)
    assert (status.watermarks[0].last_watermark, status.total_rows) == ("10", 1)
    assert "until 10" in shown(screens.show_statuses, found)


def test_a_range_for_a_dataset_without_watermark_is_refused(chain: Chain) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    plain = chain.dataset.load.model_validate({"destination": EVENTS.text})
    chain.operator.dataset = chain.dataset.model_copy(update={"load": plain})
    with pytest.raises(AirflowFailException, match=r"conf\.until: only datasets with load\.mode"):
        chain.stage(until="2026-01-01")
