"""What the commands show to people. Only here does Landfall draw."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from landfall.doctor import Finding
    from landfall.lake_upkeep import Done
    from landfall.ledger import FileRow, LedgerRow
    from landfall.plan import Plan
    from landfall.status import DatasetStatus, History

SHOWN_FILES = 5
_MARKS = {"works": ("✓", "green"), "warning": ("!", "yellow"), "broken": ("✗", "red")}
_COLOURS = {"loaded": "green", "skipped": "yellow", "superseded": "yellow", "failed": "red"}


def size(count: int) -> str:
    """Bytes as people say them: 84.2 kB, 1.3 MB."""
    amount = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"


def number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def moment(value: datetime | None) -> str:
    return "" if value is None else value.strftime("%Y-%m-%d %H:%M:%S")


def line(console: Console, mark: str, colour: str, what: str, detail: str = "") -> None:
    """One line; texts are shown as they are, whatever brackets they hold."""
    text = Text(f"{mark} ", style=colour)
    text.append(what)
    if detail:
        text.append(f"  {detail}", style="dim")
    console.print(text, soft_wrap=True)


def table(title: str | None, columns: Sequence[str], numbers: Iterable[str] = ()) -> Table:
    right = set(numbers)
    drawn = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for column in columns:
        drawn.add_column(
            column,
            justify="right" if column in right else "left",
            style="",
            header_style="dim",
            overflow="fold",
        )
    return drawn


def show_findings(console: Console, findings: Iterable[Finding]) -> None:
    for finding in findings:
        mark, colour = _MARKS[finding.health.value]
        line(console, mark, colour, finding.what, finding.detail)
        if finding.fix and finding.health.value != "works":
            console.print(Text(f"  fix: {finding.fix}"), soft_wrap=True)


def show_upkeep(console: Console, done: Done) -> None:
    verb = f"{done.action.value} (dry run)" if done.dry_run else done.action.value
    for text in done.lines:
        line(console, "·" if done.dry_run else "✓", "green", verb, text)
    if done.kept:
        line(console, "!", "yellow", f"{len(done.kept)} landed files stay", done.kept[0])
    if not done.lines and not done.kept:
        line(console, "✓", "green", verb, "nothing to do")


def show_plan(console: Console, plan: Plan) -> None:
    facts = Table.grid(padding=(0, 2))
    count = f"{len(plan.files)} file{'' if len(plan.files) == 1 else 's'}, {size(plan.bytes)}"
    deletes = f"{number(plan.rows_deleted)} rows" if plan.table_exists else "nothing: no table yet"
    rows = [
        ("run", f"{plan.dataset}, {plan.date}"),
        ("partition", plan.partition),
        ("reads", f"{count} from {plan.source}"),
        *(("", file.key) for file in plan.files[:SHOWN_FILES]),
        ("", f"… and {len(plan.files) - SHOWN_FILES} more (--json lists all)")
        if len(plan.files) > SHOWN_FILES
        else None,
        ("waits for", plan.waits_for) if plan.waits_for else None,
        ("deletes", deletes),
        ("inserts into", f"{plan.destination} ({plan.warehouse})"),
        *(("schema", change) for change in plan.schema_changes),
        None if plan.schema_changes or not plan.files else ("schema", "no change"),
        ("note", plan.schema_note) if plan.schema_note else None,
        ("refused", plan.refusal) if plan.refusal else None,
    ]
    for row in rows:
        if row is not None:
            facts.add_row(Text(row[0], style="dim"), Text(str(row[1])))
    console.print(facts)
    for statement in plan.statements:
        console.print(Text(f"\n{statement};", style="cyan"), soft_wrap=True)
    console.print(Text("\nNothing was touched.", style="dim"))


def show_statuses(console: Console, statuses: Sequence[DatasetStatus]) -> None:
    drawn = table(
        None,
        ["dataset", "destination", "partitions", "rows", "last run", "of", "status"],
        ["partitions", "rows"],
    )
    for status in statuses:
        run = status.last_run
        ended = str(run.status or "loaded") if run else "never run"
        drawn.add_row(
            status.dataset,
            status.destination,
            number(len(status.partitions)),
            number(sum(p.rows for p in status.partitions)),
            moment(run.run_at) if run else "",
            (run.load_partition or "(all)") if run else "",
            Text(
                "unknown" if status.problem else ended,
                style="red" if status.problem else _COLOURS.get(ended, ""),
            ),
        )
    console.print(drawn)
    for status in statuses:
        if status.problem:
            line(console, "✗", "red", f"{status.dataset}: {status.problem}")
    if len(statuses) == 1 and statuses[0].partitions:
        _show_partitions(console, statuses[0])


def _show_partitions(console: Console, status: DatasetStatus) -> None:
    columns = ["partition", "rows", "files", "size", "loaded at (UTC)"]
    drawn = table("\nLoaded now", columns, columns[1:4])
    for state in status.partitions:
        drawn.add_row(
            state.partition,
            number(state.rows),
            number(state.files),
            size(state.bytes),
            moment(state.loaded_at),
        )
    console.print(drawn)


def show_history(console: Console, history: History) -> None:
    show_runs(console, history.runs, title=f"Runs of {history.dataset}, newest first")
    if history.partition is not None:
        show_files(console, history.files, f"\nSource files of {history.partition}")


def show_runs(console: Console, runs: Sequence[LedgerRow], *, title: str) -> None:
    columns = ["run at (UTC)", "partition", "status", "rows", "read", "filtered", "duplicates",
               "deleted", "files", "seconds"]  # fmt: skip
    drawn = table(title, columns, columns[3:])
    for run in runs:
        ended = str(run.status or "loaded")
        took = run.finished_at - run.started_at if run.finished_at and run.started_at else None
        drawn.add_row(
            moment(run.run_at),
            run.load_partition or "(all)",
            Text(ended, style=_COLOURS.get(ended, "")),
            *map(number, (run.row_count, run.rows_read, run.rows_filtered)),
            *map(number, (run.rows_deduplicated, run.rows_deleted, run.files)),
            f"{took.total_seconds():.1f}" if took else "",
        )
    console.print(drawn)
    if not runs:
        console.print(Text("No run yet.", style="dim"))
    for run in runs:
        if run.error:
            line(console, "✗", "red", f"{moment(run.run_at)}: {run.error}")


def show_files(console: Console, files: Sequence[FileRow], title: str) -> None:
    drawn = table(title, ["key", "size", "rows", "etag"], ["size", "rows"])
    for file in files:
        drawn.add_row(file.key, size(file.size), number(file.rows), file.etag)
    console.print(drawn)
