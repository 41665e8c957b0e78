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
    whole: bool = True
    """Whether all source files in these folders are meant; if not, only the files named here."""

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


def list_source(lister: Lister, uri: str, partition: Partition, pattern: str) -> Listing:
    """What the URI (a prefix, a glob or one file) has of the partition now."""
    root = split_uri(uri)[1]
    key = root.rstrip("/")
    if not partition.keys:
        if any(character in key for character in "*?["):
            return _find_matching(lister, key, pattern)
        folder, _, name = key.rpartition("/")
        if fnmatchcase(name, pattern):  # or a folder whose name looks like a file's
            found = tuple(file for file in lister.files(key) if file.key == key)
            if found:
                return Listing((f"{folder}/" if folder else "",), found, (), whole=False)
    return find_files(lister, root, partition, pattern)


def _find_matching(lister: Lister, glob: str, pattern: str) -> Listing:
    """The objects whose keys match, folder by folder: `*` never stands for a slash."""
    segments = glob.split("/")
    fixed = next(i for i, part in enumerate(segments) if any(c in part for c in "*?["))
    root = "".join(f"{part}/" for part in segments[:fixed])
    files: list[SourceFile] = []
    others: list[SourceFile] = []
    for file in lister.files(root):
        parts = file.key.split("/")
        meant = (
            len(parts) == len(segments)
            and not any(part.startswith(("_", ".")) for part in parts[fixed:])
            and all(map(fnmatchcase, parts, segments))
            and fnmatchcase(file.name, pattern)
        )
        (files if meant else others).append(file)
    folders = dict.fromkeys(file.key[: -len(file.name)] for file in files)
    return Listing(tuple(folders), tuple(sorted(files)), tuple(sorted(others)), whole=False)


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
