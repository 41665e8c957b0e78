"""The rows of the ledger's tables."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class RunStatus(StrEnum):
    LOADED = "loaded"
    SKIPPED = "skipped"
    SUPERSEDED = "superseded"
    FAILED = "failed"


@dataclass(frozen=True)
class LedgerRow:
    """How one run ended. Its first six columns are those of MotherDuck's own ingest Flight."""

    run_at: datetime
    source_glob: str | None
    destination_table: str
    partition_column: str | None
    load_partition: str | None
    row_count: int | None
    run_id: str | None = None
    dataset: str | None = None
    dag_id: str | None = None
    dag_run_id: str | None = None
    try_number: int | None = None
    attempt: str | None = None
    mode: str | None = None
    status: RunStatus | None = None
    rows_read: int | None = None
    rows_filtered: int | None = None
    rows_deduplicated: int | None = None
    rows_rejected: int | None = None
    rows_deleted: int | None = None
    files: int | None = None
    bytes: int | None = None
    source_fingerprint: str | None = None
    schema_hash: str | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    error: str | None = None
    rows_inserted: int | None = None
    rows_updated: int | None = None
    rows_unchanged: int | None = None
    rows_late: int | None = None
    rows_outside: int | None = None
    total_rows: int | None = None
    watermark: str | None = None
    read_from: str | None = None
    read_until: str | None = None
    snapshot_id: int | None = None
    """DuckLake: the table as this run left it is `AT (VERSION => snapshot_id)`."""

    def __post_init__(self) -> None:
        if self.status is not None:  # a plain text when it was read from the table
            object.__setattr__(self, "status", RunStatus(self.status))


@dataclass(frozen=True)
class PartitionState:
    """What is loaded now, in one partition of one table."""

    destination_table: str
    partition: str
    dataset: str
    staged_at: datetime
    run_id: str
    attempt: str
    attempt_uri: str
    rows: int
    files: int
    bytes: int
    source_fingerprint: str
    schema_hash: str
    config_hash: str
    loaded_at: datetime


@dataclass(frozen=True)
class FileRow:
    """A source file that a loaded partition was made of."""

    destination_table: str
    partition: str
    run_id: str
    key: str
    size: int
    etag: str
    rows: int
    loaded_at: datetime
    staged_at: datetime | None = None
    watermark_min: str | None = None
    watermark_max: str | None = None
    read_until: str | None = None
    """Rows from this watermark on were left for a later run. None: it was read to its end."""


@dataclass(frozen=True)
class WatermarkRow:
    """How far one pipeline (a dataset, or a named partition of it) has been read."""

    pipeline_name: str
    dataset: str
    destination_table: str
    partition: str
    watermark_column: str
    watermark_type: str
    last_watermark: str | None
    staged_at: datetime
    run_id: str
    updated_at: datetime
