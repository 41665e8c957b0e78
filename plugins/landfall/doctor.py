"""What works and what to fix: versions, Java, jars, connections, and a run's rights."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

from landfall.dataset import Dataset
from landfall.dataset_files import read_datasets
from landfall.errors import ConfigError, LandfallError, Unreachable
from landfall.listing import split_uri
from landfall.machine import committer, duckdb_version, jars, java_version, pyspark_version
from landfall.settings import Settings

if TYPE_CHECKING:
    from landfall.warehouse.base import Warehouse

ANSWER_SECONDS = 15
LOCK_SECONDS = 5


class Health(StrEnum):
    WORKS = "works"
    WARNING = "warning"
    BROKEN = "broken"


@dataclass(frozen=True)
class Finding:
    what: str
    health: Health
    detail: str
    fix: str | None = None

    def to_json(self) -> dict[str, Any]:
        return dict(self.__dict__)


def examine(settings: Settings) -> Iterator[Finding]:
    """One finding after the other, as soon as each is known."""
    good, bad = read_datasets(settings.datasets_dir)
    for path, error in bad:
        yield Finding(f"dataset file {path.name}", Health.BROKEN, error.what, error.fix)
    if not good and not bad:
        what = f"there is none in {settings.datasets_dir}"
        yield Finding("dataset files", Health.WARNING, what, "add one, as docs/datasets.md says.")
    if good:
        yield Finding("dataset files", Health.WORKS, f"{len(good)} valid")
    datasets = [file.dataset for file in good]
    yield from _machine(settings)
    yield from _spark_connections(datasets)
    yield from _landings(datasets)
    yield from _stages(datasets, settings)
    yield from _warehouses(datasets, settings)


def _finding(what: str, check: Callable[[], str], *, lenient: bool = False) -> Finding:
    """The check's own words, or its error as a finding. `lenient`: only a warning."""
    health = Health.WARNING if lenient else Health.BROKEN
    try:
        return Finding(what, Health.WORKS, _in_time(check))
    except LandfallError as error:
        where = f"{error.where}: " if error.where else ""
        return Finding(what, health, f"{where}{error.what}", error.fix)
    except Exception as error:  # a doctor reports what it meets, and goes on
        return Finding(what, health, f"{type(error).__name__}: {error}".splitlines()[0])


def _in_time(check: Callable[[], str]) -> str:
    """The check's answer; clients would try again for minutes where nothing answers."""
    answer: Future[str] = Future()

    def run() -> None:
        try:
            answer.set_result(check())
        except BaseException as error:
            answer.set_exception(error)

    Thread(target=run, daemon=True).start()
    try:
        return answer.result(ANSWER_SECONDS)
    except TimeoutError:
        raise Unreachable(
            f"no answer within {ANSWER_SECONDS} s.", fix="check the network and the endpoint."
        ) from None


def _machine(settings: Settings) -> Iterator[Finding]:
    yield _finding("DuckDB", duckdb_version)
    yield _finding("pyspark", pyspark_version)
    yield _finding("Java", java_version)
    yield _finding("jars", partial(jars, settings))
    yield _finding("magic committer", partial(committer, settings.jars_dir))


def _spark_connections(datasets: Iterable[Dataset]) -> Iterator[Finding]:
    for conn_id in sorted({dataset.spark.connection for dataset in datasets}):
        yield _finding(f"connection {conn_id}", partial(spark_master, conn_id))


def spark_master(conn_id: str) -> str:
    from airflow.sdk import BaseHook

    from landfall.connections import require_connection

    require_connection(conn_id, "spark")
    connection = BaseHook.get_connection(conn_id)
    if connection.conn_type != "spark" or not connection.host:
        raise ConfigError(
            "it names no Spark master; Spark would go to YARN.",
            where=f"connection {conn_id!r}",
            fix='use the JSON form: {"conn_type": "spark", "host": "local[*]"}.',
        )
    port = f":{connection.port}" if connection.port else ""
    return f"Spark master {connection.host}{port}"


def _landings(datasets: Iterable[Dataset]) -> Iterator[Finding]:
    for dataset in datasets:
        source = dataset.source
        yield _finding(
            f"landing of {dataset.dataset}",
            partial(list_landing, dataset),
            lenient=dataset.run.paused and source.connection is None,
        )


def list_landing(dataset: Dataset) -> str:
    from landfall.connections import s3_client
    from landfall.s3 import S3Store

    source = dataset.source
    bucket, prefix = split_uri(source.uri)
    client = s3_client(source.connection, source.region)
    store = S3Store(client, bucket, connection=source.connection)
    return f"{source.uri} can be listed ({len(store.folders(prefix))} folders)"


def _stages(datasets: Iterable[Dataset], settings: Settings) -> Iterator[Finding]:
    stages = {(d.stage.uri or settings.stage_uri, d.stage.connection) for d in datasets}
    for uri, conn_id in sorted(stages):
        yield _finding(f"stage {uri}", partial(write_stage, uri, conn_id))


def write_stage(uri: str, conn_id: str) -> str:
    """Puts a small object, reads it back, and deletes it."""
    from landfall.connections import s3_client
    from landfall.s3 import S3Store

    bucket, prefix = split_uri(uri)
    client = s3_client(conn_id, "us-east-1")
    store = S3Store(client, bucket, connection=conn_id)
    key = f"{prefix}_doctor/{uuid.uuid4().hex}"
    store.folders(prefix)  # names a missing bucket or wrong keys better than the put would
    client.put_object(Bucket=bucket, Key=key, Body=b"landfall")
    try:
        if store.read_text(key) != "landfall":
            raise ConfigError("what was written is not what is read.", where=uri)
    finally:
        store.delete_prefix(key)
    return "can be written, read and deleted"


def _warehouses(datasets: Iterable[Dataset], settings: Settings) -> Iterator[Finding]:
    places = {(d.load.warehouse, d.load.destination.partition(".")[0]) for d in datasets}
    for conn_id, database in sorted(places):
        yield _finding(
            f"warehouse {conn_id}, database {database}",
            partial(write_warehouse, conn_id, database, settings),
        )


def write_warehouse(conn_id: str, database: str, settings: Settings) -> str:
    from landfall.connections import warehouse_config
    from landfall.warehouse.factory import open_warehouse

    return try_writing(open_warehouse(warehouse_config(conn_id, settings)), database)


def try_writing(warehouse: Warehouse, database: str) -> str:
    """Makes a table in a transaction and rolls it back; a file that does not exist stays so."""
    from landfall.warehouse.duckdb import DuckDBWarehouse
    from landfall.warehouse.ducklake import DuckLakeWarehouse

    if isinstance(warehouse, DuckDBWarehouse | DuckLakeWarehouse):
        warehouse.lock_timeout = LOCK_SECONDS
        file = warehouse.file(database)
        if file is not None:
            _refuse_closed_folder(file)
        if file is not None and not file.exists():
            return f"{file} does not exist yet; the first load makes it"
    with warehouse.connect(database) as con:
        con.execute("BEGIN")
        con.execute(
            f'CREATE TABLE "{database}".main.landfall_doctor_{uuid.uuid4().hex} (i INTEGER)'
        )
        con.execute("ROLLBACK")
    return f"{warehouse.describe()} can be written"


def _refuse_closed_folder(file: Path) -> None:
    # A load writes beside the file too, which a transaction that is rolled back does not.
    above = next(folder for folder in file.parents if folder.exists())
    if not above.is_dir() or not os.access(above, os.W_OK):
        raise ConfigError(
            "the folder cannot be written.",
            where=str(file.parent),
            fix="let the user that runs Airflow write there, or set another path.",
        )
