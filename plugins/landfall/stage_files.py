"""The staged files as the warehouse sees them: exactly those that the manifest names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from landfall.errors import ContractError, ManifestError
from landfall.manifest import HIDDEN, Manifest, StagedFile
from landfall.schema import TableColumn
from landfall.sql import describe_files, file_chunks

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from landfall.s3_access import S3Access


@dataclass(frozen=True)
class Chunk:
    """Files that one statement reads, with the columns that are in them."""

    files: tuple[str, ...]
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Stage:
    chunks: tuple[Chunk, ...]
    columns: tuple[TableColumn, ...]


def read_stage(
    con: DuckDBPyConnection,
    manifest: Manifest,
    access: S3Access | None,
    where: str,
    files: Sequence[StagedFile] | None = None,
) -> Stage:
    """Reads the schemas of the staged files, or of others that the manifest names.

    With `access`, a secret for their buckets is made first. Landfall's own columns are left out.
    """
    uris = [file.uri for file in (manifest.staged if files is None else files)]
    if access is not None:
        from landfall.warehouse.s3_secret import create_s3_secret

        for number, bucket in enumerate(_buckets(uris)):
            create_s3_secret(con, access, bucket, name=f"landfall_stage_{number}")
    chunks: list[Chunk] = []
    merged: dict[str, TableColumn] = {}
    for chunk in file_chunks(uris):
        described = con.execute(*describe_files(chunk)).fetchall()
        found = [TableColumn(r[0], r[1]) for r in described if not r[0].startswith(HIDDEN)]
        for column in found:
            _refuse_other_type(merged.setdefault(column.name.lower(), column), column, where)
        chunks.append(Chunk(tuple(chunk), tuple(column.name for column in found)))
    _refuse_other_columns(manifest, merged, where)
    return Stage(tuple(chunks), tuple(merged.values()))


def _buckets(uris: list[str]) -> list[str]:
    """`s3://bucket/` of each bucket that a file lies in."""
    remote = (uri.split("/") for uri in uris if "://" in uri)
    return list(dict.fromkeys("/".join(parts[:3]) + "/" for parts in remote))


def _refuse_other_type(known: TableColumn, column: TableColumn, where: str) -> None:
    if known.type != column.type:
        raise ContractError(
            f"column {column.name!r} is {known.type} in one staged file and {column.type} in "
            "another.",
            where=where,
            fix="cast it with transform.select.",
        )


def _refuse_other_columns(manifest: Manifest, found: dict[str, TableColumn], where: str) -> None:
    expected = {column.name.lower() for column in manifest.columns}
    if found and expected and expected != set(found):
        names = ", ".join(sorted(expected ^ set(found)))
        raise ManifestError(
            f"the staged files and the manifest differ in their columns: {names}.",
            where=where,
            fix="clear stage_partition to stage the partition again.",
        )
