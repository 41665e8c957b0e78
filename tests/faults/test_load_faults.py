"""Interrupted anywhere, a load leaves the table as it was."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from landfall import ledger
from landfall.errors import LandfallError
from landfall.ledger import FileRow, PartitionState, RunStatus
from landfall.load import LoadRequest, load
from landfall.sql import describe_table
from landfall.warehouse.base import Locked, Warehouse
from tests.faults.breaking import (
    Breaking,
    Fault,
    FullDisk,
    Moment,
    OneThread,
    Refusal,
    in_child,
    interrupt,
    killed_load,
    lose,
    obey_permissions,
    refuse,
)
from tests.loading import DESTINATION, Stage, holding, rows, runs

LOADED, FAILED = RunStatus.LOADED, RunStatus.FAILED
DAYS = ("2026-02-10", "2026-02-11")


@dataclass(frozen=True)
class Content:
    """All that a load may change; of the ledger only how the runs ended, newest first."""

    columns: list[Any]
    rows: list[Any]
    states: list[PartitionState]
    files: list[FileRow]
    ends: list[RunStatus | None]

    @property
    def table(self) -> tuple[list[Any], list[Any]]:
        return self.columns, self.rows


def content(warehouse: Warehouse) -> Content:
    with warehouse.connect("retail", read_only=True) as con:
        columns = con.execute(*describe_table(DESTINATION)).fetchall()
        query = f"SELECT * FROM {DESTINATION.qualified} ORDER BY ALL"
        return Content(
            columns,
            con.execute(query).fetchall() if columns else [],
            ledger.partitions(con, DESTINATION),
            [f for day in DAYS for f in ledger.file_history(con, DESTINATION, f"date={day}")],
            [run.status for run in ledger.last_runs(con, DESTINATION, "ingest_runs")],
        )


def failed_once(before: Content) -> Content:
    return replace(before, ends=[FAILED, *before.ends])


@dataclass(frozen=True)
class Case:
    """A warehouse as it was before, and a load; each trial has a copy of its own."""

    folder: Path
    request: LoadRequest

    @property
    def before(self) -> Path:
        return self.folder / "before"

    def copy(self, name: str) -> Path:
        return Path(shutil.copytree(self.before, self.folder / name))

    def after(self) -> tuple[Content, list[str]]:
        """What a load without a fault gives, and its statements."""
        undisturbed = Breaking(self.copy("undisturbed"))
        load(undisturbed, self.request)
        statements = list(undisturbed.statements)
        return content(undisturbed), statements


def first_load(folder: Path) -> Case:
    (folder / "before").mkdir()
    return Case(folder, Stage(folder / "stage").request(rows(rows=40)))


def reload(folder: Path) -> Case:
    """Both days are loaded; the second is to be replaced, with a new column."""
    stage, warehouse = Stage(folder / "stage"), OneThread(folder / "before")
    for day in DAYS:
        load(warehouse, stage.request(rows(day), partition={"region": "*", "date": day}))
    wider = f"SELECT *, 'x' AS note FROM ({rows(rows=40, factor=3)})"
    return Case(folder, stage.request(wider, staged_at="2026-02-13T00:00:00+00:00"))


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return reload(tmp_path)


MakeCase = Callable[[Path], Case]
EVERY_CASE = pytest.mark.parametrize("make", [first_load, reload])


def assert_loads(directory: Path, case: Case, after: Content, at: str) -> None:
    warehouse = OneThread(directory)
    assert load(warehouse, case.request).status is LOADED, at
    found = content(warehouse)
    assert found.table == after.table, at
    assert len(found.states) == len(after.states), at


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "fault", "moment"),
    [
        (first_load, lose, Moment.BEFORE),
        (reload, lose, Moment.BEFORE),
        (reload, lose, Moment.AFTER),
        (reload, refuse, Moment.BEFORE),
    ],
)
def test_an_error_at_any_statement_leaves_all_but_a_failed_row(
    tmp_path: Path, make: MakeCase, fault: Fault, moment: Moment
) -> None:
    case = make(tmp_path)
    before = content(OneThread(case.before))
    after, statements = case.after()
    # After the last one, the COMMIT, it is loaded: that has tests of its own.
    last = len(statements) if moment is Moment.BEFORE else len(statements) - 1
    for number, statement in enumerate(statements[:last], start=1):
        at = f"{moment} statement {number}: {statement}"
        copy = case.copy(str(number))
        with pytest.raises(LandfallError) as failed:
            load(Breaking(copy, fault, at=number, moment=moment), case.request, retries=0)
        assert failed.value.recorded, at
        assert content(OneThread(copy)) == failed_once(before), at
        assert_loads(copy, case, after, at)


@pytest.mark.slow
@EVERY_CASE
def test_a_connection_lost_at_any_statement_is_made_again(tmp_path: Path, make: MakeCase) -> None:
    case = make(tmp_path)
    after, statements = case.after()
    for number, statement in enumerate(statements, start=1):
        at = f"statement {number}: {statement}"
        broken = Breaking(case.copy(str(number)), at=number)
        assert load(broken, case.request, sleep=lambda _: None).status is LOADED, at
        found = content(OneThread(broken.directory))
        assert (found.table, found.ends) == (after.table, after.ends), at


@pytest.mark.slow
def test_an_interrupt_at_any_statement_leaves_everything(case: Case) -> None:
    before = content(OneThread(case.before))
    after, statements = case.after()
    for number, statement in enumerate(statements, start=1):
        copy = case.copy(str(number))
        with pytest.raises(KeyboardInterrupt):
            load(Breaking(copy, interrupt, at=number), case.request)
        assert content(OneThread(copy)) == before, statement
    assert_loads(copy, case, after, statement)


@pytest.mark.slow
@EVERY_CASE
def test_a_process_killed_at_any_statement_leaves_everything(
    tmp_path: Path, make: MakeCase
) -> None:
    case = make(tmp_path)
    before = content(OneThread(case.before))
    after, statements = case.after()
    for number, statement in enumerate(statements, start=1):
        at = f"statement {number}: {statement}"
        copy = case.copy(str(number))
        ended = killed_load(copy, case.request, number, Moment.BEFORE)
        assert ended == -signal.SIGKILL, at
        assert content(OneThread(copy)) == before, at
        assert_loads(copy, case, after, at)


@pytest.mark.slow
def test_a_process_killed_after_its_commit_has_loaded(case: Case) -> None:
    after, statements = case.after()
    copy = case.copy("killed")
    killed_load(copy, case.request, len(statements), Moment.AFTER)
    found = content(OneThread(copy))
    assert (found.table, found.ends) == (after.table, after.ends)


def assert_loaded_once(warehouse: Warehouse, after: Content) -> None:
    found = content(warehouse)
    assert (found.table, found.ends) == (after.table, after.ends)
    assert len(found.files) == len(after.files)


@pytest.mark.parametrize("retries", [0, 5])
@pytest.mark.parametrize("fault", [lose, refuse])
def test_a_commit_that_succeeded_and_whose_answer_is_lost_loads_once(
    case: Case, fault: Fault, retries: int
) -> None:
    after, statements = case.after()
    broken = Breaking(case.copy("broken"), fault, at=len(statements), moment=Moment.AFTER)
    result = load(broken, case.request, retries=retries, sleep=lambda _: None)
    assert result.status is LOADED
    whole = OneThread(broken.directory)
    assert runs(whole)[0].run_id == result.run_id
    assert_loaded_once(whole, after)


def test_a_commit_that_failed_and_whose_answer_is_lost_loads_once(case: Case) -> None:
    after, statements = case.after()
    broken = Breaking(case.copy("broken"), at=len(statements))
    assert load(broken, case.request, sleep=lambda _: None).status is LOADED
    whole = OneThread(broken.directory)
    assert_loaded_once(whole, after)


def test_a_commit_is_found_after_an_outage_that_follows_it(case: Case) -> None:
    after, statements = case.after()
    broken = Breaking(case.copy("broken"), at=len(statements), moment=Moment.AFTER)
    broken.unreachable = range(2, 5)
    assert load(broken, case.request, sleep=lambda _: None).status is LOADED
    assert broken.opened == 5
    assert_loaded_once(OneThread(broken.directory), after)


def test_a_commit_that_nobody_could_look_for_has_no_failed_row_beside_it(case: Case) -> None:
    after, statements = case.after()
    broken = Breaking(case.copy("broken"), at=len(statements), moment=Moment.AFTER)
    broken.unreachable = range(2, 3)
    with pytest.raises(LandfallError):
        load(broken, case.request, retries=0)
    assert_loaded_once(OneThread(broken.directory), after)


@pytest.mark.slow
@pytest.mark.parametrize("room", [-1, 0, 100_000, 3_000_000])
def test_a_full_disk_is_named_and_leaves_everything(tmp_path: Path, room: int) -> None:
    case = reload(tmp_path)
    noise = "md5(id::VARCHAR) AS note, md5((id * 7)::VARCHAR) AS noise"
    large = f"SELECT *, {noise} FROM ({rows(rows=200_000)})"
    large_load = Stage(tmp_path / "large").request(large, staged_at="2026-02-13T00:00:00+00:00")
    warehouse = OneThread(case.before)
    before = content(warehouse)
    size = 0 if room < 0 else warehouse.file("retail").stat().st_size + room
    refused = in_child(FullDisk(size), load, warehouse, large_load)
    assert isinstance(refused, Refusal)
    assert refused.kind == "WarehouseError"
    assert str(case.before) in refused.where
    assert "Fix: free space on the disk" in refused.message
    assert content(warehouse) == (failed_once(before) if refused.recorded else before)
    assert load(warehouse, large_load).row_count == 200_000


@pytest.fixture
def closed(case: Case, request: pytest.FixtureRequest) -> Iterator[Path]:
    """The warehouse's folder, with what may not be written made read-only."""
    paths = [case.before / name for name in request.param]
    modes = [path.stat().st_mode for path in paths]
    for path in paths:
        path.chmod(0o555 if path.is_dir() else 0o444)
    yield case.before
    for path, mode in zip(paths, modes, strict=True):
        path.chmod(mode)


