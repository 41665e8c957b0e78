"""Makes landed files part of a DuckLake table where they are: each once in its life, or none."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from landfall import ledger
from landfall.attempt import Attempt
from landfall.dataset import LoadMode, OnSchemaChange
from landfall.errors import ConfigError, SourceError
from landfall.lake_paths import refuse_overlap
from landfall.lake_rows import take_fence
from landfall.lake_snapshots import commit_message, note_snapshots
from landfall.landing import LandedFile, Landing
from landfall.ledger import LedgerRow, RunStatus
from landfall.listing import fingerprint
from landfall.partition import Partition
from landfall.register_files import add_files, fit_partitioned_table, read_footers
from landfall.register_rows import Known, known_files, record_registered
from landfall.run_rows import RunInfo, ended_row
from landfall.sql import Destination
from landfall.warehouse.base import Warehouse

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from landfall.s3_access import S3Access

log = logging.getLogger(__name__)

_NAMED = 5


@dataclass(frozen=True)
class RegisterRequest:
    dataset: str
    source_uri: str
    config_hash: str
    partition: Partition
    """The run's own, for the ledger: files of any partition are registered."""
    landing: Landing
    destination: Destination
    ledger: str
    on_schema_change: OnSchemaChange
    run: RunInfo


@dataclass(frozen=True)
class RegisterResult:
    run_id: str
    status: RunStatus
    files: int
    rows: int
    bytes: int
    partitions: tuple[str, ...]
    """Labels of the partitions that new files belong to."""
    columns_added: tuple[str, ...]
    problems: tuple[str, ...]
    """Files that are not as they were registered, or cannot be: somebody must look at them."""
    finished_at: datetime


def register(
    warehouse: Warehouse,
    request: RegisterRequest,
    access: S3Access | None = None,
    *,
    retries: int = 5,
    sleep: Callable[[float], None] = time.sleep,
) -> RegisterResult:
    """Registers what is new. Files that changed or vanished since are in the result's problems."""
    attempt = _Register(warehouse, request.destination, request.ledger, request, access)
    return attempt.to_its_end(retries, sleep)


def refuse_problems(result: RegisterResult, source_uri: str) -> None:
    """Raise what the ledger says already: the new files are in, and some old ones are not right."""
    if result.problems:
        error = SourceError(
            told(result.problems),
            where=source_uri,
            fix="put a changed or vanished file back as it was; land corrections under new names, "
            "in the partition's folders. A file may go once its rows were deleted from the table.",
        )
        error.recorded = True
        raise error


@dataclass
class _Register(Attempt[RegisterResult]):
    request: RegisterRequest
    access: S3Access | None

    def refuse(self) -> None:
        if not self.warehouse.lake:
            raise needs_lake(self.warehouse, self.request.dataset)

    def once(self) -> RegisterResult:
        to, name = self.destination, self.ledger
        with self.warehouse.connect(to.database) as con, self.warehouse.turn(con, to):
            refuse_overlap(con, to.database, self.request.source_uri)
            self.warehouse.ensure_destination(con, to)
            ledger.ensure(self.warehouse, con, to, name)
            if self.pending is not None and ledger.find_run(con, to, name, self.run_id):
                log.info("the COMMIT whose answer was lost had succeeded")
                return self.pending
            self.pending = None
            known = known_files(con, to, self.request.landing)
            new = [f for f in self.request.landing.files if f.source.key not in known.by_key]
            rows = read_footers(con, new, self.access)
            with self.warehouse.transaction(con):
                self.pending = self._transact(con, known, new, rows)
            note_snapshots(self.warehouse, con, to, name)
        return self.pending

    def _transact(
        self, con: DuckDBPyConnection, known: Known, new: Sequence[LandedFile], rows: dict[str, int]
    ) -> RegisterResult:
        request, to = self.request, self.destination
        take_fence(con, to, self.run_id)
        added: tuple[str, ...] = ()
        if new:
            policy = request.on_schema_change
            added = fit_partitioned_table(con, to, new, policy)
            add_files(con, to, new, policy)
            who = (request.dataset, self.run_id, request.source_uri, request.config_hash)
            record_registered(con, to, known, new, rows, *who)
        return self._end(con, known, new, rows, added)

    def _end(
        self,
        con: DuckDBPyConnection,
        known: Known,
        new: Sequence[LandedFile],
        rows: dict[str, int],
        added: tuple[str, ...],
    ) -> RegisterResult:
        problems = (*known.problems, *self.request.landing.wrong)
        note: str | None
        if new:
            status, note = RunStatus.LOADED, told(problems) if problems else None
        elif problems:
            status, note = RunStatus.FAILED, told(problems)
        else:
            landing = self.request.landing
            note = f"Nothing new: {len(landing.files)} files are registered already"
            note += f", {len(landing.waiting)} are not ready yet." if landing.waiting else "."
            status = RunStatus.SKIPPED
        row = replace(
            self.row(status, note),
            row_count=sum(rows.values()),
            rows_read=sum(rows.values()),
            files=len(new),
            bytes=sum(file.source.size for file in new),
            source_fingerprint=fingerprint(file.source for file in new),
        )
        ledger.record(con, self.destination, self.ledger, row)
        where = f"{self.destination.text}, {len(new)} files registered"
        self.warehouse.annotate(con, self.destination.database, commit_message(self.run_id, where))
        return RegisterResult(
            run_id=self.run_id,
            status=status,
            files=len(new),
            rows=row.row_count or 0,
            bytes=row.bytes or 0,
            partitions=tuple(dict.fromkeys(file.partition.label for file in new)),
            columns_added=added,
            problems=problems,
            finished_at=row.run_at,
        )

    def row(self, status: RunStatus, error: str | None) -> LedgerRow:
        request = self.request
        secrets = self.access.secrets if self.access else ()
        row = ended_row(
            request.destination,
            request.dataset,
            request.partition,
            request.run,
            status,
            source_uri=request.source_uri,
            error=error,
            run_id=self.run_id,
            secrets=(*secrets, *self.warehouse.secrets),
        )
        return replace(row, mode=LoadMode.REGISTER.value)


def needs_lake(warehouse: Warehouse, dataset: str) -> ConfigError:
    return ConfigError(
        f"mode register needs a DuckLake; the warehouse is {warehouse.describe()}.",
        where=dataset,
        fix="set load.warehouse to a DuckLake connection, or use load.mode: replace.",
    )


def told(problems: Sequence[str]) -> str:
    """The problems as one text of bounded length."""
    named = " ".join(problems[:_NAMED])
    more = f" … and {len(problems) - _NAMED} more." if len(problems) > _NAMED else ""
    return f"{len(problems)} landed files are not right: {named}{more}"
