"""Fifty stores through real writers, while S3 fails and writers are killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest
import yaml

from landfall import retail
from landfall.edge.demo_days import land_days
from landfall.edge.simulate import Simulation
from landfall.edge.status import read_status
from landfall.local_s3 import LocalS3
from landfall.s3_access import S3Access
from landfall.warehouse.s3_secret import create_s3_secret
from tests.edge.fault_proxy import Fault, FaultProxy
from tests.edge.reading import dead_letters, objects_in
from tests.edge.test_buffer import wait_for

SIMULATION = Simulation(
    stores=50,
    minutes=10,
    speed=40,
    start=datetime(2026, 2, 11, 23, 55, tzinfo=UTC),  # half of it lands in the next day
    faulty=0.01,
    seed="fault test",
)
# Simulated minutes.
WEATHER = (
    (Fault.NONE, 1),
    (Fault.DOWN, 3),
    (Fault.SLOW, 2),
    (Fault.BUSY, 2),
    (Fault.LOST, 1),
    (Fault.NONE, 0),
)
KILLS = 5


class Stores:
    """The stores of one region, in a process that can be killed and started again."""

    def __init__(self, region: str, config: Path, buffers: Path) -> None:
        self.region = region
        self._folders = [
            buffers / store
            for store in retail.stores(SIMULATION.stores)
            if retail.region_of(store) == region
        ]
        self._command = [
            *(sys.executable, "-m", "landfall.cli", "edge", "simulate", str(config)),
            *("--stores", str(SIMULATION.stores), "--regions", region),
            *("--minutes", str(SIMULATION.minutes), "--speed", str(SIMULATION.speed)),
            *("--faulty", str(SIMULATION.faulty), "--seed", SIMULATION.seed),
            *("--start", SIMULATION.start.isoformat()),
        ]
        self._log = config.with_name(f"{region}.log")
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        self._before = self.accepted
        with self._log.open("ab") as log:
            return subprocess.Popen(self._command, stdout=log, stderr=log)

    @property
    def accepted(self) -> int:
        return sum(read_status(folder, []).accepted for folder in self._folders)

    @property
    def is_working(self) -> bool:
        return self.process.poll() is None and self.accepted > self._before

    def kill_and_restart(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.process = self._start()

    def finish(self) -> None:
        assert self.process.wait(90) == 0, self._log.read_text()


def blow(proxy: FaultProxy, stop: threading.Event) -> None:
    """One kind of weather after the other, each until somebody has felt it."""
    wait_for(lambda: proxy.puts or stop.is_set())
    for fault, minutes in WEATHER:
        proxy.fault = fault
        stop.wait(minutes * 60 / SIMULATION.speed)
        wait_for(lambda fault=fault: proxy.seen[fault] or stop.is_set())  # type: ignore[misc]


def expected() -> tuple[Counter[str], Counter[str]]:
    """The ids of all sales that fit, and of those that do not."""
    fit, unfit = Counter[str](), Counter[str]()
    for store in SIMULATION.names:
        for _, _, _, record in SIMULATION.sales(store):
            faulty = record.keys() != retail.COLUMNS.keys() or record["quantity"] == "two"
            faulty = faulty or record["store_region"] is None
            (unfit if faulty else fit)[record["transaction_id"]] += 1
    return fit, unfit


def landed(server: LocalS3, bucket: str) -> Counter[str]:
    """How often each id is in S3, as DuckDB reads it."""
    access = S3Access(server.access_key, server.secret_key, endpoint=server.endpoint)
    with duckdb.connect() as con:
        create_s3_secret(con, access, f"s3://{bucket}", name="landing")
        rows = con.execute(
            "SELECT transaction_id, count(*) FROM read_parquet(?, hive_partitioning = true) "
            "WHERE region = store_region AND date = event_at::DATE GROUP BY ALL",
            [f"s3://{bucket}/transactions/*/*/*.parquet"],
        ).fetchall()
    return Counter(dict(rows))


@pytest.mark.slow
def test_every_accepted_record_is_in_s3_exactly_once(
    s3_server: LocalS3, bucket: str, tmp_path: Path
) -> None:
    chance = random.Random(11)
    buffers = tmp_path / "buffers"
    config = tmp_path / "shop.yaml"
    stop = threading.Event()
    with FaultProxy(s3_server.endpoint) as proxy:
        output = {
            "s3": f"s3://{bucket}",
            "endpoint": proxy.endpoint,
            "backoff": {"first": 0.05, "longest": 0.5},
            "max_in_flight": 2,
            "timeout": 5,
        }
        document = {
            "columns": retail.COLUMNS,
            "batch": {"age": "45 s"},
            "outputs": [output],
            "buffer": {"folder": str(buffers)},
        }
        config.write_text(yaml.safe_dump(document))
        weather = threading.Thread(target=blow, args=(proxy, stop))
        weather.start()
        regions = [Stores(region, config, buffers) for region in retail.REGIONS]
        try:
            for _ in range(KILLS):
                stop.wait(chance.uniform(0, 1.0))
                working = wait_for(lambda: [one for one in regions if one.is_working], every=0.1)
                chance.choice(working).kill_and_restart()
            for region in regions:
                region.finish()
            weather.join()
        finally:
            stop.set()
            weather.join()
            for region in regions:
                if region.process.poll() is None:
                    region.process.kill()
                    region.process.wait()
        assert all(proxy.seen[fault] for fault, _ in WEATHER)
    fit, unfit = expected()
    assert len(fit) > 25_000
    assert len(unfit) > 100
    assert landed(s3_server, bucket) == fit
    letters = [letter for store in buffers.iterdir() for letter in dead_letters(store)]
    assert Counter(letter["record"]["transaction_id"] for letter in letters) == unfit


@pytest.mark.slow
def test_a_simulation_ends_when_all_is_shipped(
    s3_server: LocalS3, s3: Any, bucket: str, tmp_path: Path
) -> None:
    config = tmp_path / "shop.yaml"
    output = {"s3": f"s3://{bucket}", "endpoint": s3_server.endpoint}
    config.write_text(yaml.safe_dump({"columns": retail.COLUMNS, "outputs": [output]}))
    command = [sys.executable, "-m", "landfall.cli", "edge", "simulate", str(config)]
    done = subprocess.run(
        [*command, "--stores", "5", "--minutes", "1", "--speed", "600", "--start", "2026-02-11"],
        env={**os.environ, "LANDFALL_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "✓ 5 stores" in done.stdout
    regions = {key.split("/")[1] for key in objects_in(s3, bucket)}
    assert regions == {f"region={region}" for region in retail.REGIONS}


@pytest.mark.slow
def test_the_same_days_are_landed_once(s3_server: LocalS3, s3: Any, tmp_path: Path) -> None:
    name = f"days-{os.getpid()}"
    s3.create_bucket(Bucket=name)
    landing = f"s3://{name}/transactions"
    days = [date(2026, 2, 10), date(2026, 2, 11)]
    first = land_days(s3, s3_server, landing, days, tmp_path, stores=5)
    assert (first.files, first.written) == (10, 10)
    objects = objects_in(s3, name)
    assert all(72_000 <= len(body) <= 92_000 for body in objects.values())
    assert first.bytes == sum(map(len, objects.values()))
    again = land_days(s3, s3_server, landing, days, tmp_path, stores=5)
    assert (again.files, again.written, again.bytes) == (10, 0, first.bytes)
    s3.delete_object(Bucket=name, Key=min(objects))
    repaired = land_days(s3, s3_server, landing, days, tmp_path, stores=5)
    assert (repaired.files, repaired.written) == (10, 1)
    assert objects_in(s3, name) == objects
    assert list(tmp_path.iterdir()) == []  # the buffers were of no more use
