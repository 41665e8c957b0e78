"""The `landfall` command: tables for people, `--json` for programs."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from landfall import screens
from landfall.dataset import Dataset
from landfall.dataset_files import read_datasets, read_files
from landfall.edge.commands import add_edge
from landfall.errors import ConfigError, LandfallError
from landfall.local_s3 import LocalS3Error
from landfall.settings import Settings, load_settings

Command = Callable[[argparse.Namespace, Settings, Console], int]


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _parser().parse_args(argv)
    command: Command = arguments.command
    # A table that is cut off in a pipe or a log is of no use: without a terminal, lines are long.
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 160)
    if command is not demo:  # Airflow's own log lines would stand between the command's
        os.environ.setdefault("AIRFLOW__LOGGING__LOGGING_LEVEL", "ERROR")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that `finally` is reached
    try:
        return command(arguments, load_settings(), console)
    except (LandfallError, LocalS3Error) as error:
        sys.stderr.write(f"landfall: {error}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("landfall: interrupted\n")
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return 0


def check(arguments: argparse.Namespace, settings: Settings, console: Console) -> int:
    files = [Path(name) for name in arguments.files]
    good, bad = read_files(files) if files else read_datasets(settings.datasets_dir)
    if arguments.json:
        valid: list[dict[str, Any]] = [
            {
                "file": str(file.path),
                "valid": True,
                "dataset": file.dataset.dataset,
                "destination": file.dataset.load.destination,
            }
            for file in good
        ]
        _print_json(
            valid + [{"file": str(path), "valid": False, "error": str(e)} for path, e in bad]
        )
        return 1 if bad else 0
    for file in good:
        dataset = file.dataset
        screens.line(console, "✓", "green", f"{dataset.dataset} → {dataset.load.destination}")
    for path, error in bad:
        fix = f" Fix: {error.fix}" if error.fix else ""
        screens.line(console, "✗", "red", f"{path.name}: {error.what}{fix}")
    if not good and not bad:
        screens.line(console, "!", "yellow", f"no dataset file in {settings.datasets_dir}")
    return 1 if bad else 0


def plan(arguments: argparse.Namespace, settings: Settings, console: Console) -> int:
    from landfall.plan import make_plan

    dataset = _dataset(arguments.dataset, settings)
    made = make_plan(dataset, _date(arguments.date), settings, _conf(arguments.conf))
    if arguments.json:
        _print_json(made.to_json())
    else:
        screens.show_plan(console, made)
    return 1 if made.refusal else 0


def status(arguments: argparse.Namespace, settings: Settings, console: Console) -> int:
    from landfall.status import statuses

    found = statuses(_datasets(arguments.dataset, settings), settings)
    if arguments.json:
        _print_json([one.to_json() for one in found])
    else:
        screens.show_statuses(console, found)
    return 1 if any(one.problem for one in found) else 0


def history(arguments: argparse.Namespace, settings: Settings, console: Console) -> int:
    from landfall.status import history as read_history

    dataset = _dataset(arguments.dataset, settings)
    found = read_history(dataset, settings, partition=arguments.partition, limit=arguments.limit)
    if arguments.json:
        _print_json(found.to_json())
    else:
        screens.show_history(console, found)
    return 0


def doctor(arguments: argparse.Namespace, settings: Settings, console: Console) -> int:
    from landfall.doctor import Health, examine

    findings = []
    for finding in examine(settings):
        findings.append(finding)
        if not arguments.json:
            screens.show_findings(console, [finding])
    if arguments.json:
        _print_json([finding.to_json() for finding in findings])
    return 1 if any(finding.health is Health.BROKEN for finding in findings) else 0


def s3(arguments: argparse.Namespace, settings: Settings, console: Console) -> int:
    from landfall import local_s3

    if arguments.action == "stop":
        local_s3.stop(settings.s3_dir)
        console.print("stopped")
        return 0
    if arguments.action == "start":
        server = local_s3.start(settings.s3_dir)
    else:
        running = local_s3.status(settings.s3_dir)
        if running is None:
            console.print("not running")
            return 1
        server = running
    shown = {"endpoint": server.endpoint, "access_key": server.access_key, "pid": server.pid}
    if arguments.show_secret:
        shown["secret_key"] = server.secret_key
    if arguments.json:
        _print_json(shown)
    else:
        for name, value in shown.items() if arguments.show_secret else [("", server.endpoint)]:
            console.print(Text(f"{name} {value}".strip()), soft_wrap=True)
    return 0


def lake(arguments: argparse.Namespace, settings: Settings, console: Console) -> int:
    from landfall.lake_commands import maintain_dataset
    from landfall.lake_upkeep import Action

    done = maintain_dataset(
        _dataset(arguments.dataset, settings),
        Action(arguments.action),
        settings,
        days=arguments.keep_days,
        orphans=arguments.orphans,
        dry_run=arguments.dry_run,
    )
    if arguments.json:
        _print_json(done.to_json())
    else:
        screens.show_upkeep(console, done)
    return 0


def demo(arguments: argparse.Namespace, settings: Settings, console: Console) -> int:
    from landfall.demo import run_demo
    from landfall.demo_taxi import DATASET, run_taxi_demo

    if arguments.dataset == DATASET:
        return run_taxi_demo(settings, console, verbose=arguments.verbose)
    return run_demo(settings, console, verbose=arguments.verbose)


def sample(arguments: argparse.Namespace, settings: Settings, console: Console) -> int:  # noqa: ARG001
    from landfall.sample import land_sample

    landed = land_sample(arguments.days)
    screens.line(console, "✓", "green", f"{landed.files} files", f"{landed.written} of them new")
    return 0


def up(arguments: argparse.Namespace, settings: Settings, console: Console) -> int:  # noqa: ARG001
    from landfall.stack.commands import up as run

    return run(settings, console)


def down(arguments: argparse.Namespace, settings: Settings, console: Console) -> int:  # noqa: ARG001
    from landfall.stack.commands import down as run

    return run(settings, console)


def _datasets(name: str | None, settings: Settings) -> list[Dataset]:
    good, bad = read_datasets(settings.datasets_dir)
    if name is None:
        return [file.dataset for file in good]
    for file in good:
        if file.dataset.dataset == name:
            return [file.dataset]
    for path, error in bad:
        if path.stem == name:
            raise error
    known = ", ".join(file.dataset.dataset for file in good) or "none"
    raise ConfigError(f"there is no dataset {name!r}.", fix=f"name one of these: {known}.")


def _dataset(name: str, settings: Settings) -> Dataset:
    return _datasets(name, settings)[0]


def _date(text: str | None) -> str:
    if text is None:
        return (datetime.now(UTC).date() - timedelta(days=1)).isoformat()
    try:
        return datetime.strptime(text, "%Y-%m-%d").date().isoformat()
    except ValueError:
        raise ConfigError(
            f"{text!r} is not a date.", fix="write it as YYYY-MM-DD, e.g. 2026-02-11."
        ) from None


def _conf(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        conf = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"it is not JSON: {error}.", where="--conf") from None
    if not isinstance(conf, dict):
        raise ConfigError(
            "it is not a JSON object.",
            where="--conf",
            fix='write it like \'{"partition": {"date": "2026-02-11"}}\'.',
        )
    return conf


def _print_json(document: object) -> None:
    print(json.dumps(document, indent=1, default=_plain, ensure_ascii=False))


def _plain(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="landfall", description=__doc__)
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    def add(name: str, command: Command, text: str, *, as_json: bool = True) -> Any:
        made = commands.add_parser(name, help=text, description=text)
        made.set_defaults(command=command)
        if as_json:
            made.add_argument("--json", action="store_true", help="print JSON, for programs")
        return made

    made = add("check", check, "validate dataset files")
    made.add_argument("files", nargs="*", metavar="FILE", help="default: the datasets folder")
    made = add("plan", plan, "dry run: what a run would read, delete and insert")
    made.add_argument("dataset", metavar="DATASET")
    made.add_argument("date", nargs="?", metavar="DATE", help="default: yesterday (UTC)")
    made.add_argument(
        "--conf", metavar="JSON", help='as a trigger\'s: {"partition": {…}}, {"until": …}'
    )
    made = add("status", status, "which partitions are loaded, and each dataset's last run")
    made.add_argument("dataset", nargs="?", metavar="DATASET")
    made = add("history", history, "the runs of a dataset; with a partition, its source files")
    made.add_argument("dataset", metavar="DATASET")
    made.add_argument("partition", nargs="?", metavar="PARTITION", help="e.g. date=2026-02-11")
    made.add_argument("--limit", type=_positive, default=20, help="how many runs (20)")
    add("doctor", doctor, "connections, versions, permissions: what works, what to fix")
    made = add("s3", s3, "the local S3 server; prints its endpoint")
    made.add_argument("action", choices=["start", "stop", "status"])
    made.add_argument("--show-secret", action="store_true", help="print the secret key too")
    add_edge(commands)
    made = add("lake", lake, "maintain the DuckLake that a dataset loads into")
    made.add_argument("action", choices=["merge", "expire", "cleanup"])
    made.add_argument("dataset", metavar="DATASET")
    made.add_argument("--dry-run", action="store_true", help="only say what would be done")
    made.add_argument("--keep-days", type=_positive, help="default: the dataset's own (at least 1)")
    made.add_argument(
        "--orphans", action="store_true", help="clean up files that no snapshot ever had, too"
    )
    made = add("demo", demo, "land example data and load it, step by step", as_json=False)
    made.add_argument(
        "dataset",
        nargs="?",
        choices=["retail_transactions", "taxi_trips"],
        default="retail_transactions",
        help="retail_transactions: one of three days replaced; taxi_trips: a month upserted",
    )
    made.add_argument("-v", "--verbose", action="store_true", help="show Airflow's log")
    made = add("sample", sample, "make the buckets and land sample sales", as_json=False)
    made.add_argument("--days", type=_positive, default=1, help="how many, up to yesterday (1)")
    add("up", up, "run the dev stack on this machine until Ctrl-C", as_json=False)
    add("down", down, "stop the dev stack, or what a crash has left of it", as_json=False)
    return parser


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 on")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
