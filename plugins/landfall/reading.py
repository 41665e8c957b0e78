"""Which files an upsert opens, and which of their rows it loads. Decided before Spark starts.

A file that was read to its end and is still the same is never opened again: all of its rows are in
the table, or among the rejects. So the cost of a run depends on what is new, not on the history.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from landfall.dataset import Dataset, Watermark
from landfall.errors import ConfigError
from landfall.listing import Listing, SourceFile
from landfall.manifest import OpenFile, Upsert, Upserted
from landfall.watermark import MarkType, before, minus, parse_span, same_form

if TYPE_CHECKING:
    from landfall.ledger import FileRow
    from landfall.ledger_watermarks import Known
    from landfall.partition import Partition
    from landfall.warehouse.base import Warehouse

_RANGE = ("from", "until")


@dataclass(frozen=True)
class Reading:
    """One run's part of the landing."""

    files: tuple[OpenFile, ...]
    listed: int
    kind: MarkType | None
    watermark: str | None
    """As it is before the run."""
    start: str | None
    late_before: str | None
    until: str | None
    replay: bool
    staged_at: datetime

    def spec_part(self, dataset: Dataset, files_uri: str) -> Upsert:
        """What Spark is told."""
        mark = dataset.upsert
        assert mark is not None
        return Upsert(
            key=tuple(dataset.load.key),
            column=mark.column,
            kind=self.kind,
            overlap=mark.overlap,
            ahead=mark.ahead,
            start=self.start,
            late_before=self.late_before,
            until=self.until,
            replay=self.replay,
            on_null=mark.on_null.value,
            late=mark.late.value,
            deleted=dataset.load.deleted,
            staged_at=self.staged_at.isoformat(timespec="microseconds"),
            files_uri=files_uri,
        )

    def nothing(self, dataset: Dataset) -> Upserted:
        """The manifest's part of a run that opens no file."""
        mark = dataset.upsert
        assert mark is not None
        return Upserted(
            key=tuple(dataset.load.key),
            column=mark.column,
            kind=self.kind,
            start=self.start,
            late_before=self.late_before,
            until=self.until,
            replay=self.replay,
        )


def read_known(warehouse: Warehouse, dataset: Dataset, partition: Partition) -> Known:
    """What the warehouse knows of the pipeline; refuses what the load would refuse anyway."""
    from landfall import ledger, ledger_watermarks
    from landfall.sql import Destination
    from landfall.sql_upsert import Keyed
    from landfall.upsert import refuse_other_key

    mark = dataset.upsert
    assert mark is not None
    to = Destination.parse(dataset.load.destination)
    with warehouse.connect(to.database, read_only=True) as con:
        known = ledger_watermarks.known(con, to, dataset.dataset, partition.label)
        there = ledger.exists(con, to, to.table)
        ledger_watermarks.refuse_other(known.watermark, to, mark.column, None, table_exists=there)
        if there:
            refuse_other_key(con, Keyed(to, tuple(dataset.load.key), mark.column))
    return known


def refuse_range(conf: Mapping[str, Any] | None) -> None:
    """Refuse a range where there is no watermark: it would be passed over in silence."""
    for name in _RANGE:
        if name in (conf or {}):
            raise ConfigError(
                "only datasets with load.mode: upsert can be loaded by a range.",
                where=f"conf.{name}",
                fix='name the partition instead, e.g. {"partition": {"date": "2026-02-11"}}.',
            )


def plan_reading(
    mark: Watermark,
    known: Known,
    listing: Listing,
    conf: Mapping[str, Any] | None,
    staged_at: datetime,
) -> Reading:
    """The range from watermark, dataset file and conf, and the files that hold rows of it.

    `conf.until` caps this run; `conf.from` makes it a replay, which leaves the watermark alone.
    """
    row = known.watermark
    kind = MarkType(row.watermark_type) if row and row.watermark_type else None
    begin, until = _given(mark, conf, kind)
    stored = row.last_watermark if row else None
    start: str | None
    late_before: str | None = None
    if begin is not None:
        files = [
            _replayed(file, known.files.get(file.key), begin, until, kind) for file in listing.files
        ]
        start = begin
    else:
        files = [_new(file, known.files.get(file.key), until, kind) for file in listing.files]
        start = _form(mark.start, kind, "load.watermark.start")
        if stored is not None and kind is not None:
            where = "load.watermark.overlap"
            late_before = minus(stored, parse_span(mark.overlap), kind, where=where)
    return Reading(
        files=tuple(file for file in files if file is not None),
        listed=len(listing.files),
        kind=kind,
        watermark=stored,
        start=start,
        late_before=late_before,
        until=until,
        replay=begin is not None,
        staged_at=staged_at,
    )


def _given(
    mark: Watermark, conf: Mapping[str, Any] | None, kind: MarkType | None
) -> tuple[str | None, str | None]:
    """Where a replay begins, and the cap; the conf wins over the dataset file."""
    given = conf or {}
    for name in _RANGE:
        value = given.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, str | int)):
            raise ConfigError(
                f"{value!r} is not a watermark.",
                where=f"conf.{name}",
                fix='trigger with --conf \'{"from": "2022-11-01", "until": "2022-11-02"}\'.',
            )
    texts = {name: str(given[name]) for name in _RANGE if given.get(name) is not None}
    begin = _form(texts.get("from"), kind, "conf.from")
    # A cap of null in the conf takes the dataset file's away.
    until = _form(texts.get("until"), kind, "conf.until")
    if "until" not in given:
        until = _form(mark.until, kind, "load.watermark.until")
    if (
        begin is not None
        and until is not None
        and kind is not None
        and not before(begin, until, kind)
    ):
        raise ConfigError(
            f"the range from {begin} until {until} is empty.",
            where="conf",
            fix="let until be after from.",
        )
    return begin, until


def _form(text: str | None, kind: MarkType | None, where: str) -> str | None:
    """The text in its one form, once the column's type is known."""
    return text if text is None or kind is None else same_form(text, kind, where=where)


def _same(file: SourceFile, was: FileRow | None) -> bool:
    return was is not None and (was.size, was.etag) == (file.size, file.etag)


def _new(
    file: SourceFile, was: FileRow | None, until: str | None, kind: MarkType | None
) -> OpenFile | None:
    """A file that is new or changed, or that an earlier cap left unfinished."""
    if was is None or not _same(file, was):
        return OpenFile(file.key, file.size, file.etag)
    if was.read_until is None or was.watermark_max is None or kind is None:
        return None
    if before(was.watermark_max, was.read_until, kind):
        return None
    if until is not None and not before(was.read_until, until, kind):
        return None
    ends = (was.watermark_min, was.watermark_max)
    return OpenFile(file.key, file.size, file.etag, True, was.read_until, *ends)


def _replayed(
    file: SourceFile, was: FileRow | None, begin: str, until: str | None, kind: MarkType | None
) -> OpenFile | None:
    """A file that may hold rows of the range."""
    opened = OpenFile(file.key, file.size, file.etag)
    if was is None or not _same(file, was) or kind is None:
        return opened
    if was.watermark_min is None or was.watermark_max is None:
        return None  # no row of it has a watermark
    if before(was.watermark_max, begin, kind):
        return None
    if until is not None and not before(was.watermark_min, until, kind):
        return None
    return opened
