"""What people read stays readable on a narrow screen: one line a row, nothing cut."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from rich.console import Console

from landfall import screens
from landfall.ledger_rows import FileRow, LedgerRow, PartitionState, RunStatus
from landfall.listing import SourceFile
from landfall.plan import Plan
from landfall.status import DatasetStatus, History

AT = datetime(2026, 2, 12, 6, 30, 5, tzinfo=UTC)
TABLE = "retail.main.transactions"
STATE = PartitionState(
    TABLE, "date=2026-02-11", "retail_transactions", AT, "r", "a", "s3://stage/a",
    123_456, 20, 1_700_000, "f", "s", "c", AT,
)  # fmt: skip


def run(status: RunStatus = RunStatus.LOADED, **more: Any) -> LedgerRow:
    return LedgerRow(
        AT, "glob", TABLE, "date", "2026-02-11", 123_456,
        status=status, rows_read=234_567, rows_filtered=100_000, rows_deduplicated=11_111,
        rows_deleted=123_456, files=20, started_at=AT - timedelta(seconds=1.25), finished_at=AT,
        **more,
    )  # fmt: skip


def shown(show: Any, *what: Any, width: int = 80) -> list[str]:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    show(console, *what)
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return [line.rstrip() for line in text.splitlines()]


def test_status_is_one_line_a_dataset() -> None:
    name, table = "retail_transactions", "warehouse.sales.retail_transactions"
    status = DatasetStatus(name, table, None, (STATE,), run())
    never = DatasetStatus("other", table, None, (), None)
    lines = shown(screens.show_statuses, [status, never])
    assert len(lines) == 3
    assert lines[1].split() == [name, "1", "123,456", "2026-02-12", "06:30", "loaded"]
    assert lines[2].split() == ["other", "0", "0", "never", "run"]


def test_a_wide_screen_shows_the_destination_too() -> None:
    status = DatasetStatus("retail_transactions", TABLE, None, (STATE,), run())
    assert TABLE in shown(screens.show_statuses, [status], width=120)[1]


@pytest.mark.parametrize("status", RunStatus)
def test_history_is_one_line_a_run(status: RunStatus) -> None:
    history = History("retail_transactions", TABLE, None, (run(status), run()), ())
    lines = shown(screens.show_history, history)
    assert lines[0] == "Runs of retail_transactions, newest first"
    assert len(lines) == 4
    assert lines[2].split()[:5] == ["2026-02-12", "06:30:05", "2026-02-11", status, "123,456"]


def test_a_wide_screen_shows_all_of_a_run() -> None:
    history = History("retail_transactions", TABLE, None, (run(),), ())
    *_, line = shown(screens.show_history, history, width=120)
    assert line.split()[4:] == [
        *("123,456", "234,567", "100,000", "11,111", "123,456", "20", "1.2"),
    ]


def test_the_error_of_a_run_is_shown_whole() -> None:
    error = "retail.main.transactions: " + "something is wrong and long, " * 9 + "Fix: mend [it]."
    history = History("a", TABLE, None, (run(RunStatus.FAILED, error=error),), ())
    assert shown(screens.show_history, history)[-1] == f"✗ 2026-02-12 06:30:05: {error}"


@pytest.mark.parametrize(
    ("keys", "folder", "lines"),
    [
        (["t/r=1/a.parquet", "t/r=2/b.parquet"], ", below t/", ["r=1/a.parquet", "r=2/b.parquet"]),
        (["t/r=1/a.parquet"], ", below t/r=1/", ["a.parquet"]),
        (["a.parquet", "r=1/b.parquet"], "", ["a.parquet", "r=1/b.parquet"]),
        (["tab/a.parquet", "table/a.parquet"], "", ["tab/a.parquet", "table/a.parquet"]),
    ],
)
def test_files_are_listed_below_the_folder_that_they_share(
    keys: list[str], folder: str, lines: list[str]
) -> None:
    files = [FileRow(TABLE, "date=2026-02-11", "r", key, 84_000, "e" * 32, 10, AT) for key in keys]
    title, _, *rows = shown(screens.show_files, files, "Source files")
    assert title == f"Source files{folder}"
    assert [row.split()[0] for row in rows] == lines


def plan(*keys: str, **changes: Any) -> Plan:
    values: dict[str, Any] = {
        "dataset": "retail_transactions",
        "date": "2026-02-11",
        "partition": "date=2026-02-11",
        "source": "s3://landing/transactions",
        "files": tuple(SourceFile(f"transactions/{key}", 84_000, "e", AT) for key in keys),
        "bytes": 84_000 * len(keys),
        "waits_for": None,
        "destination": TABLE,
        "warehouse": "DuckDB w",
        "table_exists": True,
        "rows_deleted": 1,
        "schema_changes": (),
        "schema_note": None,
        "refusal": None,
        "statements": (),
    }
    return Plan(**{**values, **changes})


def test_a_long_key_is_never_cut() -> None:
    key = "region=MW/date=2026-02-11/" + "batch" * 20 + ".parquet"
    lines = shown(screens.show_plan, plan(key))
    assert key in "".join(line.strip() for line in lines)


def test_of_many_files_the_first_are_shown_and_the_rest_counted() -> None:
    lines = shown(screens.show_plan, plan(*(f"batch_{n}.parquet" for n in range(8))))
    assert "reads         8 files, 672.0 kB from s3://landing/transactions" in lines
    assert "              batch_4.parquet" in lines
    assert "              … and 3 more (--json lists all)" in lines


def test_one_is_not_many() -> None:
    lines = shown(screens.show_plan, plan("a.parquet"))
    assert "reads         1 file, 84.0 kB from s3://landing/transactions" in lines
    assert "deletes       1 row" in lines
