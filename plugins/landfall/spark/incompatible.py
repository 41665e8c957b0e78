"""Which files of a partition do not go together, found after Spark has refused to merge them."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession

from landfall.errors import SourceError
from landfall.listing import SourceFile, split_uri
from landfall.manifest import StageSpec
from landfall.spark.failures import explain
from landfall.spark.transform import column


def find_incompatible(spark: SparkSession, spec: StageSpec, files: Sequence[SourceFile]) -> None:
    """Raises the error that names the column, both types and a file each, if there is one.

    A file that cannot be read by itself is named as well.

    Reads one footer after the other: only for an attempt that has failed already.
    """
    bucket = split_uri(spec.source_uri)[0]
    first: dict[str, tuple[DataFrame, str, str]] = {}
    for file in files:
        try:
            path = f"s3a://{bucket}/{file.key}"
            frame = spark.read.option("__globPaths__", "false").parquet(path)
        except Exception as error:
            raise explain(error, spec, [file]) from error
        for field in frame.schema.fields:
            here = frame.select(column(field.name))
            kind = field.dataType.simpleString()
            other = first.setdefault(field.name, (here, kind, file.key))
            if other[1] != kind and not _mergeable(other[0], here):
                raise SourceError(
                    f"the column {field.name!r} is {other[1]} in {other[2]}, but {kind} in "
                    f"{file.key}.",
                    where=spec.source_uri,
                    fix="land the files with one type for the column.",
                )


def _mergeable(left: DataFrame, right: DataFrame) -> bool:
    try:
        left._jdf.schema().merge(right._jdf.schema(), True)
    except Exception:
        return False
    return True
