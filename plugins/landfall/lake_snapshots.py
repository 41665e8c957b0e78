"""Which snapshot of a lake a run left: by the commit's message, kept in the ledger."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from landfall.sql import Destination, identifier

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from landfall.warehouse.base import Warehouse

log = logging.getLogger(__name__)


def commit_message(run_id: str, where: str) -> str:
    """The run's id comes first and stands alone: `landfall run <id>: <where>`."""
    return f"landfall run {run_id}: {where}"


def note_snapshots(
    warehouse: Warehouse, con: DuckDBPyConnection, destination: Destination, ledger: str
) -> None:
    """Writes the snapshot ids of the runs that have none yet.

    An id is known only after the COMMIT, so a run that is killed right then leaves it to the next.
    The rows are in: a failure here is told, and mended by the next run.
    """
    if not warehouse.lake:
        return
    database = identifier(destination.database, what="database")
    runs = destination.beside(ledger, what="ledger")
    try:
        con.execute(
            f"UPDATE {runs} AS runs SET snapshot_id = made.snapshot_id FROM "  # noqa: S608
            "(SELECT snapshot_id, split_part(split_part(commit_message, ' ', 3), ':', 1) AS run_id "
            f"FROM {database}.snapshots() WHERE starts_with(commit_message, 'landfall run ')) made "
            "WHERE runs.run_id = made.run_id AND runs.snapshot_id IS NULL"
        )
    except Exception as error:
        log.warning("the snapshot id was not noted: %s", warehouse.classify(error))
