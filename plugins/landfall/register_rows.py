"""What the ledger keeps of registered files: by key, size and etag, so that each is there once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from landfall.landing import LandedFile, Landing
from landfall.ledger import FileRow, PartitionState, select_rows
from landfall.ledger_schema import FILES, PARTITIONS, exists
from landfall.listing import SourceFile, fingerprint
from landfall.sql import Destination, identifier

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


@dataclass(frozen=True)
class Known:
    """The files that were registered before, and what is wrong with them now."""

    by_key: Mapping[str, FileRow]
    problems: tuple[str, ...]


def known_files(con: DuckDBPyConnection, destination: Destination, landing: Landing) -> Known:
    """A file that the table no longer reads may vanish; one that it reads may not, or change."""
    tail = "WHERE destination_table = ? ORDER BY loaded_at"  # the newest of a key comes last
    rows = select_rows(con, destination, FILES, FileRow, tail, [destination.text])
    by_key = {row.key: row for row in rows}
    listed = {file.source.key: file for file in (*landing.files, *landing.waiting)}
    problems = [
        f"{key} changed since it was registered ({row.size} bytes then, {now.source.size} now)."
        for key, row in by_key.items()
        if (now := listed.get(key)) is not None
        and (row.size, row.etag) != (now.source.size, now.source.etag)
    ]
    gone = [key for key in by_key if key.startswith(landing.root) and key not in landing.keys]
    if gone:
        live = _live_keys(con, destination)
        problems += [f"{key} vanished, and the table reads it." for key in gone if key in live]
    return Known(by_key, tuple(problems))


def record_registered(
    con: DuckDBPyConnection,
    destination: Destination,
    known: Known,
    new: Sequence[LandedFile],
    rows: Mapping[str, int],
    dataset: str,
    run_id: str,
    source_uri: str,
    config_hash: str,
) -> None:
    """The file history, and the state of each partition that has a new file."""
    now = datetime.now(UTC)
    added = [
        FileRow(
            destination_table=destination.text,
            partition=file.partition.label,
            run_id=run_id,
            key=file.source.key,
            size=file.source.size,
            etag=file.source.etag,
            rows=rows[file.uri],
            loaded_at=now,
        )
        for file in new
    ]
    _insert(con, destination.beside(FILES), [asdict(row) for row in added])
    touched: dict[str, list[FileRow]] = {row.partition: [] for row in added}
    for row in (*known.by_key.values(), *added):
        if row.partition in touched:
            touched[row.partition].append(row)
    con.execute(
        f"DELETE FROM {destination.beside(PARTITIONS)} "  # noqa: S608
        "WHERE destination_table = ? AND partition IN (SELECT unnest(?))",
        [destination.text, list(touched)],
    )
    states = [
        PartitionState(
            destination_table=destination.text,
            partition=label,
            dataset=dataset,
            staged_at=now,
            run_id=run_id,
            attempt="",
            attempt_uri=source_uri,
            rows=sum(file.rows for file in files),
            files=len(files),
            bytes=sum(file.size for file in files),
            source_fingerprint=fingerprint(SourceFile(f.key, f.size, f.etag) for f in files),
            schema_hash="",
            config_hash=config_hash,
            loaded_at=now,
        )
        for label, files in touched.items()
    ]
    _insert(con, destination.beside(PARTITIONS), [asdict(state) for state in states])


def _insert(con: DuckDBPyConnection, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """All of them by one statement: on DuckLake each is a file."""
    import pyarrow as pa

    filled: dict[str, list[Any]] = defaultdict(list)
    for row in rows:
        for name, value in row.items():
            filled[name].append(value)
    given = {name: values for name, values in filled.items() if any(v is not None for v in values)}
    names = ", ".join(identifier(name, what="column") for name in given)
    con.register("landfall_rows", pa.table(given))
    try:
        con.execute(f"INSERT INTO {table} ({names}) SELECT {names} FROM landfall_rows")  # noqa: S608
    finally:
        con.unregister("landfall_rows")


def _live_keys(con: DuckDBPyConnection, destination: Destination) -> set[str]:
    """Keys of the objects that the table reads now."""
    if not exists(con, destination, destination.table):
        return set()
    rows = con.execute(
        "SELECT data_file FROM ducklake_list_files(?, ?, schema => ?)",
        [destination.database, destination.table, destination.schema],
    ).fetchall()
    return {path.split("/", 3)[3] for (path,) in rows if path.startswith("s3://")}
