"""Maintenance of the lake that a dataset loads into, by command or by the dataset's own DAG."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from landfall.dataset import Dataset, LoadMode
from landfall.dataset_files import read_datasets
from landfall.lake_upkeep import Action, Done, Upkeep, maintain
from landfall.settings import Settings
from landfall.sql import Destination

if TYPE_CHECKING:
    from landfall.s3_access import S3Access


def maintain_dataset(
    dataset: Dataset,
    action: Action,
    settings: Settings,
    *,
    days: int | None = None,
    orphans: bool = False,
    dry_run: bool = False,
) -> Done:
    """`days` overrides the dataset's lake.keep_days or lake.cleanup_days."""
    from landfall.connections import warehouse_config
    from landfall.warehouse.factory import open_warehouse

    files, _ = read_datasets(settings.datasets_dir)
    others = [
        file.dataset for file in files if file.dataset.load.warehouse == dataset.load.warehouse
    ]
    owners = [d for d in others if d.load.mode is LoadMode.REGISTER and d.lake.owns_files]
    default = dataset.lake.cleanup_days if action is Action.CLEANUP else dataset.lake.keep_days
    upkeep = Upkeep(
        action=action,
        destination=Destination.parse(dataset.load.destination),
        ledger=dataset.load.ledger,
        landings=tuple(other.source.uri for other in others),
        owned=tuple(owner.source.uri for owner in owners),
        days=default if days is None else days,
        orphans=orphans,
        dry_run=dry_run,
    )
    warehouse = open_warehouse(warehouse_config(dataset.load.warehouse, settings))
    return maintain(warehouse, upkeep, datetime.now(UTC), access_of(others))


def access_of(datasets: Iterable[Dataset]) -> dict[str, S3Access]:
    """How each landing's bucket is reached: merging and deleting there need it."""
    from landfall.connections import s3_access

    return {
        dataset.source.uri: s3_access(dataset.source.connection, dataset.source.region)
        for dataset in datasets
        if dataset.load.mode is LoadMode.REGISTER
    }
