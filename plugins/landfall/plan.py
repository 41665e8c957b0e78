"""The dry run: what a run of one date would read, delete and insert. Touches nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from landfall.dataset import Dataset, LoadMode
from landfall.errors import ConfigError, LandfallError
from landfall.listing import Lister, Listing, SourceFile, list_source, split_uri
from landfall.partition import Partition
from landfall.plan_register import plan_register, register_statement
from landfall.plan_upsert import WatermarkPlan, plan_upsert, upsert_statements
from landfall.readiness import not_ready
from landfall.settings import Settings
from landfall.sql import KEY_TYPES, Destination, literal
from landfall.templates import render_partition

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from landfall.s3_access import S3Access
    from landfall.schema import TableColumn
    from landfall.warehouse.base import Warehouse

LOCK_SECONDS = 5.0
_STAGED = ["<the staged files>"]


@dataclass(frozen=True)
class Plan:
    """What would happen. `refusal` is why the load would fail, if it is known beforehand."""

    dataset: str
    date: str
    partition: str
    source: str
    files: tuple[SourceFile, ...]
    bytes: int
    waits_for: str | None
    destination: str
    warehouse: str
    table_exists: bool
    rows_deleted: int
    schema_changes: tuple[str, ...]
    schema_note: str | None
    refusal: str | None
    statements: tuple[str, ...]
    watermark: WatermarkPlan | None = None
    """Of an upsert; `files` are then those that it would open."""

    def to_json(self) -> dict[str, Any]:
        files = [{"key": f.key, "size": f.size, "etag": f.etag} for f in self.files]
        mark = None if self.watermark is None else asdict(self.watermark)
        return {**self.__dict__, "files": files, "watermark": mark}


def make_plan(
    dataset: Dataset, ds: str, settings: Settings, conf: Mapping[str, Any] | None = None
) -> Plan:
    """Reads the landing's listing, the files' footers, and the table; writes nothing."""
    from landfall.connections import s3_access, s3_client
    from landfall.s3 import S3Store

    partition = _partition(dataset, ds, conf)
    source = dataset.source
    bucket, _ = split_uri(source.uri)
    client = s3_client(source.connection, source.region)
    store = S3Store(client, bucket, connection=source.connection)
    listing = list_source(store, source.uri, partition, source.files)
    access = s3_access(source.connection, source.region)
    warehouse = reading_warehouse(dataset, settings)
    with warehouse.connect(_database(dataset), read_only=True) as con:
        return _plan(dataset, ds, partition, listing, warehouse, con, access, conf, store)


def reading_warehouse(dataset: Dataset, settings: Settings) -> Warehouse:
    """The dataset's warehouse, for a look that does not wait long for a writer."""
    from landfall.connections import warehouse_config
    from landfall.warehouse.factory import open_warehouse

    config = warehouse_config(dataset.load.warehouse, settings)
    return open_warehouse(replace(config, lock_timeout=LOCK_SECONDS))


def _partition(dataset: Dataset, ds: str, conf: Mapping[str, Any] | None) -> Partition:
    from jinja2 import TemplateError

    try:
        return render_partition(dataset, ds=ds, conf=conf)
    except TemplateError as error:
        raise ConfigError(
            f"without Airflow the template cannot be rendered: {error}",
            where=f"{dataset.dataset}, source.partition",
            fix="""name the partition: --conf '{"partition": {"key": "value"}}'.""",
        ) from error


def _database(dataset: Dataset) -> str:
    return dataset.load.destination.partition(".")[0]


def _plan(
    dataset: Dataset,
    ds: str,
    partition: Partition,
    listing: Listing,
    warehouse: Warehouse,
    con: DuckDBPyConnection,
    access: S3Access,
    conf: Mapping[str, Any] | None,
    store: Lister,
) -> Plan:
    from landfall.schema import TableColumn
    from landfall.sql import count_partition, describe_table

    destination = Destination.parse(dataset.load.destination)
    table = [TableColumn(*row) for row in con.execute(*describe_table(destination)).fetchall()]
    waits_for = not_ready(listing, dataset.source.ready, datetime.now(UTC))
    mark, refused, counted = None, None, None
    if dataset.upsert is not None:
        mark, listing, refused = plan_upsert(con, dataset, partition, listing, conf)
    elif dataset.load.mode is LoadMode.REGISTER:
        listing, refused = plan_register(con, warehouse, dataset, store)
    elif table:
        counted = con.execute(*count_partition(destination, partition)).fetchone()
    stage = _source_columns(con, dataset, partition, listing, access) if listing.files else []
    changes, refusal, added, inserted = _schema(dataset, table, stage)
    refusal = refused or refusal
    return Plan(
        dataset=dataset.dataset,
        date=ds,
        partition=partition.label,
        source=dataset.source.uri,
        files=listing.files,
        bytes=listing.bytes,
        waits_for=waits_for,
        destination=destination.text,
        warehouse=warehouse.describe(),
        table_exists=bool(table),
        rows_deleted=int(counted[0]) if counted and stage and not refusal else 0,
        schema_changes=changes,
        schema_note=_note(dataset) if stage else None,
        refusal=refusal,
        statements=_statements(dataset, partition, bool(table), added, inserted)
        if stage and not refusal
        else (),
        watermark=mark,
    )


