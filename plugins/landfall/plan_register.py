"""The dry run of mode register: which files are new, in the whole landing."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from landfall.dataset import Dataset
from landfall.landing import list_whole_landing
from landfall.listing import Lister, Listing
from landfall.sql import Destination, Statement

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from landfall.warehouse.base import Warehouse


def plan_register(
    con: DuckDBPyConnection, warehouse: Warehouse, dataset: Dataset, lister: Lister
) -> tuple[Listing, str | None]:
    """The new files, and what the run would report as wrong."""
    from landfall.register import needs_lake, told
    from landfall.register_rows import known_files

    landing = list_whole_landing(lister, dataset.source, datetime.now(UTC))
    if not warehouse.lake:
        return Listing((), (), ()), str(needs_lake(warehouse, dataset.dataset))
    known = known_files(con, Destination.parse(dataset.load.destination), landing)
    new = tuple(f.source for f in landing.files if f.source.key not in known.by_key)
    problems = (*known.problems, *landing.wrong)
    return Listing((), new, ()), told(problems) if problems else None


def register_statement(destination: Destination, files: list[str]) -> Statement:
    """For reading only."""
    text = "CALL ducklake_add_data_files(?, ?, ?, schema => ?, hive_partitioning => true)"
    return text, [destination.database, destination.table, files, destination.schema]