@pytest.mark.slow
@pytest.mark.parametrize(
    "closed", [["."], ["retail.duckdb"], [".", "retail.duckdb"]], indirect=True
)
def test_a_read_only_warehouse_is_named_and_left_as_it_is(case: Case, closed: Path) -> None:
    before = content(OneThread(closed))
    refused = in_child(obey_permissions, load, OneThread(closed), case.request)
    assert isinstance(refused, Refusal)
    assert refused.kind == "WarehouseError"
    assert str(closed) in refused.where
    assert "Permission denied" in refused.message
    assert "Fix: let the user that runs Airflow write there" in refused.message
    assert not refused.recorded
    assert content(OneThread(closed)) == before


@pytest.fixture
def holder(case: Case) -> Iterator[subprocess.Popen[str]]:
    with holding(case.before / "retail.duckdb") as process:
        yield process


@pytest.mark.slow
def test_a_load_waits_for_the_process_that_holds_the_file(
    case: Case, holder: subprocess.Popen[str]
) -> None:
    waited: list[float] = []

    def end_the_holder(pause: float) -> None:
        waited.append(pause)
        holder.communicate()

    warehouse = OneThread(case.before, sleep=end_the_holder)
    assert load(warehouse, case.request).status is LOADED
    assert waited


@pytest.mark.slow
def test_a_process_that_goes_on_holding_the_file_is_named(
    case: Case, holder: subprocess.Popen[str], caplog: pytest.LogCaptureFixture
) -> None:
    warehouse = OneThread(case.before, lock_timeout=0.2)
    with pytest.raises(Locked) as refused:
        load(warehouse, case.request)
    assert f"process {holder.pid} holds the file" in str(refused.value)
    assert str(case.before / "retail.duckdb") in str(refused.value)
    assert "Fix: stop it or let it end" in str(refused.value)
    assert not refused.value.terminal
    assert "the ledger has no row for this failure" in caplog.text
    holder.communicate()
    after, _ = case.after()
    assert content(warehouse).ends == [LOADED] * 2
    assert_loads(case.before, case, after, "afterwards")
