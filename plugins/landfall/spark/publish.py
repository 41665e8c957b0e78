"""Write the stage in few files, make sure of its committer, and say what is there."""

from __future__ import annotations

import json
from math import ceil

from pyspark.sql import DataFrame, SparkSession

from landfall.errors import ManifestError
from landfall.listing import split_uri
from landfall.manifest import StagedFile, StageSpec
from landfall.spark.failures import committer_missing
from landfall.spark.session import COMMITTER
from landfall.spark.source import rows_by_file
from landfall.spark.store import Store, s3a

# What one task of Spark reads by default: fewer, larger ones would leave cores idle.
_TASK_BYTES = 128 * 1024 * 1024


def data_uri(spec: StageSpec) -> str:
    return f"{spec.attempt_uri}/data"


def check_fresh(store: Store, spec: StageSpec) -> None:
    """Refuse to write where another attempt has written."""
    if any(store.exists(split_uri(uri)[1]) for uri in (data_uri(spec), spec.manifest_uri)):
        raise ManifestError(
            f"the prefix of attempt {spec.attempt} is not empty.",
            where=spec.attempt_uri,
            fix="clear stage_partition: each try writes under a prefix of its own.",
        )


def write(frame: DataFrame, spec: StageSpec, source_bytes: int, *, by: str | None = None) -> None:
    """One pass over the data. The source's bytes are the estimate of what comes out at most.

    `by` names a column: rows with each of its values go to files of their own.
    """
    files = max(1, ceil(source_bytes / spec.target_file_bytes))
    tasks = ceil(source_bytes / _TASK_BYTES)
    # Joining tasks costs no shuffle, and only where files are to be much larger than what a task
    # reads would it leave too few of them.
    compact = frame.repartition(files) if tasks > 2 * files else frame.coalesce(files)
    writer = compact.write.mode("errorifexists").option("compression", "zstd")
    (writer.partitionBy(by) if by else writer).parquet(s3a(data_uri(spec)))


def committer_of(store: Store, spec: StageSpec) -> str:
    """The committer that wrote the stage, by its own word; any but the magic one is an error."""
    text = store.read_text(f"{split_uri(data_uri(spec))[1]}_SUCCESS")
    try:
        committer = str(json.loads(text)["committer"])
    except (ValueError, KeyError, TypeError):
        raise committer_missing("its _SUCCESS names no committer") from None
    if committer != COMMITTER:
        raise committer_missing(f"its _SUCCESS names {committer!r}")
    return committer


def staged_files(spark: SparkSession, store: Store, spec: StageSpec) -> tuple[StagedFile, ...]:
    """The stage's files that hold rows, with the rows of their footers."""
    prefix = split_uri(data_uri(spec))[1]
    found = [f for f in store.files(prefix) if not f.name.startswith(("_", "."))]
    if not found:
        return ()
    rows = rows_by_file(spark.read.parquet(s3a(data_uri(spec))))
    return tuple(
        StagedFile(f"s3://{store.bucket}/{file.key}", rows[file.key], file.size)
        for file in sorted(found)
        if rows.get(file.key)
    )
