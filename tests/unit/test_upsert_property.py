"""Whatever lands, in whatever order runs end, crash and run again: the table is the model's.

The model knows nothing of files, stages and transactions. It has rows, each of which one run takes
up, and for each key the newest of those that were taken up.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from landfall.errors import Conflict, LandfallError
from landfall.load import LoadRequest, load
from tests.upserting import MemoryWarehouse, Row, Runs, events, query, table

OVERLAP = 3
MARKS = st.integers(0, 12)
ROWS = st.lists(
    st.builds(
        Row,
        id=st.integers(0, 2),
        at=st.sampled_from((None, *range(13), *range(13))),
        value=st.integers(0, 99),
        gone=st.sampled_from((False, False, True)),
    ),
    min_size=1,
    max_size=4,
)
CAPS = st.sampled_from((None, None, 4, 8))
PICK = st.integers(0, 5)
# More than a run has, so that some of them end well.
STATEMENTS = st.integers(0, 60)


class Crash(BaseException):
    """The process dies: nothing that catches errors sees it."""


@dataclass(frozen=True)
class Taken:
    """A source row as the model sees it: which file it came in, and when that landed."""

    key: str
    seq: int
    number: int
    row: Row

    @property
    def age(self) -> tuple[bool, int]:
        """Newer is greater; a row without watermark is older than any other."""
        return (self.row.at is not None, self.row.at or 0)

    @property
    def rank(self) -> tuple[Any, ...]:
        """Among the rows of one run: of equally new ones that of the file that landed last."""
        return (self.age, self.seq, self.row.gone, self.row)


@dataclass
class Run:
    """A staged run, and what the model expects of it."""

    request: LoadRequest
    loads: set[Taken]
    rejects: set[Taken]
    replay: bool = False


@dataclass
class Model:
    late: str
    on_null: str
    start: int | None
    taken: set[Taken] = field(default_factory=set)
    newest: dict[int, Taken] = field(default_factory=dict)
    rejected: set[Taken] = field(default_factory=set)
    watermark: int | None = None
    looked_at: str = ""

    def expect(self, landed: list[Taken], until: int | None) -> tuple[set[Taken], set[Taken]]:
        """The rows that a run would load and reject, if it began now."""
        loads, rejects = set(), set()
        for one in landed:
            at = one.row.at
            if one in self.taken or not self._in_range(at, self.start, until):
                continue
            late = at is not None and self.watermark is not None and at < self.watermark - OVERLAP
            refused = (late and self.late == "reject") or (at is None and self.on_null == "reject")
            (rejects if refused else loads).add(one)
        return loads, rejects

    @staticmethod
    def _in_range(at: int | None, start: int | None, until: int | None) -> bool:
        if at is None:
            return True
        return (start is None or at >= start) and (until is None or at < until)

    def commit(self, run: Run) -> None:
        looked_at = run.request.manifest.staged_at
        stale = looked_at < self.looked_at
        own = {one.row.id: one for one in sorted(run.loads, key=lambda one: one.rank)}
        for one in own.values():
            best = self.newest.get(one.row.id)
            # Of equally new rows the last one counts, but not if a newer look is in already.
            if best is None or best.age < one.age or (best.age == one.age and not stale):
                self.newest[one.row.id] = one
        if run.replay:
            return
        self.looked_at = max(self.looked_at, looked_at)
        self.taken |= run.loads | run.rejects
        self.rejected |= run.rejects
        marks = [one.row.at for one in run.loads if one.row.at is not None]
        reached = [mark for mark in (self.watermark, *marks) if mark is not None]
        self.watermark = max(reached, default=None)

    @property
    def table(self) -> dict[int, tuple[int | None, int]]:
        return {
            key: (one.row.at, one.row.value) for key, one in self.newest.items() if not one.row.gone
        }


class Upserts(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="landfall-upserts-"))
        self.warehouse = MemoryWarehouse(self.folder)
        self.pending: list[Run] = []
        self.done: list[Run] = []
        self.files = 0

    def teardown(self) -> None:
        self.warehouse.close()
        shutil.rmtree(self.folder)

    @initialize(
        late=st.sampled_from(("load", "reject")),
        on_null=st.sampled_from(("load", "reject")),
        start=st.sampled_from((None, None, 2)),
    )
    def begin(self, late: str, on_null: str, start: int | None) -> None:
        dataset = events(overlap=OVERLAP, late=late, on_null=on_null, start=start)
        self.runs = Runs(self.folder / "stage", self.warehouse, dataset)
        self.model = Model(late, on_null, start)

    @property
    def landed(self) -> list[Taken]:
        return [
            Taken(key, file.seq, number, row)
            for key, file in self.runs.landing.files.items()
            for number, row in enumerate(file.rows)
        ]

    def _land(self, rows: list[Row]) -> None:
        self.files += 1
        self.runs.landing.put(f"f{self.files}", rows)

    def _key(self, pick: int) -> str:
        keys = sorted(self.runs.landing.files)
        return keys[pick % len(keys)]

    def _stage(self, until: int | None) -> Run:
        # Two runs at once have one cap: it is the dataset's.
        if self.pending:
            part = self.pending[0].request.manifest.upsert
            assert part is not None
            until = None if part.until is None else int(part.until)
        expected = self.model.expect(self.landed, until)
        run = Run(self.runs.stage({"until": until}), *expected)
        self.pending.append(run)
        return run

    def _load(self, run: Run) -> None:
        load(self.warehouse, run.request)
        self._committed(run)

    @rule(rows=ROWS, until=CAPS)
    def a_file_lands_and_a_run_follows(self, rows: list[Row], until: int | None) -> None:
        self._land(rows)
        self._load(self._stage(until))

    @rule(rows=ROWS, until=CAPS)
    def a_file_lands_and_a_run_is_staged(self, rows: list[Row], until: int | None) -> None:
        self._land(rows)
        self._stage(until)

    @rule(older=ROWS, newer=ROWS, again=st.booleans())
    def two_runs_end_in_the_other_order(
        self, older: list[Row], newer: list[Row], again: bool
    ) -> None:
        """The file of the first run is rewritten, or another one lands, before the second."""
        self._land(older)
        first = self._stage(None)
        if again:
            self.runs.landing.put(f"f{self.files}", newer)
        else:
            self._land(newer)
        self._load(self._stage(None))
        self._load(first)

    @precondition(lambda self: self.files)
    @rule(pick=PICK, rows=ROWS)
    def a_file_is_rewritten(self, pick: int, rows: list[Row]) -> None:
        self.runs.landing.put(self._key(pick), rows)

    @precondition(lambda self: self.files)
    @rule(pick=PICK)
    def a_file_is_sent_twice(self, pick: int) -> None:
        self._land(self.runs.landing.files[self._key(pick)].rows)

    @rule(until=CAPS)
    def a_run_finds_what_there_is(self, until: int | None) -> None:
        self._load(self._stage(until))

    @precondition(lambda self: self.pending)
    @rule(pick=PICK)
    def a_run_is_loaded(self, pick: int) -> None:
        self._load(self.pending[pick % len(self.pending)])

    @precondition(lambda self: self.pending)
    @rule(pick=PICK, number=STATEMENTS, after=st.booleans())
    def a_run_crashes(self, pick: int, number: int, after: bool) -> None:
        run = self.pending[pick % len(self.pending)]
        with self._raising(Crash(), number, after), suppress(Crash):
            load(self.warehouse, run.request)
        if self._is_in_the_ledger(run):
            self._committed(run)

    @precondition(lambda self: self.pending)
    @rule(pick=PICK, number=STATEMENTS, after=st.booleans())
    def a_connection_is_lost(self, pick: int, number: int, after: bool) -> None:
        """Once: the load tries again by itself, and knows whether its COMMIT had succeeded."""
        run = self.pending[pick % len(self.pending)]
        lost = duckdb.ConnectionException("Connection Error: connection lost")
        with self._raising(lost, number, after):
            load(self.warehouse, run.request, sleep=lambda _: None)
        self._committed(run)

    @precondition(lambda self: len(self.pending) > 1)
    @rule(pick=PICK, number=STATEMENTS)
    def two_runs_are_loaded_at_once(self, pick: int, number: int) -> None:
        """The second one runs as a whole between two statements of the first."""
        first = self.pending[pick % len(self.pending)]
        second = self.pending[(pick + 1) % len(self.pending)]

        def run_second() -> None:
            with self.warehouse.unwatched(), suppress(Conflict):
                load(self.warehouse, second.request, sleep=lambda _: None)
                self._committed(second)

        with self._calling(run_second, number):
            load(self.warehouse, first.request, sleep=lambda _: None)
        self._committed(first)

    @precondition(lambda self: self.done and not self.done[-1].replay)
    @rule(pick=PICK)
    def a_load_is_run_again(self, pick: int) -> None:
        last_replay = max((n for n, run in enumerate(self.done) if run.replay), default=-1)
        since = self.done[last_replay + 1 :]
        run = since[pick % len(since)]
        load(self.warehouse, run.request)
        self.model.commit(run)

    @precondition(lambda self: not self.pending)
    @rule(begin=MARKS, length=st.integers(1, 8))
    def a_range_is_replayed(self, begin: int, length: int) -> None:
        until = begin + length
        loads = {one for one in self.landed if one.row.at is not None}
        loads = {one for one in loads if begin <= (one.row.at or 0) < until}
        run = Run(self.runs.stage({"from": begin, "until": until}), loads, set(), replay=True)
        load(self.warehouse, run.request)
        self._committed(run)

    @invariant()
    def the_table_is_the_models(self) -> None:
        if not hasattr(self, "model"):
            return
        assert table(self.warehouse) == self.model.table
        if self.done:
            stored = query(
                self.warehouse, "SELECT last_watermark FROM retail.main.ingestion_watermarks"
            )
            watermark = self.model.watermark
            assert stored == [(None if watermark is None else str(watermark),)]
            assert self._rejects() == {(one.key, one.row) for one in self.model.rejected}

    def _rejects(self) -> set[tuple[str, Row]]:
        found = query(
            self.warehouse, "SELECT source_file, row_json FROM retail.main.ingest_rejects"
        )
        return {(key, Row(**json.loads(text))) for key, text in found}

    def _committed(self, run: Run) -> None:
        self.model.commit(run)
        if run in self.pending:
            self.pending.remove(run)
        self.done.append(run)

    def _is_in_the_ledger(self, run: Run) -> bool:
        attempt = run.request.manifest.attempt
        try:
            found = query(
                self.warehouse,
                "SELECT attempt FROM retail.main.ingest_runs WHERE status = 'loaded'",
            )
        except duckdb.CatalogException:  # the ledger was not even made
            return False
        return (attempt,) in found

    @contextmanager
    def _raising(self, error: BaseException, number: int, after: bool) -> Iterator[None]:
        """The error comes before or after the statement of that number, once."""

        def fail() -> None:
            raise error

        with self._calling(fail, number, after=after):
            yield

    @contextmanager
    def _calling(self, act: Any, number: int, *, after: bool = False) -> Iterator[None]:
        left = [number]

        def count(_: str) -> None:
            left[0] -= 1
            if left[0] == -1:
                act()

        setattr(self.warehouse, "after" if after else "before", count)
        try:
            yield
        finally:
            self.warehouse.before = self.warehouse.after = lambda _: None


Upserts.TestCase.settings = settings(
    max_examples=30,
    stateful_step_count=15,
    deadline=None,
    derandomize=True,  # the same sequences at every run of the tests
    database=None,
    phases=(Phase.generate,),  # shrinking would run thousands of loads
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.slow
class TestUpserts(Upserts.TestCase):  # type: ignore[name-defined,misc]
    pass


def test_a_terminal_error_inside_leaves_all_as_it_was(tmp_path: Path) -> None:
    """The state machine's crashes are of use only if an error can come from any statement."""
    warehouse = MemoryWarehouse(tmp_path)
    runs = Runs(tmp_path / "stage", warehouse, events(overlap=OVERLAP))
    runs.landing.put("a", [Row(1, 1, 1), Row(2, 2, 2, gone=True)])
    load(warehouse, runs.stage())
    runs.landing.put("b", [Row(1, 3, 3), Row(2, 4, 4), Row(3, 5, 5, gone=True)])
    request = runs.stage()
    seen: list[str] = []
    warehouse.before = seen.append
    before = table(warehouse)
    for number in range(200):
        seen.clear()

        def fail(text: str, number: int = number) -> None:
            seen.append(text)
            if len(seen) == number + 1 and "ROLLBACK" not in text:
                raise duckdb.InternalException("INTERNAL Error: broken")

        warehouse.before = fail
        try:
            load(warehouse, request, retries=0)
        except LandfallError:
            with warehouse.unwatched():
                assert table(warehouse) == before
            continue
        break
    assert number > 25  # so many statements there were to fail
    with warehouse.unwatched():
        assert table(warehouse) == {1: (3, 3), 2: (4, 4)}
    warehouse.close()
