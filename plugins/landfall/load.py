"""Loads what a manifest names, by replace or upsert, ledger row included; or changes nothing."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from landfall import ledger, ledger_watermarks, schema
from landfall.attempt import Attempt, record_end
from landfall.dataset import OnSchemaChange
from landfall.errors import Conflict, ContractError, ManifestError
from landfall.lake_snapshots import commit_message, note_snapshots
from landfall.ledger import LedgerRow, RunStatus
from landfall.manifest import MANIFEST_NAME, Manifest, StagedFile
from landfall.replace import fit_table, replace_partition
from landfall.run_rows import RunInfo, ended_row, manifest_row, partition_state, watermark_row
from landfall.sql import Destination
from landfall.stage_files import Stage, read_stage
from landfall.upsert import (
    UpsertCounts,
    UpsertStage,
    fit_keyed_table,
    keep_rejects,
    keyed_table,
    upsert_rows,
)
from landfall.warehouse.base import Warehouse, plain_message

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from landfall.s3_access import S3Access

__all__ = ["LoadRequest", "LoadResult", "RunInfo", "ended_row", "load", "record_end"]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LoadRequest:
    manifest: Manifest
    manifest_uri: str
    destination: Destination
    ledger: str
    on_schema_change: OnSchemaChange
    allow_empty: bool
    run: RunInfo

    @property
    def attempt_uri(self) -> str:
        return self.manifest_uri.removesuffix(f"/{MANIFEST_NAME}")

    @property
    def where(self) -> str:
        return f"{self.destination.text}, partition {self.manifest.partition.label}"


@dataclass(frozen=True)
class LoadResult:
    run_id: str
    status: RunStatus
    partition: str
    row_count: int
    rows_deleted: int
    files: int
    bytes: int
    columns_added: tuple[str, ...]
    superseded_attempts: tuple[str, ...]
    """Prefixes of the stage that nothing refers to any more: the caller deletes them."""
    finished_at: datetime
    counts: UpsertCounts | None = None
    """What an upsert did to the table."""
    watermark: str | None = None


def load(
    warehouse: Warehouse,
    request: LoadRequest,
    stage_access: S3Access | None = None,
    *,
    retries: int = 5,
    sleep: Callable[[float], None] = time.sleep,
) -> LoadResult:
    """Loads what the manifest names once, or leaves everything but the ledger as it was.

    Conflicts and lost connections are retried on a fresh connection. Any error comes out as a
    LandfallError, after its `failed` row was written to the ledger.
    """
    attempt = _Load(warehouse, request.destination, request.ledger, request, stage_access)
    return attempt.to_its_end(retries, sleep)


def _refuse(request: LoadRequest) -> None:
    """What can be refused before the warehouse is asked."""
    manifest = request.manifest.check()
    schema.refuse_ambiguous((column.name for column in manifest.columns), where=request.where)
    other = (*manifest.upsert.deletes, *manifest.upsert.rejects) if manifest.upsert else ()
    for file in (*manifest.staged, *other):
        if any(character in file.uri for character in "*?["):
            raise ManifestError(
                f"the staged file {file.uri!r} reads as a pattern.",
                where=request.manifest_uri,
                fix="stage under a prefix without *, ? and [.",
            )
    if manifest.rows_staged == 0 and not request.allow_empty and manifest.upsert is None:
        raise ContractError(
            f"no row is left of the {manifest.rows_read} that were read.",
            where=request.where,
            fix="correct transform.filter, or set contract.allow_empty to true to load the "
            "partition as empty.",
        )


@contextmanager
def _another_writer(request: LoadRequest) -> Iterator[None]:
    """A key that is there twice, where every insert minds the key, is another run's: try again."""
    import duckdb

    try:
        yield
    except duckdb.ConstraintException as error:
        if "duplicate key" not in str(error).lower():
            raise
        raise Conflict(plain_message(error), where=request.where, fix="try again.") from error


