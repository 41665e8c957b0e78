"""The whole landing, for mode register: every file with its partition, whatever run it is for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from fnmatch import fnmatchcase

from landfall.dataset import Source, is_template
from landfall.errors import ConfigError
from landfall.listing import Lister, SourceFile, split_uri
from landfall.partition import EVERY, Partition, PartitionKey, Value, hive_unescape


@dataclass(frozen=True)
class LandedFile:
    """A source file, its address, and the partition that its path names."""

    source: SourceFile
    uri: str
    partition: Partition

    @property
    def values(self) -> Mapping[str, Value]:
        return {key.name: key.typed[0] for key in self.partition.keys}


@dataclass(frozen=True)
class Landing:
    """`files` can be registered; `waiting` is not ready yet; `wrong` says which never can be.

    `keys` are those of all objects below `root`, also of values that another dataset names.
    """

    files: tuple[LandedFile, ...]
    waiting: tuple[LandedFile, ...] = ()
    wrong: tuple[str, ...] = ()
    root: str = ""
    keys: frozenset[str] = frozenset()


def list_whole_landing(lister: Lister, source: Source, now: datetime) -> Landing:
    """One listing of the whole prefix."""
    bucket, root = split_uri(source.uri)
    found = lister.files(root)
    keys = frozenset(file.key for file in found)
    quiet_since = now - timedelta(minutes=source.ready.quiet_minutes)
    files: list[LandedFile] = []
    waiting: list[LandedFile] = []
    wrong: list[str] = []
    for file in sorted(found):
        *folders, name = file.key.removeprefix(root).split("/")
        if any(part.startswith(("_", ".")) for part in (*folders, name)):
            continue
        if not fnmatchcase(name, source.files):
            continue
        try:
            partition = _partition(source, folders)
        except ConfigError as error:
            wrong.append(f"{file.key}: {error.what}")
            continue
        if any(character in file.key for character in "*?["):
            wrong.append(f"{file.key}: the name reads as a pattern.")
        elif partition is not None:
            marker = f"{file.key.removesuffix(name)}{source.ready.marker}"
            young = file.modified is not None and file.modified > quiet_since
            unmarked = source.ready.marker is not None and marker not in keys
            landed = LandedFile(file, f"s3://{bucket}/{file.key}", partition)
            (waiting if unmarked or (source.ready.quiet_minutes and young) else files).append(
                landed
            )
    return Landing(tuple(files), tuple(waiting), tuple(wrong), root, keys)


def _partition(source: Source, folders: list[str]) -> Partition | None:
    """What the folders say; None where the dataset names other values; an error if they do not."""
    given = [folder.partition("=") for folder in folders]
    if [name for name, _, _ in given] != list(source.partition):
        expected = "/".join(f"{key}=…" for key in source.partition) or "the prefix itself"
        raise ConfigError(f"it does not lie in {expected}.")
    keys = []
    for name, _, text in given:
        value = hive_unescape(text)
        key = PartitionKey(name, source.key_type(name), (value,))
        values, wanted = set(key.typed), _fixed(source, name)
        if wanted is not None and values.isdisjoint(wanted.typed):
            return None
        keys.append(key)
    return Partition(tuple(keys))


def _fixed(source: Source, name: str) -> PartitionKey | None:
    """The values that the dataset file spells out; None: any, as a template is of some run."""
    given = source.partition[name]
    values = [given] if isinstance(given, str) else given
    if any(value == EVERY or is_template(value) for value in values):
        return None
    return PartitionKey(name, source.key_type(name), tuple(hive_unescape(v) for v in values))
