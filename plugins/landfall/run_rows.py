"""What a run's end looks like in the ledger and in the partition state."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from uuid import uuid4

from landfall.dataset import LoadMode
from landfall.dataset_fields import is_glob
from landfall.errors import ManifestError
from landfall.ledger import LedgerRow, PartitionState, RunStatus, WatermarkRow
from landfall.ledger_watermarks import pipeline_name
from landfall.manifest import Manifest
from landfall.partition import Partition
from landfall.sql import Destination

MAX_ERROR = 2_000


@dataclass(frozen=True)
class RunInfo:
    """Which Airflow run it is, and when the task that ends it started."""

    dag_id: str
    dag_run_id: str
    try_number: int
    started_at: datetime


def ended_row(
    destination: Destination,
    dataset: str,
    partition: Partition,
    run: RunInfo,
    status: RunStatus,
    *,
    source_uri: str | None = None,
    error: str | None = None,
    run_id: str | None = None,
    secrets: Iterable[str] = (),
    mode: LoadMode = LoadMode.REPLACE,
) -> LedgerRow:
    """The row of a run that ends now. The error is cut to a bounded length, secrets taken out."""
    now = datetime.now(UTC)
    return LedgerRow(
        run_at=now,
        source_glob=source_glob(source_uri, partition) if source_uri else None,
        destination_table=destination.text,
        partition_column=partition.columns,
        load_partition=partition.values,
        row_count=0,
        run_id=run_id or str(uuid4()),
        dataset=dataset,
        dag_id=run.dag_id,
        dag_run_id=run.dag_run_id,
        try_number=run.try_number,
        mode=mode.value,
        status=status,
        started_at=run.started_at,
        finished_at=now,
        error=_bounded(error, secrets) if error else None,
    )


def manifest_row(row: LedgerRow, manifest: Manifest) -> LedgerRow:
    """The row, with what the manifest knows."""
    part = manifest.upsert
    if part is not None:
        row = replace(
            row,
            mode=LoadMode.UPSERT.value,
            rows_late=part.rows_late,
            rows_outside=part.rows_outside,
            read_from=part.start if part.replay else part.late_before or part.start,
            read_until=part.until,
        )
    return replace(
        row,
        source_glob=source_glob(manifest.source_uri, manifest.partition),
        row_count=manifest.rows_staged if row.status is RunStatus.LOADED else 0,
        attempt=manifest.attempt,
        rows_read=manifest.rows_read,
        rows_filtered=manifest.rows_filtered,
        rows_deduplicated=manifest.rows_deduplicated,
        rows_rejected=manifest.rows_rejected,
        files=len(manifest.sources),
        bytes=manifest.source_bytes,
        source_fingerprint=manifest.source_fingerprint,
        schema_hash=schema_hash(manifest),
    )


def partition_state(
    destination: Destination, manifest: Manifest, run_id: str, attempt_uri: str
) -> PartitionState:
    try:
        staged_at = datetime.fromisoformat(manifest.staged_at)
    except ValueError:
        raise ManifestError(
            f"staged_at {manifest.staged_at!r} is not a time.", where=attempt_uri
        ) from None
    return PartitionState(
        destination_table=destination.text,
        partition=manifest.partition.label,
        dataset=manifest.dataset,
        staged_at=staged_at if staged_at.tzinfo else staged_at.replace(tzinfo=UTC),
        run_id=run_id,
        attempt=manifest.attempt,
        attempt_uri=attempt_uri,
        rows=manifest.rows_staged,
        files=len(manifest.sources),
        bytes=manifest.source_bytes,
        source_fingerprint=manifest.source_fingerprint,
        schema_hash=schema_hash(manifest),
        config_hash=manifest.config_hash,
        loaded_at=datetime.now(UTC),
    )


def watermark_row(state: PartitionState, manifest: Manifest) -> WatermarkRow:
    """How far the pipeline has been read once this manifest is loaded."""
    part = manifest.upsert
    assert part is not None
    return WatermarkRow(
        pipeline_name=pipeline_name(manifest.dataset, state.partition),
        dataset=manifest.dataset,
        destination_table=state.destination_table,
        partition=state.partition,
        watermark_column=part.column,
        watermark_type=part.kind or "",
        last_watermark=part.reached,
        staged_at=state.staged_at,
        run_id=state.run_id,
        updated_at=state.loaded_at,
    )


def source_glob(source_uri: str, partition: Partition) -> str:
    """The partition as a glob, in the ledger for people: nothing is read by it."""
    if is_glob(source_uri) or source_uri.endswith(".parquet"):
        return source_uri
    folders = []
    for key in partition.keys:
        values = [name.partition("=")[2] for name in key.folder_names()] or ["*"]
        either = values[0] if len(values) == 1 else "{" + ",".join(values) + "}"
        folders.append(f"{key.name}={either}")
    return "/".join((source_uri.rstrip("/"), *folders, "*.parquet"))


def schema_hash(manifest: Manifest) -> str:
    columns = [(column.name, column.type) for column in manifest.columns]
    return hashlib.sha256(json.dumps(columns).encode()).hexdigest()


def _bounded(error: str, secrets: Iterable[str]) -> str:
    for secret in secrets:
        error = error.replace(secret, "***")
    return error if len(error) <= MAX_ERROR else f"{error[: MAX_ERROR - 1]}…"
