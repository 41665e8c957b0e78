"""The dataset file: every key a user can write, validated and frozen."""

from __future__ import annotations

import hashlib
import json
import re
from datetime import date
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from landfall.dataset_fields import (
    FunctionName,
    Identifier,
    S3Uri,
    Section,
    SourceUri,
    cron,
    is_glob,
)
from landfall.dataset_load import Lake, Late, Load, LoadMode, OnNull, Watermark
from landfall.errors import ConfigError
from landfall.partition import EVERY, KeyType, hive_unescape, parse_value

__all__ = [
    "Dataset",
    "DatasetFile",
    "Lake",
    "Late",
    "Load",
    "LoadMode",
    "OnNull",
    "OnSchemaChange",
    "Watermark",
]

_TEMPLATE = re.compile(r"\{[{%]")


class OnSchemaChange(StrEnum):
    EVOLVE = "evolve"
    FREEZE = "freeze"
    DISCARD = "discard"


class Ready(Section):
    """When a partition counts as landed."""

    marker: str | None = Field(None, min_length=1)
    """Name of an object that must stand in every folder of the partition, such as `_SUCCESS`."""
    min_files: int = Field(1, ge=1)
    """How many source files there must be, over all folders of the partition."""
    quiet_minutes: float = Field(0, ge=0)
    """No source file may be younger than this."""
    timeout_minutes: float = Field(720, gt=0)
    """How long to wait. Nothing there by then: the run ends as skipped."""
    poke_seconds: float = Field(60, gt=0)
    """How long between two looks."""
    deferrable: bool = False
    """Wait in Airflow's triggerer instead of being rescheduled."""


class Source(Section):
    """Where the data lands, and which part of it a run reads."""

    uri: SourceUri
    """The landing: the prefix above the first partition folder. Without partition keys also a
    glob (`s3://landing/trips/yellow_*.parquet`) or one file."""
    connection: str | None = "aws_default"
    """The Airflow connection that reads it. null: a public bucket, read without credentials."""
    region: str = "us-east-1"
    """Region of a public bucket; with a connection, the connection's own region counts."""
    partition: dict[Identifier, str | list[str]] = Field(default_factory=dict)
    """Keys in path order: `"*"` (all together), a value, a list, or a template such as
    `"{{ ds }}"`. Empty: the whole prefix is one partition."""
    types: dict[Identifier, KeyType] = Field(default_factory=dict)
    """Type of each partition key; a key not named here is a string. Never inferred."""
    files: str = Field("*.parquet", min_length=1)
    """Which object names are source files. Names that start with `_` or `.` never are."""
    ready: Ready = Ready()

    @field_validator("partition", mode="before")
    @classmethod
    def _texts(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {
            key: [_text(v, key) for v in given] if isinstance(given, list) else _text(given, key)
            for key, given in value.items()
        }

    @model_validator(mode="after")
    def _keys_fit(self) -> Self:
        for key in self.types:
            if key not in self.partition:
                raise ValueError(f"types names {key!r}, which is not a key of partition")
        for key, given in self.partition.items():
            values = given if isinstance(given, list) else [given]
            if not values:
                raise ValueError(f'partition.{key} is an empty list: name values, or write "*"')
            if isinstance(given, list) and EVERY in given:
                raise ValueError(f'partition.{key}: write "*" alone, not in a list')
            for value in values:
                if value != EVERY and not is_template(value):
                    self._check_value(key, value)
        if self.partition and is_glob(self.uri):
            raise ValueError(
                f"uri {self.uri!r} is a glob, which goes without partition keys: write the prefix "
                "above the first key, or leave partition empty"
            )
        return self

    def _check_value(self, key: str, value: str) -> None:
        try:
            parse_value(hive_unescape(value), self.key_type(key), key=key)
        except ConfigError as error:
            raise ValueError(str(error)) from None

    def key_type(self, key: str) -> KeyType:
        return self.types.get(key, KeyType.STRING)


def is_template(text: str) -> bool:
    return bool(_TEMPLATE.search(text))


def _text(value: Any, key: str) -> Any:
    """YAML reads `01`, `NO` and `2026-02-11` as other things than text: take only the safe ones."""
    if isinstance(value, bool):
        raise ValueError(f"partition.{key}: YAML reads this as {value}; put it in quotes")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, int):
        return str(value)
    return value


class Deduplicate(Section):
    """Which of several rows with one key stays."""

    key: list[str] = Field(min_length=1)
    """Source columns that identify a row."""
    latest_by: str | None = None
    """The row with the greatest value of this source column stays."""


class Transform(Section):
    """What Spark does to the rows: filter, then deduplicate, then select."""

    filter: str | None = None
    """A Spark SQL condition on the source columns; rows for which it is not true are left out."""
    select: dict[str, str] | None = None
    """`column: Spark SQL expression`. Default: every column. Partition keys always stay."""
    deduplicate: Deduplicate | None = None


class Contract(Section):
    """What the data must satisfy."""

    on_schema_change: OnSchemaChange = OnSchemaChange.EVOLVE
    """A column that the table lacks: evolve adds it, freeze refuses the load, discard leaves it
    out."""
    allow_empty: bool = False
    """Files, but no row left after the filter: load the empty partition instead of failing."""