def _source_columns(
    con: DuckDBPyConnection,
    dataset: Dataset,
    partition: Partition,
    listing: Listing,
    access: S3Access,
) -> list[TableColumn]:
    """The columns of exactly these files, and the partition keys with their stated types."""
    import duckdb

    from landfall.errors import SourceError
    from landfall.schema import TableColumn
    from landfall.sql import describe_files
    from landfall.warehouse.base import plain_message, redact
    from landfall.warehouse.s3_secret import create_s3_secret

    bucket, _ = split_uri(dataset.source.uri)
    create_s3_secret(con, access, f"s3://{bucket}", name="landfall_source")
    uris = [f"s3://{bucket}/{file.key}" for file in listing.files]
    try:
        described = con.execute(*describe_files(uris)).fetchall()
    except duckdb.Error as error:
        raise SourceError(
            f"the files' schemas cannot be read: {redact(plain_message(error), access.secrets)}",
            where=f"{dataset.source.uri} {partition.label}",
            fix="correct or remove the file that is named.",
        ) from error
    columns = [TableColumn(str(row[0]), str(row[1])) for row in described]
    known = {column.name.lower() for column in columns}
    keys = (key for key in partition.keys if key.name.lower() not in known)
    return columns + [TableColumn(key.name, KEY_TYPES[key.type]) for key in keys]


def _note(dataset: Dataset) -> str | None:
    if dataset.transform.select is None:
        return None
    return "transform.select changes the columns: the differences above are those of the files."


def _schema(
    dataset: Dataset, table: list[TableColumn], stage: list[TableColumn]
) -> tuple[tuple[str, ...], str | None, list[tuple[str, str]], list[str]]:
    """Differences in words, why they are refused, the columns to add, those to insert."""
    from landfall.schema import AddColumn, ChangeType, differences
    from landfall.schema import plan as schema_plan

    if not stage:
        return (), None, [], []
    selected = dataset.transform.select
    names = None if selected is None else [*selected, *_keys_beside(dataset, selected)]
    if not table:
        pairs = [] if names else [(column.name, column.type) for column in stage]
        return (), None, pairs, names or [name for name, _ in pairs]
    words = []
    for difference in differences(table, stage):
        if isinstance(difference, AddColumn):
            words.append(f"new column {difference.column} {difference.type}")
        elif isinstance(difference, ChangeType):
            words.append(f"{difference.column}: {difference.have} here, {difference.want} there")
        else:
            words.append(f"{difference.column} is missing in the files: NULL")
    if names is not None:
        return tuple(words), None, [], names
    try:
        done = schema_plan(
            table, stage, dataset.contract.on_schema_change, where=dataset.load.destination
        )
    except LandfallError as error:
        return tuple(words), str(error), [], []
    return tuple(words), None, [(o.column, o.type) for o in done.add], list(done.insert)


def _keys_beside(dataset: Dataset, selected: Mapping[str, str]) -> list[str]:
    """The partition keys always stay, also those that select does not name."""
    return [key for key in dataset.source.partition if key not in selected]


def _statements(
    dataset: Dataset,
    partition: Partition,
    table_exists: bool,
    added: list[tuple[str, str]],
    inserted: list[str],
) -> tuple[str, ...]:
    from landfall import sql

    destination = Destination.parse(dataset.load.destination)
    if dataset.upsert is not None:
        upserts = upsert_statements(dataset, _STAGED, added, inserted, table_exists)
        return tuple(_shown(*statement) for statement in upserts)
    if table_exists:
        statements = [sql.add_column(destination, name, kind) for name, kind in added]
    elif added:
        statements = [sql.create_table(destination, added)]
    else:
        statements = [sql.create_table_as(destination, _STAGED)]
    if dataset.load.mode is LoadMode.REGISTER:
        statements.append(register_statement(destination, ["<the new files>"]))
    else:
        statements.append(sql.delete_partition(destination, partition))
        statements.append(sql.insert_by_name(destination, _STAGED, inserted))
    return tuple(_shown(*statement) for statement in statements)


def _shown(text: str, parameters: list[Any]) -> str:
    """The statement with its bound values in place, for reading only."""
    values = iter(parameters)

    def shown(found: re.Match[str]) -> str:
        if found.group() != "?":  # a quoted name, which may hold a question mark
            return found.group()
        value = next(values)
        return str(value) if isinstance(value, int | float | list) else literal(str(value))

    return re.sub(r'"(?:[^"]|"")*"|\?', shown, text)
