"""What the commands show to people. Only here does Landfall draw."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from landfall.listing import split_uri

if TYPE_CHECKING:
    from landfall.doctor import Finding
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


def print_table(
    console: Console,
    title: str | None,
    rows: Sequence[dict[str, str | Text]],
    columns: Sequence[str],
    *,
    numbers: Iterable[str] = (),
    spare: Iterable[str] = (),
) -> None:
    """One line a row: `spare` columns are left out, in their order, where the screen is narrow."""
    cells = {name: (name, *(row[name] for row in rows)) for name in columns}
    widths = {name: max(cell_len(str(cell)) + 2 for cell in cells[name]) for name in columns}
    for name in spare:
        if sum(widths.values()) - 2 > console.width:
            del widths[name]
    drawn = table(None, list(widths), numbers)
    for row in rows:
        drawn.add_row(*(row[name] for name in widths))
    if title is not None:  # of its own: within the table it would be folded to the table's width
        console.print(Text(title, style="bold"), soft_wrap=True)
    console.print(drawn)


def show_findings(console: Console, findings: Iterable[Finding]) -> None:
    for finding in findings:
        mark, colour = _MARKS[finding.health.value]
        line(console, mark, colour, finding.what, finding.detail)
        if finding.fix and finding.health.value != "works":
            console.print(Text(f"  fix: {finding.fix}"), soft_wrap=True)


def show_plan(console: Console, plan: Plan) -> None:
    facts = Table.grid(padding=(0, 2))
    facts.add_column()
    facts.add_column(overflow="fold")
    count = f"{len(plan.files)} file{'' if len(plan.files) == 1 else 's'}, {size(plan.bytes)}"
    _, prefix = split_uri(plan.source)
    rows = [
        ("run", f"{plan.dataset}, {plan.date}"),
        ("partition", plan.partition),
        ("reads", f"{count} from {plan.source}"),
        *(("", file.key.removeprefix(prefix)) for file in plan.files[:SHOWN_FILES]),
        ("", f"… and {len(plan.files) - SHOWN_FILES} more (--json lists all)")
        if len(plan.files) > SHOWN_FILES
        else None,
        ("not ready", plan.waits_for) if plan.waits_for else None,
        ("deletes", _deletes(plan)),
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


def _deletes(plan: Plan) -> str:
    if not plan.files:
        return "nothing: without a source file the run ends skipped"
    if plan.refusal:
        return "nothing: the load would be refused"
    if not plan.table_exists:
        return "nothing: no table yet"
    return f"{number(plan.rows_deleted)} row{'' if plan.rows_deleted == 1 else 's'}"


def show_statuses(console: Console, statuses: Sequence[DatasetStatus]) -> None:
    columns = ["dataset", "destination", "partitions", "rows", "last run (UTC)", "for", "status"]
    rows: list[dict[str, str | Text]] = []
    for status in statuses:
        run = status.last_run
        ended = str(run.status or "loaded") if run else "never run"
        cells = (
            status.dataset,
            status.destination,
            "" if status.problem else number(len(status.partitions)),
            "" if status.problem else number(sum(p.rows for p in status.partitions)),
            moment(run.run_at)[:-3] if run else "",
            (run.load_partition or "(all)") if run else "",
            Text("unknown", style="red")
            if status.problem
            else Text(ended, style=_COLOURS.get(ended, "")),
        )
        rows.append(dict(zip(columns, cells, strict=True)))
    spare = ["destination", "for", "partitions"]
    print_table(console, None, rows, columns, numbers=columns[2:4], spare=spare)
    for status in statuses:
        if status.problem:
            line(console, "✗", "red", f"{status.dataset}: {status.problem}")
    if len(statuses) == 1 and statuses[0].partitions:
        _show_partitions(console, statuses[0])


def _show_partitions(console: Console, status: DatasetStatus) -> None:
    columns = ["partition", "rows", "files", "size", "loaded at (UTC)"]
    rows: list[dict[str, str | Text]] = []
    for state in status.partitions:
        counts = number(state.rows), number(state.files), size(state.bytes)
        cells = (state.partition, *counts, moment(state.loaded_at))
        rows.append(dict(zip(columns, cells, strict=True)))
    print_table(console, "\nLoaded now", rows, columns, numbers=columns[1:4])


def show_history(console: Console, history: History) -> None:
    show_runs(console, history.runs, title=f"Runs of {history.dataset}, newest first")
    if history.files:
        show_files(console, history.files, f"\nSource files of {history.partition}")
    elif history.partition is not None:
        console.print(Text(f"\nOf {history.partition} nothing is loaded now.", style="dim"))


def show_runs(console: Console, runs: Sequence[LedgerRow], *, title: str) -> None:
    columns = ["run at (UTC)", "partition", "status", "rows", "read", "filtered", "duplicates",
               "deleted", "files", "seconds"]  # fmt: skip
    rows: list[dict[str, str | Text]] = []
    for run in runs:
        ended = str(run.status or "loaded")
        took = run.finished_at - run.started_at if run.finished_at and run.started_at else None
        cells: tuple[str | Text, ...] = (
            moment(run.run_at),
            run.load_partition or "(all)",
            Text(ended, style=_COLOURS.get(ended, "")),
            *map(number, (run.row_count, run.rows_read, run.rows_filtered)),
            *map(number, (run.rows_deduplicated, run.rows_deleted, run.files)),
            f"{took.total_seconds():.1f}" if took else "",
        )
        rows.append(dict(zip(columns, cells, strict=True)))
    if not runs:
        console.print(Text("No run yet.", style="dim"))
        return
    spare = ["files", "seconds", "duplicates", "filtered", "deleted", "read"]
    print_table(console, title, rows, columns, numbers=columns[3:], spare=spare)
    for run in runs:
        if run.error:
            line(console, "✗", "red", f"{moment(run.run_at)}: {run.error}")


def show_files(console: Console, files: Sequence[FileRow], title: str) -> None:
    """The keys without the folder that they share, which the title names."""
    folder = posixpath.commonpath([posixpath.dirname(file.key) for file in files])
    rows: list[dict[str, str | Text]] = [
        {
            "key": posixpath.relpath(file.key, folder or "."),
            "size": size(file.size),
            "rows": number(file.rows),
            "etag": file.etag,
        }
        for file in files
    ]
    where = f", below {folder}/" if folder else ""
    columns = ["key", "size", "rows", "etag"]
    print_table(console, title + where, rows, columns, numbers=columns[1:3], spare=["etag"])
