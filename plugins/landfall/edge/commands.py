"""`landfall edge …`: the writer's commands. Nothing heavy is imported before one runs."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from landfall import screens
from landfall.edge.config import EdgeConfig, read_edge_config
from landfall.errors import ConfigError
from landfall.settings import Settings

Command = Callable[[argparse.Namespace, Settings, Console], int]


def run(arguments: argparse.Namespace, settings: Settings, _console: Console) -> int:
    from landfall.edge import run as running

    running.log_to_stderr()
    return running.run(_config(arguments, settings), once=arguments.once)


def replay(arguments: argparse.Namespace, settings: Settings, _console: Console) -> int:
    from landfall.edge import run as running

    running.log_to_stderr()
    return running.replay(_config(arguments, settings), shipped=arguments.shipped)


def status(arguments: argparse.Namespace, settings: Settings, console: Console) -> int:
    from landfall.edge.status import read_status

    config = _config(arguments, settings)
    assert config.buffer.folder is not None
    found = read_status(config.buffer.folder, [output.name for output in config.outputs])
    if arguments.json:
        console.out(json.dumps(found.to_json(), indent=1, default=_plain), highlight=False)
        return 0
    _show(console, found)
    return 0


def _config(arguments: argparse.Namespace, settings: Settings) -> EdgeConfig:
    return read_edge_config(Path(arguments.config), settings.home)


def _plain(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _show(console: Console, status: Any) -> None:
    facts = Table(box=None, show_header=False, pad_edge=False)
    oldest = status.oldest_unshipped_seconds
    rows = [
        ("buffer", status.buffer),
        ("writer", f"{status.writer or 'never run'}"
         + (f", runs as process {status.running}" if status.running else ", not running")),
        ("accepted", f"{status.accepted:,} records"),
        ("dead letters", f"{status.dead_letters:,}"),
        ("buffered", _amount(status.buffered)),
        ("shipped", _amount(status.shipped)),
        ("kept", _amount(status.kept)),
        ("oldest unshipped", "none" if oldest is None else f"{oldest:,.0f} s ago"),
        ("last error", "none" if status.last_error is None
         else f"{screens.moment(status.last_error_at)} UTC: {status.last_error}"),
    ]  # fmt: skip
    for name, value in rows:
        facts.add_row(Text(name, style="dim"), Text(value))
    console.print(facts)
    for output in status.outputs:
        since = screens.moment(output.last_shipped_at) or "never"
        works = output.waiting == 0
        text = f"{output.output}: {output.waiting:,} batches wait, last shipped {since}"
        screens.line(console, "✓" if works else "!", "green" if works else "yellow", text)
    for one in status.inputs:
        console.print(Text(f"  {one.input}: durable to {one.durable_to:,}"), soft_wrap=True)


def _amount(amount: Any) -> str:
    return f"{amount.batches:,} batches, {amount.records:,} records, {screens.size(amount.bytes)}"


def simulate(arguments: argparse.Namespace, settings: Settings, console: Console) -> int:
    from landfall.edge.run import log_to_stderr
    from landfall.edge.simulate import Simulation, run_simulation

    log_to_stderr()
    simulation = Simulation(
        stores=arguments.stores,
        minutes=arguments.minutes,
        speed=arguments.speed,
        rate=arguments.rate,
        faulty=arguments.faulty,
        seed=arguments.seed,
        start=_moment(arguments.start),
        regions=tuple(arguments.regions.split(",")) if arguments.regions else (),
    )
    config = read_edge_config(Path(arguments.config), settings.home) if arguments.config else None
    return run_simulation(simulation, config, settings, console)


def _moment(text: str | None) -> datetime:
    if text is None:
        return datetime.now(UTC).replace(microsecond=0)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"{text!r} is not a time.", where="--start", fix="write it as 2026-02-11T08:00:00."
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def add_edge(parsers: Any) -> None:
    """`edge` with `run`, `status`, `replay` and `simulate`, to the commands of `landfall`."""
    text = "the edge writer: run, status, replay, simulate"
    parser = parsers.add_parser("edge", help=text, description=text)
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    def add(name: str, command: Command, text: str) -> argparse.ArgumentParser:
        made: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text)
        made.set_defaults(command=command)
        return made

    made = add("run", run, "take records and ship them, until the input ends or SIGTERM")
    made.add_argument("config", metavar="CONFIG", help="e.g. edge/retail.yaml")
    made.add_argument("--once", action="store_true", help="end when the files have been read")
    made = add("status", status, "what is buffered and shipped, and the last error")
    made.add_argument("config", metavar="CONFIG")
    made.add_argument("--json", action="store_true", help="print JSON, for programs")
    made = add("replay", replay, "ship what is in the buffer, and end")
    made.add_argument("config", metavar="CONFIG")
    made.add_argument(
        "--shipped", action="store_true", help="offer the kept batches again, too: puts back "
        "what is missing in the outputs",
    )  # fmt: skip
    made = add("simulate", simulate, "stores that sell, through real edge writers")
    made.add_argument("config", nargs="?", metavar="CONFIG", help="default: the local S3 server")
    made.add_argument("--stores", type=_at_least_one, default=50, help="how many stores (50)")
    made.add_argument("--minutes", type=_above_zero, default=10.0, help="simulated minutes (10)")
    made.add_argument("--speed", type=_above_zero, default=60.0, help="times real time (60)")
    made.add_argument(
        "--rate", type=_above_zero, default=60.0, help="sales a minute of a store (60)"
    )
    made.add_argument("--faulty", type=float, default=0.0, help="share of unfit records (0)")
    made.add_argument("--seed", default="landfall", help="the same seed and start: the same sales")
    made.add_argument("--start", metavar="TIME", help="simulated start, UTC (now)")
    made.add_argument("--regions", metavar="MW,NE", help="only the stores of these regions")


def _at_least_one(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError(text)
    return value


def _above_zero(text: str) -> float:
    value = float(text)
    if not value > 0:
        raise ValueError(text)
    return value
