"""`make demo DATASET=taxi_trips`: a month of trips, loaded up to a cap, again, and to its end."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from landfall import local_s3, screens
from landfall.demo import (
    TaskRun,
    client_of,
    new_log,
    run_dag,
    shipped,
    show_next,
    show_tasks,
    step,
    task_runs,
)
from landfall.listing import split_uri
from landfall.settings import Settings
from landfall.taxi import land

if TYPE_CHECKING:
    from landfall.dataset import Dataset
    from landfall.ledger import LedgerRow

DATASET = "taxi_trips"
CAP = "2022-11-02"
REPLAY = {"from": "2022-11-05", "until": "2022-11-06"}
WALK: tuple[tuple[str, dict[str, Any]], ...] = (
    (f"up to {CAP}", {"until": CAP}),
    ("the same again", {"until": CAP}),
    ("without the cap", {}),
)


def run_taxi_demo(settings: Settings, console: Console, *, verbose: bool = False) -> int:
    dataset = shipped(settings, DATASET)
    log = new_log(settings)
    with step(console, "local S3 server") as say:
        server = local_s3.start(settings.s3_dir)
        say(server.endpoint)
    with step(console, "landing of a month of trips") as say:
        bucket, glob = split_uri(dataset.source.uri)
        landed = land(client_of(server), bucket, glob.rstrip("/").rpartition("/")[0])
        kept = "" if landed.written else ", there already"
        say(f"{landed.rows:,} rows, {screens.size(landed.bytes)}{kept}")
    os.environ["AIRFLOW_CONN_AWS_DEFAULT"] = server.connection_json()
    walked: list[list[TaskRun]] = []
    for name, conf in WALK:
        with step(console, f"airflow dags test {DATASET}, {name}") as say:
            arguments = ("--conf", json.dumps(conf)) if conf else ()
            own = log.with_suffix(f".{len(walked) + 1}.log")
            echo = console if verbose else None
            run_dag(settings, server, own, say, *arguments, dataset=DATASET, echo=echo)
            (run,) = _last_runs(dataset, settings, 1)
            say(f"{run.row_count or 0:,} rows, watermark {run.watermark}")
        walked.append(task_runs(DATASET))
    show_tasks(console, walked[1], "Tasks of the second run")
    console.print(Text("No file was new: no Spark job was submitted.", style="dim"))
    runs = _last_runs(dataset, settings, 5)
    screens.show_runs(console, runs, title=f"\nLedger ({dataset.load.ledger})")
    if not any(run.row_count for run in runs[: len(WALK)]):
        console.print(
            Text(
                f"The month was loaded before. To see the walk anew, remove "
                f"{settings.warehouse_dir / 'taxi.duckdb'}.",
                style="yellow",
            ),
            soft_wrap=True,
        )
    show_next(
        console,
        log.with_suffix(".*.log"),
        (f"bin/landfall plan {DATASET}", "what the next run would open"),
        (f"bin/landfall status {DATASET}", "how far it has been read"),
        (f"bin/airflow dags test {DATASET} --conf '{json.dumps(REPLAY)}'", "load a day again"),
        ("docs/datasets.md", "replace or upsert: when to choose which"),
    )
    return 0


def _last_runs(dataset: Dataset, settings: Settings, limit: int) -> list[LedgerRow]:
    from landfall.ledger import last_runs
    from landfall.plan import reading_warehouse
    from landfall.sql import Destination

    destination = Destination.parse(dataset.load.destination)
    warehouse = reading_warehouse(dataset, settings)
    with warehouse.connect(destination.database, read_only=True) as con:
        return last_runs(con, destination, dataset.load.ledger, dataset=DATASET, limit=limit)
