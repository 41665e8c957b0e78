"""The Python task of mode register: lists the landing, registers what is new, tells Airflow."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowSkipException

from landfall.connections import s3_access, s3_client
from landfall.dataset import Dataset
from landfall.landing import list_whole_landing
from landfall.ledger import RunStatus
from landfall.listing import split_uri
from landfall.outcome import ending, run_info, warehouse_of
from landfall.partition import Partition
from landfall.register import RegisterRequest, refuse_problems, register
from landfall.s3 import S3Store
from landfall.sql import Destination
from landfall.templates import Templates

if TYPE_CHECKING:
    from airflow.sdk import Asset

log = logging.getLogger(__name__)


def register_files(
    dataset: Dataset, table: Asset, partition: Templates, context: Mapping[str, Any]
) -> dict[str, Any]:
    """Register every file that is new; the result goes to XCom and to the asset event."""
    started = datetime.now(UTC)
    source = dataset.source
    with ending(dataset, partition, context):
        bucket, _ = split_uri(source.uri)
        client = s3_client(source.connection, source.region)
        store = S3Store(client, bucket, connection=source.connection)
        request = RegisterRequest(
            dataset=dataset.dataset,
            source_uri=source.uri,
            config_hash=dataset.config_hash,
            partition=Partition.of(partition, source.types),
            landing=list_whole_landing(store, source, started),
            destination=Destination.parse(dataset.load.destination),
            ledger=dataset.load.ledger,
            on_schema_change=dataset.contract.on_schema_change,
            run=run_info(context, started),
        )
        access = s3_access(source.connection, source.region)
        result = register(warehouse_of(dataset), request, access)
        summary = {
            "partitions": list(result.partitions),
            "rows": result.rows,
            "files": result.files,
            "bytes": result.bytes,
            "run_id": result.run_id,
        }
        if result.files:
            context["outlet_events"][table].extra = summary
            log.info("Registered %d files, %d rows", result.files, result.rows)
        refuse_problems(result, source.uri)
    if result.status is RunStatus.SKIPPED:
        raise AirflowSkipException("Nothing new has landed.")
    return summary
