"""Which source files a partition has. The cost depends on the partition, not on the history."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Protocol

from landfall.errors import ConfigError, SourceError
from landfall.partition import Partition


@dataclass(frozen=True, order=True)
class SourceFile:
    """One object of the landing. `key` is the whole key within the bucket."""

    key: str
    size: int
    etag: str
    modified: datetime | None = None

    @property
    def name(self) -> str:
        return self.key.rpartition("/")[2]


class Lister(Protocol):
    """The two questions that Landfall asks of a store; prefixes end with a slash."""

    def folders(self, prefix: str) -> list[str]:
        """Names of the folders directly below the prefix (one listing with a delimiter)."""

    def files(self, prefix: str) -> list[SourceFile]:
        """Every object below the prefix, folder markers left out."""


@dataclass(frozen=True)
class Listing:
    """The partition's folders that hold files, its source files, and what else stands there."""

    folders: tuple[str, ...]
    files: tuple[SourceFile, ...]
    others: tuple[SourceFile, ...]

    @property
    def bytes(self) -> int:
        return sum(file.size for file in self.files)


def split_uri(uri: str) -> tuple[str, str]:
    """Bucket and prefix of an s3:// URI; the prefix ends with a slash, or is empty."""
    scheme, _, rest = uri.partition("://")
    bucket, _, prefix = rest.partition("/")
    if scheme not in ("s3", "s3a") or not bucket:
        raise ConfigError(f"{uri!r} is not an s3:// URI.", fix="write it as s3://bucket/prefix.")
    prefix = prefix.strip("/")
    return bucket, f"{prefix}/" if prefix else ""


def candidate_folders(lister: Lister, root: str, partition: Partition) -> list[str]:
    """The folders where the partition's files would be, each a prefix with a slash at its end.

    Only outer keys are listed, one request each folder; named keys are spelt out.
    """
    prefixes = [root]
    for key in partition.keys:
        if key.every:
            prefixes = [
                f"{prefix}{name}/"
                for prefix in prefixes
                for name in lister.folders(prefix)
                if name.startswith(f"{key.name}=")
            ]
        else:
            prefixes = [f"{prefix}{name}/" for prefix in prefixes for name in key.folder_names()]
    return prefixes


def find_files(lister: Lister, root: str, partition: Partition, pattern: str) -> Listing:
    """The partition as it stands in the landing now."""
    folders: list[str] = []
    files: list[SourceFile] = []
    others: list[SourceFile] = []
    for folder in candidate_folders(lister, root, partition):
        found = lister.files(folder)
        own = [f for f in found if _is_source(f, folder, pattern)]
        files += own
        others += [f for f in found if f not in own]
        if own:
            folders.append(folder)
    return Listing(tuple(folders), tuple(sorted(files)), tuple(sorted(others)))


def _is_source(file: SourceFile, folder: str, pattern: str) -> bool:
    *between, name = file.key.removeprefix(folder).split("/")
    if any(part.startswith(("_", ".")) for part in (*between, name)):
        return False
    if not fnmatchcase(name, pattern):
        return False
    if between:
        key = between[0].partition("=")[0]
        raise SourceError(
            f"{file.key} lies in a folder below the partition's own.",
            where=folder,
            fix=f'add the key to source.partition, in path order: {key}: "*".'
            if "=" in between[0]
            else "move the file up, or exclude it with source.files.",
        )
    return True


def fingerprint(files: Iterable[SourceFile]) -> str:
    """One hash over key, size and etag of every file: equal means nothing changed."""
    rows = sorted((file.key, file.size, file.etag) for file in files)
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()
