"""The dataset files of the shared stack, and what lands for them."""

from __future__ import annotations

import io
import shutil
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

ROOT = Path(__file__).resolve().parents[2]
RETAIL = "retail_transactions"
MONTH = [date(2026, 2, 1) + timedelta(days=n) for n in range(28)]
LANDED = [day for day in MONTH if day.day % 8 == 1]
"""The days of the month on which something landed: four of 28."""
DAY = "2026-02-11"
ROWS = 6
SLOW_ROWS = 30
"""With the slow filter: a dozen seconds, in which something can be killed."""

LOCAL_SPARK = {"connection_id": "spark_local", "conn_type": "spark", "host": "local[1]"}
# A job of a few rows: the compiler and the collector that start fastest.
_QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_SLOW = "concat(coalesce(java_method('java.lang.Thread', 'sleep', 400L), ''), id) <> ''"
"""A filter that is true for every row and takes its time without using the processor."""


def write(folder: Path, home: Path, tick: datetime) -> None:
    """One file for each dataset; `tick` is the moment at which `ticking` is due."""
    folder.mkdir()
    shutil.copy(ROOT / "dags" / "datasets" / f"{RETAIL}.yaml", folder)
    events = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": f"file:{home}/spark-events",
    }
    one_executor = {"spark.cores.max": "1"}  # so that it is known which worker has the job
    made = [
        # Due once, a few minutes after the start, for the day before. Waits in the triggerer.
        _dataset(
            "ticking",
            schedule=f"{tick.minute} {tick.hour} * * *",
            start_date=(tick - timedelta(days=1)).date(),
            ready={"deferrable": True, "poke_seconds": 5},
        ),
        # A missing day is given up at once, so that a month of days takes minutes.
        _dataset("monthly", schedule="0 0 * * *", ready={"timeout_minutes": 0.001}),
        _dataset("tills", destination="shared.main.tills"),
        _dataset("visits", destination="shared.main.visits"),
        _dataset(
            "clustered",
            transform={"filter": _SLOW},
            spark={"connection": "spark_default", "conf": {**_conf(), **events, **one_executor}},
        ),
        _dataset("interrupted", transform={"filter": _SLOW}),
        _dataset(
            "late",
            owner="night-shift",
            tags=["nightly"],
            description="Never done in time",
            transform={"filter": _SLOW.replace("400L", "60000L")},
            run={"timeout_minutes": 0.3, "on_failure": "stack_hook.tell"},
        ),
    ]
    for one in made:
        (folder / f"{one['dataset']}.yaml").write_text(yaml.safe_dump(one))


NAMES = (RETAIL, "ticking", "monthly", "tills", "visits", "clustered", "interrupted", "late")


def _conf() -> dict[str, str]:
    return {
        "spark.driver.extraJavaOptions": _QUICK,
        "spark.executor.extraJavaOptions": _QUICK,
        "spark.sql.shuffle.partitions": "1",
    }


def _dataset(name: str, *, destination: str | None = None, **more: Any) -> dict[str, Any]:
    ready, run = more.pop("ready", {}), more.pop("run", {})
    return {
        "dataset": name,
        "start_date": date(2026, 2, 1),
        "source": {
            "uri": f"s3://landing/{name}",
            "partition": {"date": "{{ ds }}"},
            "types": {"date": "date"},
            "ready": ready,
        },
        "load": {"destination": destination or f"{name}.main.rows"},
        "spark": {"connection": "spark_local", "conf": _conf()},
        "run": {"retries": 1, "retry_minutes": 0.02, **run},
        **more,
    }


def land(s3: Any, tick: datetime) -> None:
    """Small files below each dataset's prefix."""
    days = {
        "ticking": [(tick - timedelta(days=1)).date()],
        "monthly": LANDED,
        **{name: [DAY] for name in ("tills", "visits", "late")},
    }
    for name, landed in days.items():
        for day in landed:
            put(s3, name, str(day), ROWS)
    for name in ("interrupted", "clustered"):
        put(s3, name, DAY, SLOW_ROWS)


def put(s3: Any, name: str, day: str, rows: int, *, file: str = "a") -> None:
    target = io.BytesIO()
    ids = [f"{file}{number}" for number in range(rows)]
    pq.write_table(pa.table({"id": ids, "amount": list(range(rows))}), target)
    key = f"{name}/date={day}/{file}.parquet"
    s3.put_object(Bucket="landing", Key=key, Body=target.getvalue())


def write_hook(folder: Path, target: Path) -> None:
    """A user's module that `run.on_failure` names: writes down what it was told."""
    folder.mkdir()
    (folder / "stack_hook.py").write_text(
        "from pathlib import Path\n\n"
        "def tell(context):\n"
        f"    with Path({str(target)!r}).open('a') as file:\n"
        "        ti = context['ti']\n"
        "        file.write(f'{ti.dag_id} {ti.task_id} {ti.try_number}\\n')\n"
    )
