"""The dataset file's `load` section: which table the rows go to, and how."""

from __future__ import annotations

from enum import StrEnum
from typing import Self

from pydantic import Field, field_validator, model_validator

from landfall.dataset_fields import DestinationName, Identifier, MarkText, Section, SpanText, cron


class LoadMode(StrEnum):
    REPLACE = "replace"
    UPSERT = "upsert"
    REGISTER = "register"


class OnNull(StrEnum):
    FAIL = "fail"
    LOAD = "load"
    REJECT = "reject"


class Late(StrEnum):
    LOAD = "load"
    REJECT = "reject"


class Watermark(Section):
    """How far an upsert dataset has been read, and what becomes of rows that do not fit."""

    column: str = Field(min_length=1)
    """The column (as loaded) that tells old rows from new ones: a timestamp, a date, an integer
    or a text that grows."""
    overlap: SpanText = "0"
    """How far behind the watermark a row may come without being late: `"15 minutes"`, `"2 days"`,
    or a number for integers."""
    start: MarkText | None = None
    """Rows below it are never read, except by a replay. null: from the beginning."""
    until: MarkText | None = None
    """Rows from it on are left for a later run. null: no cap. `conf.until` wins."""
    on_null: OnNull = OnNull.FAIL
    """A row without a watermark: fail the run, load it, or reject it (keep it in
    `ingest_rejects`)."""
    late: Late = Late.LOAD
    """A row later than the overlap allows: load it, or reject it (keep it in `ingest_rejects`).
    Counted either way."""
    ahead: SpanText | None = "1 day"
    """How far ahead of now a watermark may be; beyond it the run fails and names the row. null:
    any."""


class Lake(Section):
    """What a DuckLake does with its files; for no other warehouse."""

    owns_files: bool = False
    """Whether the landed files of mode register become DuckLake's: only then does maintenance
    delete those that no snapshot needs."""
    keep_days: int = Field(30, ge=1)
    """Maintenance expires snapshots that are older; `AT (VERSION => …)` no longer finds them."""
    cleanup_days: int = Field(2, ge=1)
    """Maintenance deletes files this long after the last snapshot that needs them is gone."""
    maintenance: str | None = None
    """A cron (UTC) for the DAG `<dataset>.maintenance`: merge, expire, clean up. null: none."""

    _check_maintenance = field_validator("maintenance")(cron)


class Load(Section):
    """Where the rows go."""

    destination: DestinationName
    """database.schema.table; each is created if missing."""
    mode: LoadMode = LoadMode.REPLACE
    """replace: the run's partition is deleted and inserted in one transaction. upsert: rows newer
    than the watermark are inserted, or update the row with their key. register: landed files
    become part of a DuckLake table where they are."""
    warehouse: str = "landfall_warehouse"
    """The Airflow connection of the warehouse. Absent: a DuckDB file for each database."""
    ledger: Identifier = "ingest_runs"
    """Name of the ledger table, in the destination's schema."""
    key: list[str] = Field(default_factory=list)
    """Columns (as loaded) that identify a row: the table's PRIMARY KEY. Upsert only."""
    watermark: Watermark | None = None
    deleted: str | None = None
    """A Spark SQL condition on the source columns; a row for which it is true removes the row
    with its key. Upsert only."""

    @model_validator(mode="after")
    def _mode_has_its_keys(self) -> Self:
        given = {
            "key": bool(self.key),
            "watermark": self.watermark is not None,
            "deleted": self.deleted is not None,
        }
        if self.mode is LoadMode.UPSERT:
            missing = [name for name in ("key", "watermark") if not given[name]]
            if missing:
                raise ValueError(
                    f"mode upsert needs {' and '.join(missing)}: write for example key: [id] and "
                    "watermark: {column: updated_at}"
                )
            if len({name.lower() for name in self.key}) < len(self.key):
                raise ValueError("key names a column twice")
        elif any(given.values()):
            named = ", ".join(name for name, there in given.items() if there)
            raise ValueError(f"{named}: only with mode: upsert")
        return self
