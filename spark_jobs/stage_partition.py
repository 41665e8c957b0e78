"""Stages one partition: S3 landing -> filtered, deduplicated, compacted Parquet -> manifest.

Its one argument is the JSON of a StageSpec; how S3 is reached comes from the environment. The last
line on stdout says what was staged, or what went wrong.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from landfall.errors import ConfigError, LandfallError, SourceError, TransientError
from landfall.listing import Listing, list_source, split_uri
from landfall.manifest import Column, Manifest, StagedSource, StageSpec
from landfall.s3_access import S3Access
from landfall.spark import publish, source, transform
from landfall.spark.failures import explain
from landfall.spark.incompatible import find_incompatible
from landfall.spark.session import access_from, configure, start_session
from landfall.spark.store import Store


def run(
    spark: SparkSession,
    spec: StageSpec,
    access: Mapping[str, S3Access],
    *,
    before_check: Callable[[], None] = lambda: None,
) -> Manifest:
    """Stages the partition and returns the manifest that it published.

    `before_check` is called when the data is written and the source not yet looked at again.
    """
    try:
        configure(spark, access)
        landing = Store(spark, split_uri(spec.source_uri)[0])
        staged_at = datetime.now(UTC)
        listing = _listing(landing, spec)
        source.check_listing(listing, spec)
    except Exception as error:
        raise explain(error, spec) from error
    try:
        manifest = _stage(spark, spec, listing, staged_at)
    except Exception as error:
        raise _cause(spark, spec, landing, listing, error) from error
    before_check()
    try:
        source.check_unchanged(listing, _listing(landing, spec))
        store = Store(spark, split_uri(spec.stage_uri)[0])
        store.write_text(split_uri(spec.manifest_uri)[1].rstrip("/"), manifest.to_json())
    except Exception as error:
        raise explain(error, spec) from error
    return manifest


def _stage(spark: SparkSession, spec: StageSpec, listing: Listing, staged_at: datetime) -> Manifest:
    store = Store(spark, split_uri(spec.stage_uri)[0])
    publish.check_fresh(store, spec)
    read = source.read(spark, spec, listing)
    counts = _Counts()
    output = transformed(read, spec, counts)
    rows = source.rows_by_file(read.plain)
    publish.write(output, spec, listing.bytes)
    committer = publish.committer_of(store, spec)
    counts.check_keys(read)
    staged = publish.staged_files(spark, store, spec)
    read_rows, kept, unique = counts.check(
        sum(rows.values()), sum(file.rows for file in staged), spec
    )
    return Manifest(
        dataset=spec.dataset,
        partition=spec.partition,
        dag_run_id=spec.dag_run_id,
        attempt=spec.attempt,
        # When the source was looked at: an older look never replaces a newer one.
        staged_at=staged_at.isoformat(timespec="microseconds"),
        source_uri=spec.source_uri,
        sources=tuple(
            StagedSource(f.key, f.size, f.etag, rows.get(f.key, 0)) for f in listing.files
        ),
        staged=staged,
        rows_read=read_rows,
        rows_filtered=read_rows - kept,
        rows_deduplicated=kept - unique,
        rows_rejected=0,
        rows_staged=unique,
        columns=tuple(Column(f.name, f.dataType.simpleString()) for f in output.schema.fields),
        config_hash=spec.config_hash,
        committer=committer,
    ).check()


def transformed(read: source.Source, spec: StageSpec, counts: _Counts) -> DataFrame:
    """The source's rows as they will be staged, counted after every step on their way."""
    frame = counts.of("read", read.frame, read.disagreements)
    frame = frame.drop(*(c for c in frame.columns if c.startswith("__landfall_differs_")))
    frame = counts.of("kept", transform.keep_rows(frame, spec.filter))
    frame = counts.of("unique", transform.keep_latest(frame, spec.deduplicate))
    keys = [key.name for key in spec.partition.keys]
    return counts.of("staged", transform.choose_columns(frame, spec.select, keys))


