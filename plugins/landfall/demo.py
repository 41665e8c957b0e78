"""`make demo`: lands three days of sales on the local S3 server, loads one, shows the result."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.rule import Rule
from rich.text import Text

from landfall import local_s3, screens
from landfall.dataset import Dataset
from landfall.dataset_files import read_dataset
from landfall.errors import TransientError
from landfall.listing import split_uri
from landfall.local_s3 import LocalS3
from landfall.retail import Landed, land
from landfall.settings import Settings

if TYPE_CHECKING:
    from landfall.ledger import LedgerRow

DATASET = "retail_transactions"
DAYS = (date(2026, 2, 10), date(2026, 2, 11), date(2026, 2, 12))
LOADED = DAYS[1].isoformat()
TASKS = ("wait_for_partition", "stage_partition", "load_partition")

_ERROR = re.compile(r"\b(\w*(Error|Exception|Unreachable|Conflict|SourceChanged))\b[:\s]")
_COLOUR_CODES = re.compile(r"\x1b\[[0-9;]*m")

Say = Callable[[str], None]


@dataclass(frozen=True)
class TaskRun:
    task: str
    state: str
    seconds: float | None


@dataclass(frozen=True)
class Outcome:
    """What the table and the ledger hold after the run."""

    regions: tuple[tuple[str, int, int, Any], ...]
    runs: tuple[LedgerRow, ...]


def run_demo(settings: Settings, console: Console, *, verbose: bool = False) -> int:
    dataset = shipped(settings, DATASET)
    log = new_log(settings)
    with step(console, "local S3 server") as say:
        server = local_s3.start(settings.s3_dir)
        say(server.endpoint)
    with step(console, f"landing of {len(DAYS)} days") as say:
        landed = _land(dataset, server)
        kept = "" if landed.written else ", there already"
        say(f"{landed.files} files, {screens.size(landed.bytes)}{kept}")
    with step(console, f"airflow dags test {DATASET} {LOADED}") as say:
        run_dag(settings, server, log, say, LOADED, echo=console if verbose else None)
        say("")
    with step(console, "reading the warehouse"):
        os.environ["AIRFLOW_CONN_AWS_DEFAULT"] = server.connection_json()
        outcome = _outcome(dataset, settings)
    _show(console, dataset, task_runs(), outcome, log)
    return 0


def shipped(settings: Settings, name: str) -> Dataset:
    path = settings.spark_job.parents[1] / "dags/datasets" / f"{name}.yaml"
    return read_dataset(path).dataset


def new_log(settings: Settings) -> Path:
    log = settings.home / "logs" / f"demo-{datetime.now(UTC):%Y%m%dT%H%M%S}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    return log


@contextmanager
def step(console: Console, name: str) -> Iterator[Say]:
    """A spinner with the time on a terminal, one plain line otherwise."""
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    said = [""]
    begun = time.monotonic()
    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    task = bar.add_task(name)

    def say(detail: str) -> None:
        said[0] = detail
        bar.update(task, description=f"{name}  [dim]{detail}[/dim]" if detail else name)

    try:
        with bar:
            yield say
    except BaseException:
        screens.line(console, "✗", "red", name, f"{time.monotonic() - begun:.1f} s")
        raise
    took = f"{time.monotonic() - begun:.1f} s"
    screens.line(console, "✓", "green", name, f"{said[0]}, {took}" if said[0] else took)


def client_of(server: LocalS3) -> Any:
    import boto3
    from botocore.config import Config

    return boto3.client(
        "s3",
        endpoint_url=server.endpoint,
        region_name=local_s3.REGION,
        aws_access_key_id=server.access_key,
        aws_secret_access_key=server.secret_key,
        config=Config(proxies={}, s3={"addressing_style": "path"}),
    )


def _land(dataset: Dataset, server: LocalS3) -> Landed:
    bucket, prefix = split_uri(dataset.source.uri)
    return land(client_of(server), bucket, prefix, DAYS)


def run_dag(
    settings: Settings,
    server: LocalS3,
    log: Path,
    say: Say,
    *arguments: str,
    dataset: str = DATASET,
    echo: Console | None,
) -> None:
    """Airflow's own command, in a process of its own; its words go to the log."""
    airflow = settings.spark_job.parents[1] / "bin" / "airflow"
    environment = {
        **os.environ,
        "AIRFLOW_CONN_AWS_DEFAULT": server.connection_json(),
        "PYTHONUNBUFFERED": "1",
    }
    with (
        log.open("w", encoding="utf-8") as target,
        subprocess.Popen(
            [str(airflow), "dags", "test", dataset, *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
        ) as process,
    ):
        assert process.stdout is not None
        reached = 0
        try:
            for line in process.stdout:
                target.write(line)
                if echo is not None:
                    echo.out(line.rstrip("\n"), highlight=False)
                while reached < len(TASKS) and TASKS[reached] in line:
                    say(TASKS[reached])
                    reached += 1
                if "up_for_retry" in line:  # a demo does not sit out the minutes until a retry
                    break
        finally:
            process.terminate()  # of no effect on a process that has ended; else none is left
    failed = [run for run in task_runs(dataset) if run.state not in ("success", "skipped")]
    if process.returncode or failed:
        where = failed[0].task if failed else "airflow dags test"
        raise TransientError(last_error(log), where=where, fix=f"the whole log is {log}")


def last_error(log: Path) -> str:
    """The last line of the log that names an error: what a person would look for."""
    lines = _COLOUR_CODES.sub("", log.read_text(encoding="utf-8", errors="replace")).splitlines()
    named = [line.strip() for line in lines if _ERROR.search(line)]
    found = named or [line.strip() for line in lines if line.strip()] or ["it said nothing."]
    return found[-1][:600]


def task_runs(dataset: str = DATASET) -> list[TaskRun]:
    """The three tasks of the newest run, from Airflow's database, without importing Airflow."""
    from sqlalchemy import create_engine, text

    engine = create_engine(os.environ["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"])
    query = text(
        "SELECT task_id, state, start_date, end_date FROM task_instance "
        "WHERE dag_id = :dag AND run_id = "
        "(SELECT run_id FROM dag_run WHERE dag_id = :dag ORDER BY id DESC LIMIT 1)"
    )
    with engine.connect() as con:
        found = {row[0]: row for row in con.execute(query, {"dag": dataset})}
    engine.dispose()
    return [
        TaskRun(task, str(found[task][1] or "not run"), _seconds(*found[task][2:]))
        for task in TASKS
        if task in found
    ]


def _seconds(start: Any, end: Any) -> float | None:
    if not start or not end:
        return None
    # SQLite gives text, other databases give times.
    begun, ended = (datetime.fromisoformat(str(moment)) for moment in (start, end))
    return (ended - begun).total_seconds()


def _outcome(dataset: Dataset, settings: Settings) -> Outcome:
    import duckdb

    from landfall.ledger import last_runs
    from landfall.plan import reading_warehouse
    from landfall.sql import Destination

    destination = Destination.parse(dataset.load.destination)
    warehouse = reading_warehouse(dataset, settings)
    with warehouse.connect(destination.database, read_only=True) as con:
        try:
            regions = con.execute(
                "SELECT region, count(*), count(DISTINCT store_id), sum(amount) "  # noqa: S608
                f"FROM {destination.qualified} WHERE date = ? GROUP BY region ORDER BY region",
                [LOADED],
            ).fetchall()
        except duckdb.Error as error:
            raise warehouse.classify(error) from error
        runs = last_runs(con, destination, dataset.load.ledger, dataset=DATASET, limit=5)
    return Outcome(tuple(regions), tuple(runs))


def show_tasks(console: Console, tasks: list[TaskRun], title: str = "Tasks") -> None:
    console.print()
    drawn = screens.table(title, ["task", "state", "seconds"], ["seconds"])
    for task in tasks:
        colour = "green" if task.state == "success" else "yellow"
        seconds = "" if task.seconds is None else f"{task.seconds:.1f}"
        drawn.add_row(task.task, Text(task.state, style=colour), seconds)
    console.print(drawn)


def _show(
    console: Console, dataset: Dataset, tasks: list[TaskRun], outcome: Outcome, log: Path
) -> None:
    show_tasks(console, tasks)
    columns = ["region", "rows", "stores", "sales"]
    title = f"\n{dataset.load.destination}, date = {LOADED}"
    drawn = screens.table(title, columns, columns[1:])
    for region, rows, stores, sales in outcome.regions:
        drawn.add_row(region, f"{rows:,}", str(stores), f"{sales:,.2f}")
    drawn.add_row(
        Text("all", style="bold"),
        f"{sum(row[1] for row in outcome.regions):,}",
        str(sum(row[2] for row in outcome.regions)),
        f"{sum(row[3] for row in outcome.regions):,.2f}",
    )
    console.print(drawn)
    screens.show_runs(console, outcome.runs, title=f"\nLedger ({dataset.load.ledger})")
    show_next(
        console,
        log,
        (f"bin/landfall plan {DATASET} 2026-02-12", "what a run of the next day would do"),
        (f"bin/airflow dags test {DATASET} 2026-02-12", "do it"),
        (f"bin/landfall status {DATASET}", "what is loaded"),
        (f"bin/landfall history {DATASET} date={LOADED}", "which files it was made of"),
        ("make demo", "load the same day again: the same table, one more ledger row"),
        (f"dags/datasets/{DATASET}.yaml", "change the filter, run again: only that day changes"),
    )


def show_next(console: Console, log: Path, *commands: tuple[str, str]) -> None:
    console.print(Rule(style="dim"))
    console.print(Text("Try next", style="bold"))
    for command, text in commands:
        console.print(Text(f"  {command:<60} ").append(text, style="dim"), soft_wrap=True)
    console.print(Text(f"\nlog: {log}", style="dim"), soft_wrap=True)
