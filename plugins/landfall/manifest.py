"""The contract between Spark and the loader: one JSON object, written last, that publishes a stage.

Nothing here needs more than the standard library, so that it travels to a Spark cluster as it is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from landfall.errors import ManifestError
from landfall.listing import SourceFile, fingerprint
from landfall.partition import Partition

VERSION = 1
MANIFEST_NAME = "manifest.json"
# Staged columns that are Landfall's own begin with it, and never reach the table.
HIDDEN = "__landfall_"


@dataclass(frozen=True)
class Deduplicate:
    key: tuple[str, ...]
    latest_by: str | None


@dataclass(frozen=True)
class OpenFile:
    """A source file that an upsert opens. `known`: it was read before, up to `read_until`."""

    key: str
    size: int
    etag: str
    known: bool = False
    read_until: str | None = None
    watermark_min: str | None = None
    watermark_max: str | None = None


def files_to_json(files: Sequence[OpenFile]) -> str:
    """The object that names the files to open, beside the attempt's stage."""
    return json.dumps({"files": [asdict(file) for file in files]})


def files_from_json(text: str) -> tuple[OpenFile, ...]:
    return tuple(OpenFile(**file) for file in json.loads(text)["files"])


@dataclass(frozen=True)
class Upsert:
    """What the Spark job must know beyond a replace: the key, the range, and who breaks a rule."""

    key: tuple[str, ...]
    column: str
    kind: str | None
    """The watermark's stored type; None before the first load."""
    overlap: str
    ahead: str | None
    start: str | None
    """Rows below it are out of range; for a replay, where the range begins."""
    late_before: str | None
    until: str | None
    replay: bool
    on_null: str
    late: str
    deleted: str | None
    staged_at: str
    """When the landing was looked at."""
    files_uri: str
    """The object that names the files to open: too many for a command's arguments."""


@dataclass(frozen=True)
class StageSpec:
    """What the Spark job is asked to do; its only argument, as JSON, and without secrets."""

    dataset: str
    source_uri: str
    files: str
    partition: Partition
    stage_uri: str
    attempt: str
    dag_run_id: str
    config_hash: str
    filter: str | None = None
    select: Mapping[str, str] | None = None
    deduplicate: Deduplicate | None = None
    target_file_bytes: int = 128 * 1024 * 1024
    upsert: Upsert | None = None

    @property
    def attempt_uri(self) -> str:
        """The prefix that this attempt alone writes to."""
        return f"{self.stage_uri}/{self.attempt}"

    @property
    def manifest_uri(self) -> str:
        return f"{self.attempt_uri}/{MANIFEST_NAME}"

    @property
    def files_uri(self) -> str:
        """Where an upsert's files to open are named."""
        return f"{self.attempt_uri}/files.json"

    def to_json(self) -> str:
        return json.dumps({**_plain(self), "partition": self.partition.to_json()})

    @classmethod
    def from_json(cls, text: str) -> StageSpec:
        document = json.loads(text)
        document["partition"] = Partition.from_json(document["partition"])
        if document["deduplicate"] is not None:
            wanted = document["deduplicate"]
            document["deduplicate"] = Deduplicate(tuple(wanted["key"]), wanted["latest_by"])
        if document["upsert"] is not None:
            upsert = document["upsert"]
            document["upsert"] = Upsert(**{**upsert, "key": tuple(upsert["key"])})
        return cls(**document)


@dataclass(frozen=True)
class StagedFile:
    uri: str
    rows: int
    bytes: int


@dataclass(frozen=True)
class StagedSource:
    """A source file that the stage was made of."""

    key: str
    size: int
    etag: str
    rows: int
    watermark_min: str | None = None
    watermark_max: str | None = None
    read_until: str | None = None


