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
    facts.add_column()
    facts.add_column(overflow="fold")
    count = f"{len(plan.files)} file{'' if len(plan.files) == 1 else 's'}, {size(plan.bytes)}"
    _, prefix = split_uri(plan.source)
    acts = _upsert_facts(plan) or [
        ("deletes", _deletes(plan)),
        ("inserts into", f"{plan.destination} ({plan.warehouse})"),
    ]
    rows = [
        ("run", f"{plan.dataset}, {plan.date}"),
        ("partition", plan.partition),
        ("reads", f"{count} from {plan.source}"),
        *(("", file.key.removeprefix(prefix)) for file in plan.files[:SHOWN_FILES]),
        ("", f"… and {len(plan.files) - SHOWN_FILES} more (--json lists all)")
        if len(plan.files) > SHOWN_FILES
        else None,
        ("not ready", plan.waits_for) if plan.waits_for else None,
        *acts,
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


def _upsert_facts(plan: Plan) -> list[tuple[str, str]]:
    mark = plan.watermark
    if mark is None:
        return []
    stored = mark.watermark or "none yet: everything is new"
    begin, end = mark.read_from or "the beginning", mark.until or "the end"
    why = "hold no row of the range" if mark.replay else "were read to their end"
    others = f"; the others {why}" if mark.opens < mark.listed else ""
    opened = f"{mark.opens} of {mark.listed} files{others}"
    return [
        ("watermark", f"{stored} ({mark.column}, pipeline {mark.pipeline})"),
        ("replays" if mark.replay else "range", f"from {begin} until {end}"),
        ("opens", opened if mark.opens else f"none of {mark.listed} files: no Spark job"),
        ("upserts into", f"{plan.destination} ({plan.warehouse})"),
    ]


def show_statuses(console: Console, statuses: Sequence[DatasetStatus]) -> None:
    columns = ["dataset", "destination", "partitions", "rows", "last run (UTC)", "for", "status"]
    rows: list[dict[str, str | Text]] = []
    for status in statuses:
        run = status.last_run
        ended = str(run.status or "loaded") if run else "never run"
        cells = (
            status.dataset,
            status.destination,
            "" if status.problem or status.watermarks else number(len(status.partitions)),
            "" if status.problem else number(_rows(status)),
            moment(run.run_at)[:-3] if run else "",
            _of(status),
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
    if len(statuses) == 1 and statuses[0].watermarks:
        _show_watermarks(console, statuses[0])


def _rows(status: DatasetStatus) -> int | None:
    """Of an upsert the table's, as the last load left it."""
    if status.watermarks:
        return status.total_rows
    return sum(state.rows for state in status.partitions)


def _of(status: DatasetStatus) -> str:
    """What the last run was of: how far an upsert is, or which partition it replaced."""
    run = status.last_run
    if len(status.watermarks) == 1:
        return f"until {status.watermarks[0].last_watermark or 'nothing'}"
    return (run.load_partition or "(all)") if run else ""


def _show_watermarks(console: Console, status: DatasetStatus) -> None:
    drawn = table("\nRead until now", ["pipeline", "column", "watermark", "updated at (UTC)"])
    for row in status.watermarks:
        drawn.add_row(
            row.pipeline_name,
            row.watermark_column,
            row.last_watermark or "nothing yet",
            moment(row.updated_at),
        )
    console.print(drawn)


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
    upserts = any(run.mode == "upsert" for run in runs)
    columns = ["run at (UTC)", "partition", "status", "rows", "read", "filtered", "duplicates",
               "deleted", "files", "seconds"]  # fmt: skip
    if upserts:
        columns += ["outside", "inserted", "updated", "late", "rejected", "total", "watermark"]
    rows: list[dict[str, str | Text]] = []
    for run in runs:
        ended = str(run.status or "loaded")
        took = run.finished_at - run.started_at if run.finished_at and run.started_at else None
        counts = (run.rows_outside, run.rows_inserted, run.rows_updated, run.rows_late,
                  run.rows_rejected, run.total_rows)  # fmt: skip
        cells: tuple[str | Text, ...] = (
            moment(run.run_at),
            run.load_partition or "(all)",
            Text(ended, style=_COLOURS.get(ended, "")),
            *map(number, (run.row_count, run.rows_read, run.rows_filtered)),
            *map(number, (run.rows_deduplicated, run.rows_deleted, run.files)),
            f"{took.total_seconds():.1f}" if took else "",
            *((*map(number, counts), run.watermark or "") if upserts else ()),
        )
        rows.append(dict(zip(columns, cells, strict=True)))
    if not runs:
        console.print(Text("No run yet.", style="dim"))
        return
    spare = ["files", "seconds", "duplicates", "filtered", "deleted", "read"]
    if upserts:
        spare += ["outside", "rejected", "late", "total", "partition", "updated", "inserted"]
    numbers = [name for name in columns[3:] if name != "watermark"]
    print_table(console, title, rows, columns, numbers=numbers, spare=spare)
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
