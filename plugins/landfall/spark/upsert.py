"""Stages an upsert: the rows of the range, the newest of each key, deletions and rejects apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812

from landfall.errors import ConfigError, ContractError, SourceChanged, TransientError
from landfall.listing import Listing, SourceFile, split_uri
from landfall.manifest import (
    HIDDEN,
    Manifest,
    OpenFile,
    StagedFile,
    StagedSource,
    StageSpec,
    Upsert,
    Upserted,
    files_from_json,
)
from landfall.manifest import Column as StagedColumn
from landfall.spark import publish, source
from landfall.spark.counts import Counts
from landfall.spark.marks import Marks, marks_of
from landfall.spark.store import Store
from landfall.spark.transform import (
    FILE,
    MODIFIED,
    choose_columns,
    column,
    condition,
    keep_rows,
    row_text,
)

Opened = Mapping[str, OpenFile]

_KIND = f"{HIDDEN}kind"
_GONE = f"{HIDDEN}gone"
_REASON = f"{HIDDEN}reason"
_ROW = f"{HIDDEN}row"
_RANK = f"{HIDDEN}rank"


def files_to_open(spark: SparkSession, spec: StageSpec) -> Opened:
    """By key: the files that were chosen before Spark started; none if it is no upsert."""
    if spec.upsert is None:
        return {}
    bucket, key = split_uri(spec.upsert.files_uri)
    files = files_from_json(Store(spark, bucket).read_text(key.rstrip("/")))
    return {file.key: file for file in files}


def narrowed(listing: Listing, opened: Opened) -> Listing:
    """The files to open, if they still are what they were when they were chosen."""
    files = tuple(file for file in listing.files if file.key in opened)
    there = {file.key: (file.size, file.etag) for file in files}
    for key, chosen in opened.items():
        if there.get(key) != (chosen.size, chosen.etag):
            how = "changed" if key in there else "vanished"
            raise SourceChanged(
                f"{key} {how} since the run looked at the landing.",
                fix="the next try reads the source as it is then; let the writer finish first.",
            )
    whole = listing.whole and len(files) == len(listing.files)
    folders = tuple(dict.fromkeys(file.key[: -len(file.name)] for file in files))
    return Listing(folders, files, listing.others, whole=whole)


@dataclass(frozen=True)
class _Group:
    """Files whose rows are read from one watermark on; those that are new from the beginning."""

    read: source.Source
    files: tuple[SourceFile, ...]
    known: bool
    read_until: str | None


def stage(spark: SparkSession, spec: StageSpec, listing: Listing, opened: Opened) -> Manifest:
    part = spec.upsert
    assert part is not None
    store = Store(spark, split_uri(spec.stage_uri)[0])
    publish.check_fresh(store, spec)
    groups = _groups(spark, spec, listing, opened)
    marks = marks_of(groups[0].read.frame, spec)
    sources = [one for group in groups for one in _sources(group, marks, opened)]
    counts = Counts()
    frames = [_in_range(group, marks, spec, counts, n) for n, group in enumerate(groups)]
    united = frames[0]
    for frame in frames[1:]:
        united = united.unionByName(frame)
    names = [name for name in united.columns if not name.startswith(HIDDEN)]
    _refuse_missing(names, part)
    output = _newest(_judged(united, names, marks, part, counts), names, part)
    publish.write(_tidied(output, names, part), spec, listing.bytes, by=_KIND)
    committer = publish.committer_of(store, spec)
    for n, group in enumerate(groups):
        counts.check_keys(group.read, f"read{n}")
    observed = counts.value("judged")
    _refuse_rows(observed, part, marks)
    staged = publish.staged_files(spark, store, spec)
    rows, deletes, rejects = (_of_kind(staged, kind) for kind in ("rows", "deletes", "rejects"))
    numbers = _numbers(counts, len(groups), sum(s.rows for s in sources), (rows, deletes, rejects))
    reached = observed.get("reached")
    return Manifest(
        dataset=spec.dataset,
        partition=spec.partition,
        dag_run_id=spec.dag_run_id,
        attempt=spec.attempt,
        staged_at=part.staged_at,
        source_uri=spec.source_uri,
        sources=tuple(sources),
        staged=rows,
        rows_read=numbers["read"],
        rows_filtered=numbers["filtered"],
        rows_deduplicated=numbers["deduplicated"],
        rows_rejected=numbers["rejects"],
        rows_staged=numbers["rows"],
        columns=tuple(
            StagedColumn(name, united.schema[name].dataType.simpleString()) for name in names
        ),
        config_hash=spec.config_hash,
        committer=committer,
        upsert=Upserted(
            key=part.key,
            column=part.column,
            kind=marks.kind.value,
            start=marks.start,
            late_before=marks.late_before,
            until=marks.until,
            replay=part.replay,
            reached=marks.form(reached) if reached is not None else None,
            rows_outside=numbers["outside"],
            rows_late=observed.get("late", 0),
            deletes=deletes,
            rejects=rejects,
        ),
    ).check()


def _groups(spark: SparkSession, spec: StageSpec, listing: Listing, opened: Opened) -> list[_Group]:
    """One frame for each watermark that known files are read from, all with one schema."""
    by_end: dict[tuple[bool, str | None], list[SourceFile]] = {}
    for file in listing.files:
        was = opened[file.key]
        by_end.setdefault((was.known, was.read_until), []).append(file)
    every = source.read(spark, spec, listing)
    if len(by_end) == 1:
        (known, read_until) = next(iter(by_end))
        return [_Group(every, listing.files, known, read_until)]
    return [
        _Group(
            source.read(
                spark,
                spec,
                Listing(listing.folders, tuple(files), (), whole=False),
                every.plain.schema,
            ),
            tuple(files),
            known,
            read_until,
        )
        for (known, read_until), files in by_end.items()
    ]


def _sources(group: _Group, marks: Marks, opened: Opened) -> list[StagedSource]:
    """The group's files with their rows and ends. Of new files, one column is read for it."""
    ends: dict[str, tuple[str | None, str | None]]
    if group.known or marks.replay:
        rows = source.rows_by_file(group.read.plain)
        ends = {k: (f.watermark_min, f.watermark_max) for k, f in opened.items()}
    else:
        measured = marks.by_file(group.read.frame)
        rows = {key: found[0] for key, found in measured.items()}
        ends = {key: found[1:] for key, found in measured.items()}
    return [
        StagedSource(
            *(file.key, file.size, file.etag, rows.get(file.key, 0)),
            *ends.get(file.key, (None, None)),
            read_until=marks.until,
        )
        for file in group.files
    ]