class _Counts:
    """Row counts taken in the pass that writes, by name."""

    def __init__(self) -> None:
        self._observations: dict[str, Observation] = {}

    def of(
        self, name: str, frame: DataFrame, examples: Mapping[str, Any] | None = None
    ) -> DataFrame:
        self._observations[name] = Observation()
        measured = [F.min(value).alias(f"differs_{key}") for key, value in (examples or {}).items()]
        return frame.observe(self._observations[name], F.count(F.lit(1)).alias("rows"), *measured)

    def _value(self, name: str) -> dict[str, Any]:
        observation = self._observations[name]
        java: Any = observation._jo
        # Python's side cannot take the empty row of a step that is not in the plan any more.
        return observation.get if java.getRow().length() else {}

    def check_keys(self, read: source.Source) -> None:
        """Refuse a source where a file contradicts its path."""
        for key in read.disagreements:
            example = self._value("read").get(f"differs_{key}")
            if example is not None:
                raise source.disagreement(key, example)

    def check(self, in_sources: int, in_stage: int, spec: StageSpec) -> tuple[int, int, int]:
        """Rows read, kept by the filter and left by deduplication, if all of them add up.

        A step that Spark proved empty while planning (a filter that is never true) is not in
        the plan any more and counts nothing: what its footers say is then what was read.
        """
        read = self._value("read").get("rows", in_sources)
        kept = self._value("kept").get("rows", 0)
        unique = self._value("unique").get("rows", 0)
        if unique != self._value("staged").get("rows", 0) and spec.select is not None:
            raise ConfigError(
                "the expressions do not give one row for each row.",
                where="transform.select",
                fix="use no aggregates and nothing that multiplies rows, such as explode.",
            )
        if read != in_sources or unique != in_stage:
            raise TransientError(
                f"counted {read} rows read and {unique} staged, but the files hold {in_sources} "
                f"and {in_stage}.",
                where=spec.attempt_uri,
                fix="Spark repeated a part of the job; the next try starts anew.",
            )
        return int(read), int(kept), int(unique)


def _listing(landing: Store, spec: StageSpec) -> Listing:
    return list_source(landing, spec.source_uri, spec.partition, spec.files)


def _cause(
    spark: SparkSession, spec: StageSpec, landing: Store, listing: Listing, error: Exception
) -> LandfallError:
    """The error to report: a source that changed meanwhile explains whatever came of it."""
    found = explain(error, spec, listing.files)
    if isinstance(found, SourceError) or type(found) is TransientError:
        try:
            source.check_unchanged(listing, _listing(landing, spec))
            if not isinstance(error, LandfallError):
                find_incompatible(spark, spec, listing.files)
        except Exception as better:
            return explain(better, spec, listing.files)
    return found


def redacted(text: str, access: Mapping[str, S3Access]) -> str:
    for how in access.values():
        for secret in how.secrets:
            text = text.replace(secret, "***")
    return text


def main(argv: list[str], env: Mapping[str, str] = os.environ) -> int:
    access: Mapping[str, S3Access] = {}
    # It would print every error's Java stack before the error itself is reported.
    logging.getLogger("DataFrameQueryContextLogger").disabled = True
    try:
        spec = StageSpec.from_json(argv[0])
        access = access_from(env, spec)
        spark = start_session(f"landfall {spec.dataset} {spec.partition.label}")
        spark.sparkContext.setLogLevel("ERROR")
        manifest = run(spark, spec, access)
    except Exception as error:
        failure = (
            error
            if isinstance(error, LandfallError)
            else TransientError(f"the Spark job did not start: {type(error).__name__}: {error}")
        )
        if type(failure) is TransientError:  # nobody foresaw it: the log needs all of it
            print(redacted(traceback.format_exc(), access), file=sys.stderr, flush=True)
        print(f"landfall-error: {redacted(json.dumps(failure.to_json()), access)}", flush=True)
        return 1
    print(
        f"landfall-staged: {spec.manifest_uri} rows={manifest.rows_staged} "
        f"files={len(manifest.staged)}",
        flush=True,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
