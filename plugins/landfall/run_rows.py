"""What a run's end looks like in the ledger and in the partition state."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from uuid import uuid4

from landfall.dataset import LoadMode
from landfall.errors import ManifestError
from landfall.ledger import LedgerRow, PartitionState, RunStatus
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
        mode=LoadMode.REPLACE.value,
        status=status,
        started_at=run.started_at,
        finished_at=now,
        error=_bounded(error, secrets) if error else None,
    )


def manifest_row(row: LedgerRow, manifest: Manifest) -> LedgerRow:
    """The row, with what the manifest knows."""
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


def source_glob(source_uri: str, partition: Partition) -> str:
    """The partition as a glob, in the ledger for people: nothing is read by it."""
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
