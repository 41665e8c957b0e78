"""What works and what to fix: versions, Java, jars, connections, and a run's rights."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import uuid
import zipfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from threading import Thread
from typing import Any

from landfall.dataset import Dataset
from landfall.dataset_files import read_datasets
from landfall.errors import ConfigError, LandfallError, Unreachable
from landfall.listing import split_uri
from landfall.settings import Settings

MOTHERDUCK_OLDEST = (1, 4, 1)
MOTHERDUCK_NEWEST = (1, 5, 6)
JAVA_VERSIONS = (17, 21)
COMMITTER = "org/apache/spark/internal/io/cloud/PathOutputCommitProtocol.class"
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


def duckdb_version() -> str:
    installed = version("duckdb")
    numbers = tuple(int(part) for part in re.findall(r"\d+", installed)[:3])
    if not MOTHERDUCK_OLDEST <= numbers <= MOTHERDUCK_NEWEST:
        raise ConfigError(
            f"{installed} is outside of what MotherDuck accepts (1.4.1 to 1.5.6).",
            fix="install the pinned version: make setup.",
        )
    return f"{installed}, which MotherDuck accepts (1.4.1 to 1.5.6)"


def pyspark_version() -> str:
    try:
        full, client = version("pyspark"), version("pyspark-client")
    except PackageNotFoundError as error:
        raise ConfigError(f"{error.name} is not installed.", fix="run: make setup.") from error
    if full != client:
        raise ConfigError(
            f"pyspark is {full}, pyspark-client {client}: their files overlap and mix.",
            fix="install both in the pinned version: make setup.",
        )
    return f"{full}, pyspark-client the same"


def java_version() -> str:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if not java or not shutil.which(java):
        raise ConfigError("java is not found.", fix="run: make setup, or set JAVA_HOME.")
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    found = re.search(r'version "(\d+)', said.stderr)
    number = int(found[1]) if found else 0
    if number not in JAVA_VERSIONS:
        raise ConfigError(
            f"{java} has version {number or 'unknown'}; Spark 4 needs 17 or 21.",
            fix="install Java 17 (openjdk-17-jre-headless on Debian), or set JAVA_HOME.",
        )
    modules = subprocess.run([java, "--list-modules"], capture_output=True, text=True, check=False)
    if "jdk.incubator.vector" not in modules.stdout:
        raise ConfigError(
            f"{java} lacks the module jdk.incubator.vector, which Spark needs.",
            fix="install a full JRE or JDK 17, not a reduced one.",
        )
    return f"{number} with jdk.incubator.vector ({java})"


def jars(settings: Settings) -> str:
    """Present, and each with its pinned sum."""
    pins = settings.spark_job.parent / "jars.sha256"
    lines = pins.read_text().splitlines() if pins.exists() else []
    pairs = [line.split() for line in lines if line.strip() and line[0] != "#"]
    wanted = {name: pinned for pinned, name in pairs}
    if not wanted:
        raise ConfigError("no jar is pinned.", where=str(pins), fix="run: make lock-jars.")
    for name, pinned in wanted.items():
        file = settings.jars_dir / name
        if not file.is_file():
            raise ConfigError(f"{name} is missing.", where=str(file.parent), fix="run: make setup.")
        if hashlib.sha256(file.read_bytes()).hexdigest() != pinned:
            raise ConfigError(
                f"{name} is not the file that is pinned.",
                where=str(file.parent),
                fix="delete it, then run: make setup.",
            )
    return f"{len(wanted)} present, all with their pinned sums"


def committer(folder: Path) -> str:
    for jar in sorted(folder.glob("*spark-hadoop-cloud*.jar")):
        with zipfile.ZipFile(jar) as archive:
            if COMMITTER in archive.namelist():
                return f"in {jar.name}"
    raise ConfigError(
        "spark-hadoop-cloud is not among the jars: Spark would rename files, unsafe on S3.",
        where=str(folder),
        fix="run: make setup.",
    )


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
    """Makes a table in a transaction and rolls it back; a file that does not exist stays so."""
    from landfall.connections import warehouse_config
    from landfall.warehouse.duckdb import DuckDBWarehouse
    from landfall.warehouse.ducklake import DuckLakeWarehouse
    from landfall.warehouse.factory import open_warehouse

    warehouse = open_warehouse(warehouse_config(conn_id, settings))
    if isinstance(warehouse, DuckDBWarehouse | DuckLakeWarehouse):
        warehouse.lock_timeout = LOCK_SECONDS
        file = warehouse.file(database)
        if file is not None and not file.exists():
            above = next(folder for folder in file.parents if folder.exists())
            if not os.access(above, os.W_OK):
                raise ConfigError("the folder cannot be written.", where=str(above))
            return f"{file} does not exist yet; the first load makes it"
    with warehouse.connect(database) as con:
        con.execute("BEGIN")
        con.execute(
            f'CREATE TABLE "{database}".main.landfall_doctor_{uuid.uuid4().hex} (i INTEGER)'
        )
        con.execute("ROLLBACK")
    return f"{warehouse.describe()} can be written"
