"""The Python task: reads the manifest, loads what it names, tells Airflow, tidies the stage."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowSkipException

from landfall.connections import s3_access
from landfall.dataset import Dataset
from landfall.errors import LandfallError, ManifestError
from landfall.ledger import RunStatus
from landfall.load import LoadRequest, LoadResult, load
from landfall.manifest import MANIFEST_NAME, Manifest
from landfall.outcome import ending, run_info, warehouse_of
from landfall.partition import Partition
from landfall.sql import Destination
from landfall.stage import attempt_time, read_stage_object, stage_store
from landfall.templates import Templates

if TYPE_CHECKING:
    from airflow.sdk import Asset

log = logging.getLogger(__name__)


def load_partition(
    dataset: Dataset,
    table: Asset,
    partition: Templates,
    manifest_uri: str,
    context: Mapping[str, Any],
) -> dict[str, Any]:
    """Load exactly what the manifest names; the result goes to XCom and to the asset event."""
    started = datetime.now(UTC)
    with ending(dataset, partition, context):
        manifest = _manifest(dataset, manifest_uri)
        _refuse_another_partition(manifest, Partition.of(partition, dataset.source.types))
        request = LoadRequest(
            manifest=manifest,
            manifest_uri=manifest_uri,
            destination=Destination.parse(dataset.load.destination),
            ledger=dataset.load.ledger,
            on_schema_change=dataset.contract.on_schema_change,
            allow_empty=dataset.contract.allow_empty,
            run=run_info(context, started),
        )
        # The credentials are asked for now, right before the load: they may be short-lived.
        access = s3_access(dataset.stage.connection, dataset.source.region)
        result = load(warehouse_of(dataset), request, access)
    if result.status is RunStatus.SUPERSEDED:
        raise AirflowSkipException(f"A newer stage of {result.partition} is loaded already.")
    summary = _summary(manifest, result)
    context["outlet_events"][table].extra = summary
    _say(dataset, manifest, result)
    _tidy(dataset, manifest_uri)
    return summary


def _manifest(dataset: Dataset, uri: str) -> Manifest:
    text = read_stage_object(dataset, uri) if uri.startswith("s3://") else None
    if text is None:
        raise ManifestError(
            "there is no manifest: nothing was staged, or a newer load has cleaned it up.",
            where=uri,
            fix="clear stage_partition (with downstream) to stage the partition again.",
        )
    return Manifest.from_json(text, where=uri)


def _refuse_another_partition(manifest: Manifest, wanted: Partition) -> None:
    if manifest.partition.label != wanted.label:
        raise ManifestError(
            f"the manifest is of {manifest.partition.label}, this run loads {wanted.label}.",
            fix="clear stage_partition (with downstream) to stage the partition again.",
        )


def _say(dataset: Dataset, manifest: Manifest, result: LoadResult) -> None:
    part, counts, table = manifest.upsert, result.counts, dataset.load.destination
    if part is None or counts is None:
        log.info(
            "Loaded %s rows of %s into %s (%s deleted before)",
            *(result.row_count, result.partition, table, result.rows_deleted),
        )
        return
    log.info(
        "Loaded %s rows into %s: %s inserted, %s updated, %s deleted, %s late, %s rejected; "
        "the table has %s rows, the watermark is %s",
        *(result.row_count, table, counts.inserted, counts.updated, counts.deleted),
        *(part.rows_late, manifest.rows_rejected, counts.total, result.watermark),
    )
    if manifest.rows_rejected:
        log.warning("%s rows were rejected: see the table ingest_rejects", manifest.rows_rejected)


def _summary(manifest: Manifest, result: LoadResult) -> dict[str, Any]:
    """What the asset event says of the run."""
    part, counts = manifest.upsert, result.counts
    if part is not None and counts is not None:
        upserted = {
            "rows_loaded": result.row_count,
            "rows_inserted": counts.inserted,
            "rows_updated": counts.updated,
            "rows_unchanged": counts.unchanged,
            "rows_late": part.rows_late,
            "rows_rejected": manifest.rows_rejected,
            "rows_outside": part.rows_outside,
            "total_rows": counts.total,
            "watermark": result.watermark,
            "replay": part.replay,
        }
        return {**_common(manifest, result), **upserted}
    return _common(manifest, result)


def _common(manifest: Manifest, result: LoadResult) -> dict[str, Any]:
    return {
        "partition": result.partition,
        "rows": result.row_count,
        "rows_deleted": result.rows_deleted,
        "rows_read": manifest.rows_read,
        "rows_filtered": manifest.rows_filtered,
        "rows_deduplicated": manifest.rows_deduplicated,
        "files": len(manifest.sources),
        "bytes": manifest.source_bytes,
        "run_id": result.run_id,
    }


def _tidy(dataset: Dataset, manifest_uri: str) -> None:
    """Remove this partition's older attempts; the loaded one stays, for a rerun of the load.

    An upsert's attempts do not replace each other: one may still wait to be loaded, so those of the
    last day stay.
    """
    attempt_uri = manifest_uri.removesuffix(f"/{MANIFEST_NAME}")
    store, key = stage_store(dataset, attempt_uri)
    parent, _, current = key.rpartition("/")
    if dataset.upsert is not None:
        current = min(current, attempt_time(datetime.now(UTC) - timedelta(days=1)))
    try:
        for attempt in store.folders(f"{parent}/"):
            if attempt < current:  # attempts are named by the time they began
                removed = store.delete_prefix(f"{parent}/{attempt}/")
                log.info("Removed %d staged objects of attempt %s", removed, attempt)
    except LandfallError as error:
        # The rows are in: left-overs cost storage, not correctness, and the next load tries again.
        log.warning("Older attempts were not removed: %s", error)