def _in_range(
    group: _Group, marks: Marks, spec: StageSpec, counts: Counts, number: int
) -> DataFrame:
    """The group's rows of the range, filtered and selected, with Landfall's own columns."""
    part = spec.upsert
    assert part is not None
    frame = group.read.frame
    # Nothing stands between this filter and the files: row groups out of range are not read.
    frame = frame.filter(marks.in_range(group.read_until, known=group.known))
    frame = counts.of(f"read{number}", frame, group.read.disagreements)
    frame = frame.drop(*(c for c in frame.columns if c.startswith(f"{HIDDEN}differs_")))
    frame = counts.of(f"kept{number}", keep_rows(frame, spec.filter))
    gone: Column = F.lit(False)
    if part.deleted is not None:
        gone = F.coalesce(condition(frame, part.deleted, where="load.deleted"), F.lit(False))
    keys = [key.name for key in spec.partition.keys]
    also = (column(FILE), column(MODIFIED), gone.alias(_GONE))
    return choose_columns(frame, spec.select, keys, also)


def _refuse_missing(names: Sequence[str], part: Upsert) -> None:
    for place, name in [*(("key", key) for key in part.key), ("watermark.column", part.column)]:
        if name not in names:
            raise ConfigError(
                f"there is no column {name!r}. The columns are: {', '.join(names)}.",
                where=f"load.{place}",
                fix="name a column of the source files or of transform.select.",
            )


