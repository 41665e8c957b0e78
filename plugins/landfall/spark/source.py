"""The partition as a DataFrame: exactly its folders, with the partition keys in stated types.

The keys come from Landfall's own reading of the folder names, not from Spark's partition discovery,
which decodes escapes byte by byte and lets the path win silently over a column of the file. Spark
reads the folders plain; each row's file says which values are its own.

Types: what Spark has no type for is widened without a change of value: UINT_8 to smallint, UINT_16
to integer, UINT_32 to bigint, UINT_64 to decimal(20,0). INT_8 and INT_16 stay as they are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import unquote, urlsplit

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DataType, StringType, StructType

from landfall.errors import ConfigError, SourceChanged, SourceError
from landfall.listing import Listing, split_uri
from landfall.manifest import StageSpec
from landfall.partition import KeyType, Partition, hive_unescape, parse_value
from landfall.spark.transform import FILE, MODIFIED, column

_FOLDER = "__landfall_folder"
_SPARK_TYPES = {
    KeyType.STRING: "string",
    KeyType.INTEGER: "bigint",
    KeyType.DATE: "date",
    KeyType.TIMESTAMP: "timestamp_ntz",
    KeyType.DOUBLE: "double",
    KeyType.BOOLEAN: "boolean",
}


@dataclass(frozen=True)
class Source:
    """The rows with their keys and `FILE`; per key that a file has too, where the two differ."""

    frame: DataFrame
    plain: DataFrame
    disagreements: Mapping[str, Column]


def check_listing(listing: Listing, spec: StageSpec) -> None:
    """Refuse what Spark would pass over silently: nothing there, or a file without a byte."""
    if not listing.files:
        beside = f" ({len(listing.others)} other objects are)" if listing.others else ""
        raise SourceError(
            f"no file {spec.files} is there for the partition {spec.partition.label}{beside}.",
            where=spec.source_uri,
            fix="check source.uri, source.partition and source.files, or wait until it has landed.",
        )
    for file in listing.files:
        if file.size == 0:
            raise SourceError(
                f"{file.key} has 0 bytes: it is no Parquet file.",
                where=f"s3://{split_uri(spec.source_uri)[0]}/{file.key}",
                fix="land the file again or remove it, or leave it out with source.files.",
            )


def check_unchanged(before: Listing, now: Listing) -> None:
    """Refuse a source that is not the one that was listed first."""
    was = {file.key: (file.size, file.etag) for file in before.files}
    has = {file.key: (file.size, file.etag) for file in now.files}
    for key in sorted(was.keys() | has.keys()):
        if was.get(key) != has.get(key):
            how = "vanished" if key not in has else "arrived" if key not in was else "changed"
            raise SourceChanged(
                f"{key} {how} while the partition was read.",
                fix="the next try reads the source as it is then; let the writer finish first.",
            )


def read(
    spark: SparkSession, spec: StageSpec, listing: Listing, schema: StructType | None = None
) -> Source:
    """The partition's rows. Reads footers for the merged schema (or takes the one that is given),
    and no data yet."""
    bucket, root = split_uri(spec.source_uri)
    # Many files cost a look each; folders do not, but hold files that may not be meant.
    paths = listing.folders if listing.whole else [file.key for file in listing.files]
    reader = spark.read if schema is None else spark.read.schema(schema)
    plain = (
        reader.option("recursiveFileLookup", "true")
        .option("pathGlobFilter", spec.files)
        .option("mergeSchema", str(schema is None).lower())
        .option("__globPaths__", "false")  # a folder's name is a name, not a pattern
        .parquet(*(f"s3a://{bucket}/{path.rstrip('/')}" for path in paths))
    )
    encoded = {key_of(path): path for path in plain.inputFiles()}
    _check_input(listing, set(encoded), spec)
    folders = {
        encoded[file.key].rpartition("/")[0]: _folder_texts(file.key, root, spec.partition)
        for file in listing.files
    }
    return _with_keys(plain, spec.partition, folders)


def rows_by_file(frame: DataFrame) -> dict[str, int]:
    """Rows of each file (by its key), from the footers: no column is read."""
    path = frame.metadataColumn("_metadata").getField("file_path")
    counted = frame.select(path.alias(FILE)).groupBy(FILE).count().collect()
    return {key_of(row[0]): int(row[1]) for row in counted}


def disagreement(key: str, example: str) -> SourceError:
    """The error for a key whose value in the path is not the one in the file."""
    found = json.loads(example)
    file = key_of(found["file"])
    return SourceError(
        f"the column {key!r} is {found.get('in_file')!r} in a row of {file}, but its path says "
        f"{found.get('in_path')!r}.",
        where=file,
        fix="land the file in the folder of its rows; if the two are one value in other "
        f"spellings, set source.types.{key} to the type that it has.",
    )


def _with_keys(
    plain: DataFrame, partition: Partition, folders: Mapping[str, Sequence[str | None]]
) -> Source:
    keys = partition.keys
    file = plain.metadataColumn("_metadata")
    frame = plain.select(
        "*",
        file.getField("file_path").alias(FILE),
        file.getField("file_modification_time").alias(MODIFIED),
    )
    rows = list(folders.values())
    varying = [i for i in range(len(keys)) if len({texts[i] for texts in rows}) > 1]
    if varying:
        frame = _join_folders(frame, folders, varying)
    in_path = {
        key.name: (
            column(f"__landfall_key_{i}") if i in varying else F.lit(rows[0][i]).cast("string")
        ).cast(_SPARK_TYPES[key.type])
        for i, key in enumerate(keys)
    }
    by_lower = {name.lower(): name for name in in_path}
    doubled = {
        field.name: by_lower[field.name.lower()]
        for field in plain.schema.fields
        if field.name.lower() in by_lower
    }
    disagreements = {}
    for name, key in doubled.items():
        stated = next(_SPARK_TYPES[k.type] for k in keys if k.name == key)
        differ = _differ(frame, name, plain.schema[name].dataType, in_path[key], stated)
        example = F.struct(
            column(FILE).alias("file"),
            column(name).cast("string").alias("in_file"),
            in_path[key].cast("string").alias("in_path"),
        )
        disagreements[name] = F.when(differ, F.to_json(example))
    frame = frame.select(
        *(column(name) for name in plain.columns if name not in doubled),
        *(value.alias(name) for name, value in in_path.items()),
        column(FILE),
        column(MODIFIED),
        *(value.alias(_hidden(name)) for name, value in disagreements.items()),
    )
    return Source(frame, plain, {doubled[name]: column(_hidden(name)) for name in disagreements})


def _differ(frame: DataFrame, name: str, in_file: DataType, in_path: Column, stated: str) -> Column:
    """Whether a row's own value is another one than its path's, in the stated type."""
    value = column(name)
    same = value.try_cast(stated).eqNullSafe(in_path)
    if not isinstance(in_file, StringType):
        # A file's 10:30 is not its path's day, nor its 1.5 the path's 1.
        same = same & in_path.try_cast(in_file).eqNullSafe(value)
    try:
        frame.select(same)
    except Exception as error:
        raise SourceError(
            f"the column {name!r} is {in_file.simpleString()} in the files, and a partition key of "
            f"type {stated} in the path.",
            where=f"partition key {name!r}",
            fix=f"set source.types.{name} to the type that it has, or rename the column.",
        ) from error
    return ~same


def _hidden(name: str) -> str:
    return f"__landfall_differs_{name}"


def _join_folders(
    frame: DataFrame, folders: Mapping[str, Sequence[str | None]], varying: Sequence[int]
) -> DataFrame:
    """Each row with the key texts of its folder; a small table, sent to every task."""
    names = [_FOLDER, *(f"__landfall_key_{i}" for i in varying)]
    shape = "array<struct<" + ", ".join(f"{name}: string" for name in names) + ">>"
    table = [
        {_FOLDER: folder, **{f"__landfall_key_{i}": texts[i] for i in varying}}
        for folder, texts in folders.items()
    ]
    listed = F.from_json(F.lit(json.dumps(table)), shape)
    small = frame.sparkSession.range(1).select(F.inline(listed))
    name_length = F.length(F.substring_index(column(FILE), "/", -1))
    folder = F.substring(column(FILE), F.lit(1), F.length(column(FILE)) - name_length - 1)
    joined = frame.join(F.broadcast(small), folder == small[_FOLDER], "inner")
    return joined.drop(_FOLDER)


def _folder_texts(key: str, root: str, partition: Partition) -> list[str | None]:
    """The values of a file's folders, in one spelling for one value that Spark can cast."""
    folders = key.removeprefix(root).split("/")
    return [
        _canonical(folder.partition("=")[2], wanted.type, wanted.name, key)
        for folder, wanted in zip(folders, partition.keys, strict=False)
    ]


def _canonical(folder: str, key_type: KeyType, name: str, file: str) -> str | None:
    text = hive_unescape(folder)
    try:
        value = parse_value(text, key_type, key=name)
        fits = not isinstance(value, int) or -(2**63) <= value < 2**63
    except ConfigError:
        fits = False
    if not fits:
        raise SourceError(
            f"the folder {name}={folder} has no valid {key_type.value}: {text!r}.",
            where=file,
            fix=f"rename the folder, or set source.types.{name} to the type that it has.",
        )
    if isinstance(value, datetime):
        naive = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
        return naive.isoformat(sep=" ")
    return None if value is None else str(value)


def _check_input(listing: Listing, planned: set[str], spec: StageSpec) -> None:
    listed = {file.key for file in listing.files}
    if listed != planned:
        example = sorted(listed ^ planned)[0]
        raise ConfigError(
            f"Spark and Landfall differ on which files {spec.files!r} means, e.g. {example}.",
            where="source.files",
            fix="use a simple pattern such as *.parquet.",
        )


def key_of(encoded: str) -> str:
    """The key of a file as Spark names it: a URI with escapes."""
    return unquote(urlsplit(encoded).path).removeprefix("/")