@dataclass(frozen=True)
class Upserted:
    """The upsert's part of a manifest: which range was read, and where its other rows are."""

    key: tuple[str, ...]
    column: str
    kind: str | None
    start: str | None
    late_before: str | None
    until: str | None
    replay: bool
    reached: str | None = None
    """The greatest watermark of a row that is loaded or deleted."""
    rows_outside: int = 0
    rows_late: int = 0
    deletes: tuple[StagedFile, ...] = ()
    rejects: tuple[StagedFile, ...] = ()

    @property
    def rows_to_delete(self) -> int:
        return sum(file.rows for file in self.deletes)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Upserted:
        files = {
            name: tuple(StagedFile(**file) for file in document[name])
            for name in ("deletes", "rejects")
        }
        return cls(**{**document, "key": tuple(document["key"]), **files})


@dataclass(frozen=True)
class Column:
    """A staged column; `type` is Spark's DDL text, for people and for the schema's hash."""

    name: str
    type: str


@dataclass(frozen=True)
class Manifest:
    dataset: str
    partition: Partition
    dag_run_id: str
    attempt: str
    staged_at: str  # ISO 8601, UTC, microseconds: orders the attempts of one partition
    source_uri: str
    sources: tuple[StagedSource, ...]
    staged: tuple[StagedFile, ...]
    rows_read: int
    rows_filtered: int
    rows_deduplicated: int
    rows_rejected: int
    rows_staged: int
    columns: tuple[Column, ...]
    config_hash: str
    committer: str
    upsert: Upserted | None = None
    version: int = VERSION

    @property
    def source_fingerprint(self) -> str:
        return fingerprint(SourceFile(s.key, s.size, s.etag) for s in self.sources)

    @property
    def source_bytes(self) -> int:
        return sum(source.size for source in self.sources)

    def check(self) -> Manifest:
        """Refuse a manifest whose sums do not add up."""
        parts = self.rows_filtered + self.rows_deduplicated + self.rows_rejected + self.rows_staged
        names = "filtered + deduplicated + rejected + staged"
        if self.upsert is not None:
            parts += self.upsert.rows_outside + self.upsert.rows_to_delete
            names += " + outside + to delete"
        if self.rows_read != parts:
            raise ManifestError(
                f"rows read ({self.rows_read}) are not {names} ({parts}).",
                where=f"manifest of attempt {self.attempt}",
                fix="clear stage_partition to stage the partition again.",
            )
        in_files = sum(file.rows for file in self.staged)
        if in_files != self.rows_staged:
            raise ManifestError(
                f"the staged files hold {in_files} rows, the manifest says {self.rows_staged}.",
                where=f"manifest of attempt {self.attempt}",
                fix="clear stage_partition to stage the partition again.",
            )
        return self

    def to_json(self) -> str:
        document = {**_plain(self), "partition": self.partition.to_json()}
        document["source_fingerprint"] = self.source_fingerprint
        return json.dumps(document, indent=1)

    @classmethod
    def from_json(cls, text: str, *, where: str) -> Manifest:
        try:
            document = json.loads(text)
            version = document["version"]
            if version != VERSION:
                raise ManifestError(
                    f"the manifest has version {version}; this Landfall reads {VERSION}.",
                    where=where,
                    fix="run Spark and Airflow with the same Landfall, then clear stage_partition.",
                )
            recorded = document.pop("source_fingerprint")
            document["partition"] = Partition.from_json(document["partition"])
            document["sources"] = tuple(StagedSource(**s) for s in document["sources"])
            document["staged"] = tuple(StagedFile(**s) for s in document["staged"])
            document["columns"] = tuple(Column(**c) for c in document["columns"])
            if document.get("upsert") is not None:
                document["upsert"] = Upserted.from_json(document["upsert"])
            manifest = cls(**document)
        except (ValueError, KeyError, TypeError) as error:
            raise ManifestError(
                f"the manifest cannot be read: {error!r}.",
                where=where,
                fix="clear stage_partition to stage the partition again.",
            ) from error
        if manifest.source_fingerprint != recorded:
            raise ManifestError("the source fingerprint does not match its files.", where=where)
        return manifest


def _plain(thing: StageSpec | Manifest) -> dict[str, Any]:
    """The fields as JSON types; the partition is left to the caller."""
    return {name: value for name, value in asdict(thing).items() if name != "partition"}