@dataclass
class _Load(Attempt[LoadResult]):
    request: LoadRequest
    stage_access: S3Access | None

    def refuse(self) -> None:
        _refuse(self.request)

    def once(self) -> LoadResult:
        to, name = self.request.destination, self.request.ledger
        with self.warehouse.connect(to.database) as con, self.warehouse.turn(con, to):
            self.warehouse.ensure_destination(con, to)
            ledger.ensure(self.warehouse, con, to, name)
            if self.pending is not None and ledger.find_run(con, to, name, self.run_id):
                log.info("the COMMIT whose answer was lost had succeeded")
                return self.pending
            self.pending = None
            stage = self._read(con, self.request.manifest.staged)
            if self.request.manifest.upsert is None:
                with self.warehouse.transaction(con):
                    self.pending = self._replace(con, stage)
            else:
                part = self.request.manifest.upsert
                deletes, rejects = self._read(con, part.deletes), self._read(con, part.rejects)
                with _another_writer(self.request), self.warehouse.transaction(con):
                    self.pending = self._upsert(con, UpsertStage(stage, deletes, rejects))
            note_snapshots(self.warehouse, con, to, name)
        return self.pending

    def _read(self, con: DuckDBPyConnection, files: tuple[StagedFile, ...]) -> Stage:
        request = self.request
        return read_stage(con, request.manifest, self.stage_access, request.where, files)

    def _replace(self, con: DuckDBPyConnection, stage: Stage) -> LoadResult:
        request, manifest = self.request, self.request.manifest
        to = request.destination
        state = partition_state(to, manifest, self.run_id, request.attempt_uri)
        fence = ledger.fence(con, to, state)
        if fence.superseded:
            assert fence.previous is not None
            note = f"attempt {fence.previous.attempt} of this partition is newer and loaded."
            return self._end(con, RunStatus.SUPERSEDED, (request.attempt_uri,), note=note)
        added = fit_table(con, to, stage.columns, request.on_schema_change)
        deleted = replace_partition(con, to, manifest, stage)
        ledger.record_files(con, to, state, manifest.sources)
        previous = fence.previous.attempt_uri if fence.previous else request.attempt_uri
        old = () if previous == request.attempt_uri else (previous,)
        return self._end(con, RunStatus.LOADED, old, deleted=deleted, added=added)

    def _upsert(self, con: DuckDBPyConnection, stage: UpsertStage) -> LoadResult:
        request, manifest = self.request, self.request.manifest
        to, part = request.destination, manifest.upsert
        assert part is not None
        state = partition_state(to, manifest, self.run_id, request.attempt_uri)
        mark = watermark_row(state, manifest)
        stored = ledger_watermarks.find(con, to, mark.pipeline_name)
        there = ledger.exists(con, to, to.table)
        ledger_watermarks.refuse_other(stored, to, part.column, part.kind, table_exists=there)
        advanced = ledger_watermarks.advance(con, to, mark, moves=not part.replay)
        keyed = keyed_table(to, part)
        added = fit_keyed_table(con, keyed, stage.columns, request.on_schema_change)
        counts = upsert_rows(con, keyed, manifest, stage, stale=advanced.stale)
        keep_rejects(con, to, manifest, stage.rejects, self.run_id)
        if not part.replay:  # which reads a part of its files only
            ledger.record_files(con, to, state, manifest.sources)
        return self._end(
            con,
            RunStatus.LOADED,
            (),
            deleted=counts.deleted,
            added=added,
            counts=counts,
            watermark=advanced.row.last_watermark,
        )

    def _end(
        self,
        con: DuckDBPyConnection,
        status: RunStatus,
        superseded: tuple[str, ...],
        *,
        deleted: int = 0,
        added: tuple[str, ...] = (),
        note: str | None = None,
        counts: UpsertCounts | None = None,
        watermark: str | None = None,
    ) -> LoadResult:
        row = replace(self.row(status, note), rows_deleted=deleted)
        if counts is not None:
            row = replace(
                row,
                row_count=counts.inserted + counts.updated,
                rows_inserted=counts.inserted,
                rows_updated=counts.updated,
                rows_unchanged=counts.unchanged,
                total_rows=counts.total,
                watermark=watermark,
            )
        ledger.record(con, self.request.destination, self.request.ledger, row)
        self.warehouse.annotate(
            con, self.request.destination.database, commit_message(self.run_id, self.request.where)
        )
        return LoadResult(
            run_id=self.run_id,
            status=status,
            partition=self.request.manifest.partition.label,
            row_count=row.row_count or 0,
            rows_deleted=deleted,
            files=row.files or 0,
            bytes=row.bytes or 0,
            columns_added=added,
            superseded_attempts=superseded,
            finished_at=row.run_at,
            counts=counts,
            watermark=watermark,
        )

    def row(self, status: RunStatus, error: str | None) -> LedgerRow:
        request = self.request
        secrets = self.stage_access.secrets if self.stage_access else ()
        ended = ended_row(
            request.destination,
            request.manifest.dataset,
            request.manifest.partition,
            request.run,
            status,
            error=error,
            run_id=self.run_id,
            secrets=(*secrets, *self.warehouse.secrets),
        )
        return manifest_row(ended, request.manifest)
