"""Pure builders of SQL text. Every identifier is checked here, every value is bound.

A statement is its text and its parameters, ready for `connection.execute(*statement)`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from landfall.errors import ConfigError
from landfall.partition import KeyType, Partition

Statement = tuple[str, list[Any]]

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

# MotherDuck takes statements below 512 KiB, so many file names become several statements.
_MAX_FILES = 1_000
_MAX_NAME_BYTES = 256 * 1024


# The column types of partition keys.
KEY_TYPES = {
    KeyType.STRING: "VARCHAR",
    KeyType.INTEGER: "BIGINT",
    KeyType.DATE: "DATE",
    KeyType.TIMESTAMP: "TIMESTAMP",
    KeyType.DOUBLE: "DOUBLE",
    KeyType.BOOLEAN: "BOOLEAN",
}


def identifier(name: str, *, what: str) -> str:
    """The name, quoted, if it is a plain SQL identifier; anything else is refused."""
    if not _IDENTIFIER.fullmatch(name):
        raise ConfigError(
            f"{what} {name!r} is not a plain SQL identifier.",
            fix="use letters, digits and underscores only, and do not start with a digit.",
        )
    return f'"{name}"'


def quoted(name: str) -> str:
    """The name of a data column, which may be any text."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A text literal, for the few statements that take no parameters (ATTACH, LOAD)."""
    return "'" + text.replace("'", "''") + "'"


def without_keys(create: str) -> str:
    """A CREATE TABLE of Landfall's own without its PRIMARY KEY: DuckLake takes none."""
    return re.sub(r",? PRIMARY KEY( \([^)]*\))?", "", create)


@dataclass(frozen=True)
class Destination:
    """A table's full name. Its three parts are plain identifiers: others are refused."""

    database: str
    schema: str
    table: str

    def __post_init__(self) -> None:
        identifier(self.database, what="destination database")
        identifier(self.schema, what="destination schema")
        identifier(self.table, what="destination table")

    @classmethod
    def parse(cls, text: str) -> Destination:
        parts = text.split(".")
        if len(parts) != 3:
            raise ConfigError(
                f"destination {text!r} does not name a table.", fix="write database.schema.table."
            )
        return cls(*parts)

    @property
    def text(self) -> str:
        """The name as the ledger shows it: `retail.main.transactions`."""
        return f"{self.database}.{self.schema}.{self.table}"

    @property
    def qualified(self) -> str:
        """The name as statements use it."""
        return self.beside(self.table, what="destination table")

    def beside(self, table: str, *, what: str = "table") -> str:
        """Another table in the same database and schema, as statements use it."""
        name = identifier(table, what=what)
        return f'"{self.database}"."{self.schema}".{name}'


def file_chunks(files: Sequence[str]) -> Iterator[list[str]]:
    """The files in order, in groups whose names fit into one statement."""
    chunk: list[str] = []
    size = 0
    for file in files:
        length = len(file.encode())
        if chunk and (len(chunk) >= _MAX_FILES or size + length > _MAX_NAME_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(file)
        size += length
    if chunk:
        yield chunk


READ_FILES = "read_parquet(?, union_by_name = true, hive_partitioning = false)"


def describe_files(files: Sequence[str]) -> Statement:
    return f"DESCRIBE SELECT * FROM {READ_FILES}", [list(files)]  # noqa: S608


def describe_table(destination: Destination) -> Statement:
    """Names and types of the table's columns; no row if there is no such table."""
    text = (
        "SELECT column_name, data_type FROM duckdb_columns() WHERE database_name = ? "
        "AND lower(schema_name) = lower(?) AND lower(table_name) = lower(?) ORDER BY column_index"
    )
    return text, [destination.database, destination.schema, destination.table]


def table_kind(destination: Destination, table: str) -> Statement:
    """`BASE TABLE` or `VIEW`; no row if there is no such table."""
    text = (
        "SELECT table_type FROM information_schema.tables WHERE table_catalog = ? "
        "AND lower(table_schema) = lower(?) AND lower(table_name) = lower(?)"
    )
    return text, [destination.database, destination.schema, table]


def create_table(destination: Destination, columns: Sequence[tuple[str, str]]) -> Statement:
    """The table from (name, type) pairs, where the types are DuckDB's own text for them."""
    listed = ", ".join(f"{quoted(name)} {kind}" for name, kind in columns)
    return f"CREATE TABLE {destination.qualified} ({listed})", []


def create_table_as(destination: Destination, files: Sequence[str]) -> Statement:
    """The table with the files' columns and no row."""
    text = f"CREATE TABLE {destination.qualified} AS SELECT * FROM {READ_FILES} LIMIT 0"  # noqa: S608
    return text, [list(files)]


def add_column(destination: Destination, name: str, kind: str) -> Statement:
    return f"ALTER TABLE {destination.qualified} ADD COLUMN {quoted(name)} {kind}", []


def partition_predicate(partition: Partition) -> Statement:
    """What is true for the partition's rows, and for no other row."""
    terms: list[str] = []
    parameters: list[Any] = []
    for key in partition.named:
        column = identifier(key.name, what="partition key")
        values = [value for value in key.typed if value is not None]
        either = []
        if values:
            either.append(f"{column} IN ({', '.join('?' * len(values))})")
            parameters += values
        if len(values) < len(key.typed):
            either.append(f"{column} IS NULL")
        if not either:
            raise ConfigError(
                "no value is given.",
                where=f"partition key {key.name!r}",
                fix='name at least one value, or "*" for every value.',
            )
        terms.append(f"({' OR '.join(either)})")
    return " AND ".join(terms) or "TRUE", parameters


def delete_partition(destination: Destination, partition: Partition) -> Statement:
    """Deletes the rows of the named keys' values; without named keys, every row."""
    predicate, parameters = partition_predicate(partition)
    return f"DELETE FROM {destination.qualified} WHERE {predicate}", parameters  # noqa: S608


def count_partition(destination: Destination, partition: Partition) -> Statement:
    predicate, parameters = partition_predicate(partition)
    text = f"SELECT count(*) FROM {destination.qualified} WHERE {predicate}"  # noqa: S608
    return text, parameters


def insert_by_name(
    destination: Destination, files: Sequence[str], columns: Sequence[str]
) -> Statement:
    listed = ", ".join(quoted(column) for column in columns)
    text = f"INSERT INTO {destination.qualified} BY NAME SELECT {listed} FROM {READ_FILES}"  # noqa: S608
    return text, [list(files)]
