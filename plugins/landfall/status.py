"""What is loaded, and how the runs ended: the ledger, read and never written."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from landfall.dataset import Dataset
from landfall.errors import ConfigError, LandfallError
from landfall.plan import reading_warehouse
from landfall.settings import Settings

if TYPE_CHECKING:
    from landfall.ledger import FileRow, LedgerRow, PartitionState, WatermarkRow


@dataclass(frozen=True)
class DatasetStatus:
    """One dataset: its loaded partitions and its last run. `problem`: why it cannot be told."""

    dataset: str
    destination: str
    warehouse: str | None
    partitions: tuple[PartitionState, ...]
    last_run: LedgerRow | None
    problem: str | None = None
    watermarks: tuple[WatermarkRow, ...] = ()
    """Of an upsert: how far it has been read."""
    total_rows: int | None = None
    """Of an upsert: what the table held after the last load."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class History:
    """The runs of a dataset, newest first; with a partition, the files it is made of now."""

    dataset: str
    destination: str
    partition: str | None
    runs: tuple[LedgerRow, ...]
    files: tuple[FileRow, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def statuses(datasets: Iterable[Dataset], settings: Settings) -> list[DatasetStatus]:
    """One each; a warehouse that does not answer does not hide the others."""
    found = []
    for dataset in datasets:
        try:
            found.append(_status(dataset, settings))
        except LandfallError as error:
            found.append(
                DatasetStatus(dataset.dataset, dataset.load.destination, None, (), None, str(error))
            )
    return found


def _status(dataset: Dataset, settings: Settings) -> DatasetStatus:
    from landfall.ledger import last_runs, partitions
    from landfall.ledger_watermarks import watermarks
    from landfall.sql import Destination

    destination = Destination.parse(dataset.load.destination)
    warehouse = reading_warehouse(dataset, settings)
    with warehouse.connect(destination.database, read_only=True) as con:
        name = dataset.dataset
        runs = last_runs(con, destination, dataset.load.ledger, dataset=name, limit=20)
        totals = [run.total_rows for run in runs if run.total_rows is not None]
        marks = watermarks(con, destination, dataset=name) if dataset.upsert else []
        own = (p for p in partitions(con, destination) if p.dataset == dataset.dataset)
        return DatasetStatus(
            dataset=dataset.dataset,
            destination=destination.text,
            warehouse=warehouse.describe(),
            partitions=tuple(own),
            last_run=runs[0] if runs else None,
            watermarks=tuple(marks),
            total_rows=totals[0] if totals else None,
        )


def history(
    dataset: Dataset, settings: Settings, *, partition: str | None = None, limit: int = 20
) -> History:
    """`partition` is a label such as `date=2026-02-11`; one that was never loaded is an error."""
    from landfall.ledger import file_history, last_runs, partitions
    from landfall.sql import Destination

    destination = Destination.parse(dataset.load.destination)
    ledger = dataset.load.ledger
    warehouse = reading_warehouse(dataset, settings)
    with warehouse.connect(destination.database, read_only=True) as con:
        if partition is None:
            runs = last_runs(con, destination, ledger, dataset=dataset.dataset, limit=limit)
            return History(dataset.dataset, destination.text, None, tuple(runs), ())
        values = "/".join(part.partition("=")[2] for part in partition.split("/"))
        runs = last_runs(
            con, destination, ledger, dataset=dataset.dataset, partition=values, limit=limit
        )
        states = partitions(con, destination, partition)
        if not states and not runs:
            raise ConfigError(
                f"the partition {partition!r} has never been loaded.",
                where=dataset.dataset,
                fix=f"name one that `landfall status {dataset.dataset}` shows.",
            )
        files = file_history(con, destination, partition, run_id=states[0].run_id) if states else []
        return History(dataset.dataset, destination.text, partition, tuple(runs), tuple(files))
