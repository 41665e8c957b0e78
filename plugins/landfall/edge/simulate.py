"""Stores that sell, each through a real edge writer: for a look, for the tests, for the demo."""

from __future__ import annotations

import heapq
import os
import random
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

from rich.console import Console

from landfall import local_s3, retail, screens
from landfall.edge.clock import FastClock
from landfall.edge.config import DEFAULT_PATH, BufferConfig, EdgeConfig, Output
from landfall.edge.run import stopped_by_signals
from landfall.edge.status import EdgeStatus, read_status
from landfall.edge.writer import EdgeWriter, Stopping
from landfall.errors import ConfigError
from landfall.local_s3 import LocalS3
from landfall.settings import Settings

LANDING = "s3://landing"
_TICK_SECONDS = 0.05


@dataclass(frozen=True)
class Simulation:
    """The same seed, start and rate give the same sales, however often it is interrupted."""

    stores: int
    minutes: float
    speed: float
    start: datetime
    rate: float = 60.0
    faulty: float = 0.0
    seed: str = "landfall"
    regions: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        wanted = self.regions or retail.REGIONS
        return [name for name in retail.stores(self.stores) if retail.region_of(name) in wanted]

    @property
    def source(self) -> str:
        """What a store's buffer calls its sales; other sales have another name."""
        return f"simulation:{self.seed}/{self.start.isoformat()}/{self.rate:g}/{self.faulty:g}"

    def sales(self, store: str) -> Iterator[tuple[datetime, int, str, dict[str, Any]]]:
        """Time, position, store and record of each sale."""
        chance = random.Random(f"{self.source}/{store}")  # noqa: S311
        end = self.start + timedelta(minutes=self.minutes)
        at, position = self.start, 0
        while True:
            at += timedelta(seconds=chance.expovariate(self.rate / 60))
            if at >= end:
                return
            record = retail.sale(chance, store, at)
            if chance.random() < self.faulty:
                record |= chance.choice(_FAULTS)
            yield at, position, store, record
            position += 1


_FAULTS: tuple[Mapping[str, Any], ...] = (
    {"store_region": None},
    {"quantity": "two"},
    {"till_version": 7},
)


def run_simulation(
    simulation: Simulation, config: EdgeConfig | None, settings: Settings, console: Console
) -> int:
    """Runs it until every sale is shipped, or SIGTERM; 0 if every one is."""
    if not simulation.names:
        known = ", ".join(retail.REGIONS)
        raise ConfigError("there is no such store.", fix=f"choose regions from {known}.")
    begun = time.monotonic()
    if config is not None:
        statuses, done = _run(simulation, config)
    else:
        server = local_s3.start(settings.s3_dir)
        with local_credentials(server):
            statuses, done = _run(simulation, local_config(server, settings.home / "edge/simulate"))
    _show(console, statuses, time.monotonic() - begun)
    return 0 if done else 1


def local_config(
    server: LocalS3, buffers: Path, *, landing: str = LANDING, path: str = DEFAULT_PATH
) -> EdgeConfig:
    """Writers of sales to a landing on the local S3 server."""
    return EdgeConfig(
        columns=retail.COLUMNS,
        required=("transaction_id", "event_at"),
        outputs=(
            Output(s3=landing, endpoint=server.endpoint, region=local_s3.REGION, max_in_flight=1),
        ),
        path=path,
        buffer=BufferConfig(folder=buffers),
    )


def of_store(config: EdgeConfig, store: str) -> EdgeConfig:
    """The same writer with a buffer of its own."""
    assert config.buffer.folder is not None
    buffer = config.buffer.model_copy(update={"folder": config.buffer.folder / store})
    return config.model_copy(update={"buffer": buffer})


@contextmanager
def local_credentials(server: LocalS3) -> Iterator[None]:
    """The server's keys where a writer looks for them, in this process only."""
    keys = {"AWS_ACCESS_KEY_ID": server.access_key, "AWS_SECRET_ACCESS_KEY": server.secret_key}
    before = {name: os.environ.get(name) for name in (*keys, "AWS_SESSION_TOKEN")}
    os.environ.update(keys)
    os.environ.pop("AWS_SESSION_TOKEN", None)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _run(simulation: Simulation, config: EdgeConfig) -> tuple[list[EdgeStatus], bool]:
    clock = FastClock(simulation.start, simulation.speed)
    configs = {store: of_store(config, store) for store in simulation.names}
    stopping = threading.Event()
    writers: dict[str, EdgeWriter] = {}
    with stopped_by_signals(stopping):
        try:
            for store, one in configs.items():
                writers[store] = EdgeWriter(one, clock=clock, ticking=False)
                writers[store].stopping = stopping
            _sell(simulation, writers, clock, stopping)
        except Stopping:
            pass
        for writer in writers.values():
            writer.flush()
        for writer in writers.values():
            writer.wait_while_shipping()
        done = [writer.close(drain_seconds=0.0) for writer in writers.values()]
    outputs = [output.name for output in config.outputs]
    folders = [one.buffer.folder for one in configs.values()]
    return [read_status(folder, outputs) for folder in folders if folder], all(done)


def _sell(
    simulation: Simulation,
    writers: dict[str, EdgeWriter],
    clock: FastClock,
    stopping: threading.Event,
) -> None:
    """Writes every sale at its time; what an earlier run made durable is left out."""
    left = [
        islice(simulation.sales(store), writer.resume_at(simulation.source), None)
        for store, writer in writers.items()
    ]
    ticked = 0.0
    first = True
    for at, position, store, record in heapq.merge(*left, key=lambda sale: sale[0]):
        if first:
            clock.jump_to(at)
            first = False
        while (wait := clock.seconds_until(at)) > 0 or time.monotonic() - ticked > _TICK_SECONDS:
            for writer in writers.values():
                writer.tick()
            ticked = time.monotonic()
            if stopping.wait(max(0.0, min(wait, _TICK_SECONDS))):
                return
        writers[store].write(record, source=simulation.source, position=position)


def _show(console: Console, statuses: list[EdgeStatus], seconds: float) -> None:
    columns = ["region", "stores", "accepted", "dead letters", "shipped", "size", "waiting"]
    drawn = screens.table(None, columns, columns[1:])
    for region in retail.REGIONS:
        some = [one for one in statuses if retail.region_of(Path(one.buffer).name) == region]
        if some:
            drawn.add_row(
                region,
                str(len(some)),
                screens.number(sum(one.accepted for one in some)),
                screens.number(sum(one.dead_letters for one in some)),
                f"{sum(one.shipped.batches for one in some):,} batches",
                screens.size(sum(one.shipped.bytes for one in some)),
                screens.number(sum(one.buffered.batches for one in some)),
            )
    console.print(drawn)
    screens.line(console, "✓", "green", f"{len(statuses)} stores", f"{seconds:.1f} s")
