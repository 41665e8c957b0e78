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

from pyspark.sql import DataFrame, SparkSession

from landfall.errors import LandfallError, SourceError, TransientError
from landfall.listing import Listing, list_source, split_uri
from landfall.manifest import Column, Manifest, StagedSource, StageSpec
from landfall.s3_access import S3Access
from landfall.spark import publish, source, transform, upsert
from landfall.spark.counts import Counts
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
        opened = upsert.files_to_open(spark, spec)
        staged_at = datetime.now(UTC)
        listing = _listing(landing, spec, opened)
        source.check_listing(listing, spec)
    except Exception as error:
        raise explain(error, spec) from error

    def look_again() -> None:
        source.check_unchanged(listing, _listing(landing, spec, opened))

    try:
        if spec.upsert is not None:
            manifest = upsert.stage(spark, spec, listing, opened)
        else:
            manifest = _stage(spark, spec, listing, staged_at)
    except Exception as error:
        raise _cause(spark, spec, listing, look_again, error) from error
    before_check()
    try:
        look_again()
        store = Store(spark, split_uri(spec.stage_uri)[0])
        store.write_text(split_uri(spec.manifest_uri)[1].rstrip("/"), manifest.to_json())
    except Exception as error:
        raise explain(error, spec) from error
    return manifest


def _stage(spark: SparkSession, spec: StageSpec, listing: Listing, staged_at: datetime) -> Manifest:
    store = Store(spark, split_uri(spec.stage_uri)[0])
    publish.check_fresh(store, spec)
    read = source.read(spark, spec, listing)
    counts = Counts()
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


def transformed(read: source.Source, spec: StageSpec, counts: Counts) -> DataFrame:
    """The source's rows as they will be staged, counted after every step on their way."""
    frame = counts.of("read", read.frame, read.disagreements)
    frame = frame.drop(*(c for c in frame.columns if c.startswith("__landfall_differs_")))
    frame = counts.of("kept", transform.keep_rows(frame, spec.filter))
    frame = counts.of("unique", transform.keep_latest(frame, spec.deduplicate))
    keys = [key.name for key in spec.partition.keys]
    return counts.of("staged", transform.choose_columns(frame, spec.select, keys))


def _listing(landing: Store, spec: StageSpec, opened: upsert.Opened) -> Listing:
    """The partition's files; of an upsert those that it opens, as they were when it was planned."""
    found = list_source(landing, spec.source_uri, spec.partition, spec.files)
    return found if spec.upsert is None else upsert.narrowed(found, opened)


def _cause(
    spark: SparkSession,
    spec: StageSpec,
    listing: Listing,
    look_again: Callable[[], None],
    error: Exception,
) -> LandfallError:
    """The error to report: a source that changed meanwhile explains whatever came of it."""
    found = explain(error, spec, listing.files)
    if isinstance(found, SourceError) or type(found) is TransientError:
        try:
            look_again()
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
