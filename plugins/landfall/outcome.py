"""How a task ends: every end but success leaves a row in the ledger, and Airflow knows its kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from landfall.dataset import Dataset
from landfall.errors import LandfallError
from landfall.partition import Partition
from landfall.settings import load_settings
from landfall.templates import Templates

if TYPE_CHECKING:
    from landfall.run_rows import RunInfo
    from landfall.warehouse.base import Warehouse


@contextmanager
def ending(dataset: Dataset, partition: Templates, context: Mapping[str, Any]) -> Iterator[None]:
    """Write the ledger row of a task that is skipped or fails, then let Airflow have the error."""
    started = datetime.now(UTC)
    try:
        yield
    except AirflowSkipException as skip:
        _record(dataset, partition, context, started, failed=False, text=str(skip))
        raise
    except LandfallError as error:
        if not error.recorded:
            _record(dataset, partition, context, started, failed=True, text=str(error))
        # Terminal errors are not retried, whatever retries the task has left.
        kind = AirflowFailException if error.terminal else AirflowException
        raise kind(str(error)) from error


def warehouse_of(dataset: Dataset) -> Warehouse:
    """The warehouse behind the dataset's connection; connects to nothing yet."""
    from landfall.connections import warehouse_config
    from landfall.warehouse.factory import open_warehouse

    return open_warehouse(warehouse_config(dataset.load.warehouse, load_settings()))


def run_info(context: Mapping[str, Any], started: datetime) -> RunInfo:
    from landfall.run_rows import RunInfo

    return RunInfo(
        dag_id=context["dag"].dag_id,
        dag_run_id=context["run_id"],
        try_number=context["ti"].try_number,
        started_at=started,
    )


def _record(
    dataset: Dataset,
    templates: Templates,
    context: Mapping[str, Any],
    started: datetime,
    *,
    failed: bool,
    text: str,
) -> None:
    from landfall.ledger import RunStatus
    from landfall.load import record_end
    from landfall.run_rows import ended_row
    from landfall.sql import Destination

    destination = Destination.parse(dataset.load.destination)
    warehouse = warehouse_of(dataset)
    row = ended_row(
        destination,
        dataset.dataset,
        _named(dataset, templates),
        run_info(context, started),
        RunStatus.FAILED if failed else RunStatus.SKIPPED,
        source_uri=dataset.source.uri,
        error=text,
        secrets=warehouse.secrets,
        mode=dataset.load.mode,
    )
    record_end(warehouse, destination, dataset.load.ledger, row)


def _named(dataset: Dataset, templates: Templates) -> Partition:
    """The partition for the ledger; as plain text where its values are what was refused."""
    try:
        return Partition.of(templates, dataset.source.types)
    except LandfallError:
        return Partition.of(templates, {})
