"""The table's part of mode register: footers, columns, and DuckLake's own list of data files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import duckdb  # noqa: TID253

from landfall.dataset import OnSchemaChange
from landfall.errors import ConfigError, ContractError, SourceChanged, SourceError
from landfall.landing import LandedFile
from landfall.partition import parse_value
from landfall.replace import fit_table, refuse_view
from landfall.schema import TableColumn, refuse_ambiguous
from landfall.sql import KEY_TYPES, Destination, describe_files, file_chunks, identifier, quoted
from landfall.warehouse.base import plain_message

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from landfall.s3_access import S3Access

_READERS = 16


def read_footers(
    con: DuckDBPyConnection, files: Sequence[LandedFile], access: S3Access | None
) -> dict[str, int]:
    """Rows of each file, by its URI.

    DuckLake opens its files one after the other. Read here first, many at once, their footers are
    in DuckDB's cache by then.
    """
    if not files:
        return {}
    if access is not None:
        from landfall.warehouse.s3_secret import create_s3_secret

        bucket = "/".join(files[0].uri.split("/")[:3])
        create_s3_secret(con, access, f"{bucket}/", name="landfall_source")
        con.execute("SET enable_http_metadata_cache = true")
    con.execute(f"SET threads = {_READERS}")
    rows: dict[str, int] = {}
    with _reading():
        for uris in file_chunks([file.uri for file in files]):
            found = con.execute(
                "SELECT file_name, num_rows FROM parquet_file_metadata(?)", [uris]
            ).fetchall()
            rows.update(found)
    con.execute("SET threads = 1")  # of which one file at a time makes the best use
    return rows


def fit_partitioned_table(
    con: DuckDBPyConnection,
    destination: Destination,
    files: Sequence[LandedFile],
    policy: OnSchemaChange,
) -> tuple[str, ...]:
    """Creates the table, partitioned by the path's keys, or adds what the policy lets it add."""
    keys = files[0].partition.keys
    with _reading():
        described = con.execute(*describe_files([file.uri for file in files])).fetchall()
    refuse_ambiguous((row[0] for row in described), where=destination.text)
    names = {key.name.lower() for key in keys}
    both = [row[0] for row in described if row[0].lower() in names]
    if both:
        _refuse_other_values(con, files, both)
    columns = [TableColumn(row[0], row[1]) for row in described if row[0].lower() not in names]
    columns += [TableColumn(key.name, KEY_TYPES[key.type]) for key in keys]
    exists = refuse_view(con, destination)
    added = fit_table(con, destination, columns, policy)
    if not exists and keys:
        listed = ", ".join(identifier(key.name, what="partition key") for key in keys)
        con.execute(f"ALTER TABLE {destination.qualified} SET PARTITIONED BY ({listed})")
    return added


def add_files(
    con: DuckDBPyConnection,
    destination: Destination,
    files: Sequence[LandedFile],
    policy: OnSchemaChange,
) -> None:
    discard = policy is OnSchemaChange.DISCARD
    for uris in file_chunks([file.uri for file in files]):
        with _reading():
            con.execute(
                "CALL ducklake_add_data_files(?, ?, ?, schema => ?, allow_missing => true, "
                f"hive_partitioning => {bool(files[0].partition.keys)}, "
                f"ignore_extra_columns => {discard})",
                [destination.database, destination.table, uris, destination.schema],
            )


def _refuse_other_values(
    con: DuckDBPyConnection, files: Sequence[LandedFile], columns: Sequence[str]
) -> None:
    """A column both in path and file: the path would win, silently, so they must agree."""
    by_uri = {file.uri: file for file in files}
    for column in columns:
        name = quoted(column)
        for uris in file_chunks(list(by_uri)):
            with _reading():
                found = con.execute(
                    f"SELECT DISTINCT filename, {name}::VARCHAR FROM read_parquet(?, "  # noqa: S608
                    "union_by_name = true, hive_partitioning = false, filename = true)",
                    [uris],
                ).fetchall()
            for uri, text in found:
                _refuse_other_value(by_uri[uri], column, text)


def _refuse_other_value(file: LandedFile, column: str, text: str | None) -> None:
    key = next(key for key in file.partition.keys if key.name.lower() == column.lower())
    try:
        agrees = parse_value(text, key.type, key=key.name) == key.typed[0]
    except ConfigError:
        agrees = False
    if not agrees:
        raise ContractError(
            f"the column {column!r} holds {text!r}, the path says {key.typed[0]!s}.",
            where=file.uri,
            fix="leave the partition keys out of the files, or let both agree.",
        )


@contextmanager
def _reading() -> Iterator[None]:
    """Errors of reading landed files, in words of the landing."""
    try:
        yield
    except duckdb.InvalidInputException as error:
        text = plain_message(error)
        if "Failed to map column" in text or "exists in file" in text:
            raise ContractError(
                text,
                fix="land the file with the table's types, or alter the table's column to a wider "
                "type.",
            ) from error
        raise SourceError(text, fix="remove or correct the file that is named.") from error
    except (duckdb.IOException, duckdb.HTTPException) as error:
        text = plain_message(error)
        if any(mark in text for mark in ("No files found", "404", "No such file")):
            raise SourceChanged(
                f"a file vanished while it was being registered: {text}", fix="try again."
            ) from error
        raise
