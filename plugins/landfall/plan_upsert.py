"""The dry run of an upsert: its watermark, its range, and the files that it would open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from landfall.dataset import Dataset
from landfall.errors import ContractError
from landfall.listing import Listing
from landfall.partition import Partition
from landfall.reading import plan_reading
from landfall.sql import Destination, Statement

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


@dataclass(frozen=True)
class WatermarkPlan:
    """Where the run would begin and end. `opens` of the `listed` files: none, no Spark job."""

    pipeline: str
    column: str
    watermark: str | None
    read_from: str | None
    until: str | None
    replay: bool
    opens: int
    listed: int


def plan_upsert(
    con: DuckDBPyConnection,
    dataset: Dataset,
    partition: Partition,
    listing: Listing,
    conf: Mapping[str, Any] | None,
) -> tuple[WatermarkPlan, Listing, str | None]:
    """The range, the files to open, and why the run would be refused, if it is known."""
    from landfall import ledger, ledger_watermarks
    from landfall.sql_upsert import Keyed
    from landfall.upsert import refuse_other_key

    mark = dataset.upsert
    assert mark is not None
    to = Destination.parse(dataset.load.destination)
    known = ledger_watermarks.known(con, to, dataset.dataset, partition.label)
    reading = plan_reading(mark, known, listing, conf, datetime.now(UTC))
    opened = {file.key for file in reading.files}
    there = ledger.exists(con, to, to.table)
    refusal = None
    try:
        ledger_watermarks.refuse_other(known.watermark, to, mark.column, None, table_exists=there)
        if there:
            refuse_other_key(con, Keyed(to, tuple(dataset.load.key), mark.column))
    except ContractError as error:
        refusal = str(error)
    plan = WatermarkPlan(
        pipeline=ledger_watermarks.pipeline_name(dataset.dataset, partition.label),
        column=mark.column,
        watermark=reading.watermark,
        read_from=reading.late_before or reading.start,
        until=reading.until,
        replay=reading.replay,
        opens=len(reading.files),
        listed=reading.listed,
    )
    files = tuple(file for file in listing.files if file.key in opened)
    return plan, replace(listing, files=files), refusal


def upsert_statements(
    dataset: Dataset,
    staged: list[str],
    added: list[tuple[str, str]],
    inserted: list[str],
    there: bool,
) -> list[Statement]:
    from landfall import sql, sql_upsert

    mark = dataset.upsert
    assert mark is not None
    to = Destination.parse(dataset.load.destination)
    keyed = sql_upsert.Keyed(to, tuple(dataset.load.key), mark.column)
    statements = [sql.add_column(to, name, kind) for name, kind in added] if there else []
    if added and not there:
        statements = [sql_upsert.create_keyed_table(keyed, added)]
    if dataset.load.deleted is not None:
        statements.append(sql_upsert.delete_rows(keyed, staged, stale=False))
    upsert = sql_upsert.upsert(keyed, staged, inserted, stale=False, deletes=False)
    return [*statements, upsert]