class Stage(Section):
    """Where Spark writes what the loader reads."""

    uri: S3Uri | None = None
    """A prefix that Landfall owns. Default: `$LANDFALL_STAGE_URI`, else `s3://stage/landfall`."""
    connection: str = "aws_default"
    """The Airflow connection that reads and writes it."""


class Spark(Section):
    """How the Spark job runs."""

    connection: str = "spark_default"
    """The Airflow connection of the cluster."""
    target_file_mb: int = Field(128, ge=1)
    """Small files are compacted into staged files of about this size."""
    conf: dict[str, str] = Field(default_factory=dict)
    """More Spark configuration. Never a credential: it would show in the process list."""
    driver_memory: str | None = None
    executor_memory: str | None = None
    executor_cores: int | None = Field(None, ge=1)
    num_executors: int | None = Field(None, ge=1)

    @field_validator("conf")
    @classmethod
    def _no_credentials(cls, conf: dict[str, str]) -> dict[str, str]:
        for key in conf:
            if re.search(r"secret|password|token|access\.key", key, re.IGNORECASE):
                raise ValueError(f"{key} would show in the process list: use an Airflow connection")
        return conf


class Run(Section):
    """How Airflow runs the DAG."""

    catchup: bool = False
    """Run every schedule since start_date, or only those from now on."""
    paused: bool = False
    """Whether the DAG starts paused."""
    max_active_runs: int = Field(4, ge=1)
    """How many dates may run at once. An upsert: 1, unless it is set."""
    retries: int = Field(2, ge=0)
    """How often a transient error is tried again. Terminal errors never are."""
    retry_minutes: float = Field(5, ge=0)
    """How long between two tries; doubles each time."""
    timeout_minutes: float = Field(240, gt=0)
    """How long the Spark job, and the load, may take."""
    wait_minutes: float = Field(30, ge=0)
    """How long a load waits while another process holds the DuckDB file."""
    on_failure: FunctionName | None = None
    """`package.module.function`, called with Airflow's context when a task has failed for good."""


class Dataset(Section):
    """One dataset file. It becomes one DAG of the same name."""

    dataset: Identifier
    """Name of the dataset and of its DAG."""
    description: str = ""
    """One sentence, shown in Airflow."""
    owner: str = "landfall"
    tags: list[str] = Field(default_factory=list)
    schedule: str | None = None
    """A cron (UTC). The run at that time loads the interval that just ended: with a daily cron,
    `{{ ds }}` is the day before. null: only when triggered."""
    start_date: date
    """The first day that may be loaded."""
    source: Source
    transform: Transform = Transform()
    contract: Contract = Contract()
    load: Load
    lake: Lake = Lake()
    stage: Stage = Stage()
    spark: Spark = Spark()
    run: Run = Run()

    _check_schedule = field_validator("schedule")(cron)

    @model_validator(mode="after")
    def _one_bucket_one_connection(self) -> Self:
        if self.stage.uri is None:
            return self
        buckets = [uri.split("/")[2] for uri in (self.source.uri, self.stage.uri)]
        if buckets[0] == buckets[1] and self.source.connection != self.stage.connection:
            raise ValueError(
                "source and stage share a bucket but not a connection: "
                "give both the same connection, or stage into another bucket"
            )
        if f"{self.stage.uri}/".startswith(f"{self.source.uri}/"):
            raise ValueError("stage.uri lies inside source.uri: stage outside of the landing")
        return self

    @model_validator(mode="after")
    def _upsert_has_its_columns(self) -> Self:
        mark = self.load.watermark
        if mark is None:
            return self
        if self.transform.deduplicate is not None:
            raise ValueError(
                "transform.deduplicate does not go with mode upsert, which keeps the latest row of "
                "each load.key by itself: remove it"
            )
        if self.transform.select is not None:
            loaded = {*self.transform.select, *self.source.partition}
            for name in (*self.load.key, mark.column):
                if name not in loaded:
                    raise ValueError(
                        f"load names the column {name!r}, which transform.select does not give: "
                        "add it there"
                    )
        return self

    @model_validator(mode="after")
    def _register_takes_files_as_they_are(self) -> Self:
        if self.load.mode is not LoadMode.REGISTER:
            return self
        if self.transform != Transform():
            raise ValueError(
                "mode register takes the landed files as they are: remove transform, or use mode "
                "replace"
            )
        if is_glob(self.source.uri):
            raise ValueError("mode register reads a prefix: write source.uri without a glob")
        return self

    @property
    def upsert(self) -> Watermark | None:
        """The watermark of an upsert dataset; None under any other mode."""
        return self.load.watermark

    @property
    def config_hash(self) -> str:
        """Changes when the rows that a run would load could change."""
        relevant = self.model_dump(mode="json", include={"source", "transform", "contract"})
        relevant["source"].pop("ready")
        if self.upsert is not None:
            load = self.load.model_dump(mode="json", include={"key", "watermark", "deleted"})
            relevant["load"] = load
        return hashlib.sha256(json.dumps(relevant, sort_keys=True).encode()).hexdigest()[:16]

    def stage_uri(self, default: str) -> str:
        return f"{self.stage.uri or default}/{self.dataset}"


class DatasetFile(BaseModel):
    """A dataset together with the file that it came from."""

    model_config = ConfigDict(frozen=True)

    path: Path
    dataset: Dataset