def _judged(
    frame: DataFrame, names: Sequence[str], marks: Marks, part: Upsert, counts: Counts
) -> DataFrame:
    """Each row with the reason why it is rejected, if it is; counted, with examples."""
    mark = column(part.column)
    late = marks.is_late(mark)
    no_mark = mark.isNull()
    reason = F.lit(None).cast("string")
    if part.late == "reject" and marks.late_before is not None:
        said = F.concat(
            F.lit(f"late: {part.column} is "),
            mark.cast("string"),
            F.lit(f", before {marks.late_before}"),
        )
        reason = F.when(late, said).otherwise(reason)
    if part.on_null == "reject":
        reason = F.when(no_mark, F.lit(f"no watermark: {part.column} is NULL")).otherwise(reason)
    judged = frame.withColumn(_REASON, reason)
    loaded = column(_REASON).isNull()
    no_key = F.lit(False)
    for key in part.key:
        no_key = no_key | column(key).isNull()
    ahead = F.coalesce(marks.is_ahead(mark), F.lit(False))
    text = F.concat(row_text(names), F.lit(" in "), column(FILE))
    bad = {
        "no_key": loaded & no_key,
        "no_mark": no_mark if part.on_null == "fail" else F.lit(False),
        "ahead": loaded & ahead,
    }
    measured = {
        "late": F.count_if(late),
        "reached": F.max(F.when(loaded, mark)).cast("string"),
        **{name: F.count_if(broken) for name, broken in bad.items()},
        **{f"{name}_row": F.min(F.when(broken, text)) for name, broken in bad.items()},
    }
    return counts.measured("judged", judged, measured)


def _newest(frame: DataFrame, names: Sequence[str], part: Upsert) -> DataFrame:
    """Of each key the newest row; of equally new ones that of the file written last, then by name,
    a deletion first, and the same one every time. Rejected rows all stay."""
    rejected = column(_REASON).isNotNull()
    order = [
        column(part.column).desc_nulls_last(),
        column(MODIFIED).desc(),
        column(FILE).desc(),
        column(_GONE).desc(),
        F.xxhash64(row_text(names)),
    ]
    ranked = Window.partitionBy(*map(column, part.key), rejected).orderBy(*order)
    numbered = frame.withColumn(_RANK, F.row_number().over(ranked))
    return numbered.filter(rejected | (column(_RANK) == 1))


def _tidied(frame: DataFrame, names: Sequence[str], part: Upsert) -> DataFrame:
    """What is written: the output's columns, and for rejects the row as text."""
    kind = F.when(column(_REASON).isNotNull(), "rejects").when(column(_GONE), "deletes")
    chosen = [*map(column, names), kind.otherwise("rows").alias(_KIND)]
    if "reject" in (part.late, part.on_null):
        text = F.when(column(_REASON).isNotNull(), row_text(names))
        chosen += [column(_REASON), column(FILE), text.alias(_ROW)]
    return frame.select(*chosen)


def _of_kind(staged: Sequence[StagedFile], kind: str) -> tuple[StagedFile, ...]:
    return tuple(file for file in staged if f"/{_KIND}={kind}/" in file.uri)


def _numbers(
    counts: Counts, groups: int, total: int, staged: Sequence[Sequence[StagedFile]]
) -> dict[str, int]:
    """Where every row of the opened files went."""
    found = {
        name: sum(int(counts.value(f"{name}{n}").get("rows", 0)) for n in range(groups))
        for name in ("read", "kept")
    }
    judged = int(counts.value("judged").get("rows", 0))
    rows, deletes, rejects = (sum(file.rows for file in files) for files in staged)
    if judged != found["kept"]:
        raise ConfigError(
            "the expressions do not give one row for each row.",
            where="transform.select",
            fix="use no aggregates and nothing that multiplies rows, such as explode.",
        )
    numbers = {
        "read": total,
        "outside": total - found["read"],
        "filtered": found["read"] - found["kept"],
        "deduplicated": judged - rows - deletes - rejects,
        "rows": rows,
        "rejects": rejects,
    }
    if min(numbers.values()) < 0:
        raise TransientError(
            f"counted {found['read']} rows of {total} in range and {judged} to stage, but the "
            f"files hold {rows + deletes + rejects}.",
            fix="Spark repeated a part of the job; the next try starts anew.",
        )
    return numbers


def _refuse_rows(observed: Mapping[str, Any], part: Upsert, marks: Marks) -> None:
    broken = {
        "no_key": f"have no key ({', '.join(part.key)})",
        "no_mark": f"have no watermark ({part.column} is NULL)",
        "ahead": f"have a watermark in the future ({part.column} is after {marks.ahead})",
    }
    fixes = {
        "no_key": "choose a key that is never NULL",
        "no_mark": "set load.watermark.on_null to load or reject",
        "ahead": "correct the source's clock, raise load.watermark.ahead",
    }
    for name, what in broken.items():
        if observed.get(name):
            raise ContractError(
                f"{observed[name]} rows {what}, for example {observed[f'{name}_row']}.",
                where=f"load.{'key' if name == 'no_key' else 'watermark'}",
                fix=f"{fixes[name]}, or leave the rows out with transform.filter.",
            )
