"""The watermark column as Spark sees it: its type, the range, and the ends of each file."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    DataType,
    DateType,
    DecimalType,
    IntegralType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from landfall.errors import ConfigError, ContractError
from landfall.manifest import StageSpec
from landfall.spark.source import key_of
from landfall.spark.transform import FILE, column, reason, visible
from landfall.watermark import MarkType, check_span, furthest, parse_span, same_form


@dataclass(frozen=True)
class Marks:
    """The watermark as an expression over the source's columns, and the range, in one form."""

    expression: Column
    kind: MarkType
    spark_type: str
    start: str | None
    late_before: str | None
    until: str | None
    ahead: str | None
    replay: bool

    def form(self, text: str) -> str:
        return same_form(text, self.kind, where="watermark")

    def value(self, text: str) -> Column:
        return F.lit(text).cast(self.spark_type)

    def in_range(self, read_until: str | None, *, known: bool) -> Column:
        """True for the rows of this run. What a known file had below its end is loaded already."""
        mark = self.expression
        inside = F.lit(True)
        for least in (self.start, read_until if known else None):
            if least is not None:
                inside = inside & (mark >= self.value(least))
        if self.until is not None:
            inside = inside & (mark < self.value(self.until))
        if known or self.replay:
            return inside & mark.isNotNull()
        return inside | mark.isNull()

    def is_late(self, mark: Column) -> Column:
        if self.late_before is None:
            return F.lit(False)
        return F.coalesce(mark < self.value(self.late_before), F.lit(False))

    def is_ahead(self, mark: Column) -> Column:
        return F.lit(False) if self.ahead is None else mark > self.value(self.ahead)

    def by_file(self, frame: DataFrame) -> dict[str, tuple[int, str | None, str | None]]:
        """Rows, least and greatest watermark of each file, by its key."""
        ends = frame.select(column(FILE), self.expression.alias("mark"))
        measured = ends.groupBy(FILE).agg(
            F.count(F.lit(1)), F.min("mark").cast("string"), F.max("mark").cast("string")
        )
        return {
            key_of(row[0]): (
                int(row[1]),
                None if row[2] is None else self.form(row[2]),
                None if row[3] is None else self.form(row[3]),
            )
            for row in measured.collect()
        }


def marks_of(frame: DataFrame, spec: StageSpec) -> Marks:
    """The watermark of the spec over this source; refuses a column that cannot be one."""
    part = spec.upsert
    assert part is not None
    where = "load.watermark.column"
    selected = (spec.select or {}).get(part.column)
    if selected is None and part.column not in visible(frame):
        raise ConfigError(
            f"there is no column {part.column!r}. The columns are: {', '.join(visible(frame))}.",
            where=where,
            fix="name a column of the source files, a partition key or a column of "
            "transform.select.",
        )
    expression = column(part.column) if selected is None else F.expr(selected)
    try:
        data_type = frame.select(expression).schema.fields[0].dataType
    except AnalysisException as error:
        raise ConfigError(
            f"{selected!r} cannot be used: {reason(error)}",
            where=f"transform.select.{part.column}",
            fix="correct the expression; it is Spark SQL over the source's columns.",
        ) from error
    kind = _kind(data_type)
    if kind is None:
        raise ConfigError(
            f"{part.column!r} is {data_type.simpleString()}, which cannot be a watermark.",
            where=where,
            fix="use a timestamp, a date, an integer or a string; cast it with transform.select.",
        )
    if part.kind is not None and part.kind != kind.value:
        raise ContractError(
            f"the watermark column {part.column!r} is {kind.value}, but the stored one is "
            f"{part.kind}.",
            where=where,
            fix=f"cast it with transform.select to {part.kind}, or delete the pipeline's row in "
            "ingestion_watermarks to load everything anew.",
        )
    check_span(parse_span(part.overlap), kind, where="load.watermark.overlap")
    now = datetime.fromisoformat(part.staged_at)

    def form(text: str | None, place: str) -> str | None:
        return None if text is None else same_form(text, kind, where=place)

    return Marks(
        expression=expression,
        kind=kind,
        spark_type="bigint" if isinstance(data_type, IntegralType) else data_type.simpleString(),
        start=form(part.start, "conf.from" if part.replay else "load.watermark.start"),
        late_before=form(part.late_before, "watermark"),
        until=form(part.until, "until"),
        ahead=None if part.ahead is None else furthest(now, parse_span(part.ahead), kind),
        replay=part.replay,
    )


def _kind(data_type: DataType) -> MarkType | None:
    if isinstance(data_type, DecimalType):
        return MarkType.INTEGER if data_type.scale == 0 else None
    for spark_type, kind in (
        (TimestampNTZType, MarkType.TIMESTAMP),
        (TimestampType, MarkType.TIMESTAMPTZ),
        (DateType, MarkType.DATE),
        (IntegralType, MarkType.INTEGER),
        (StringType, MarkType.STRING),
    ):
        if isinstance(data_type, spark_type):
            return kind
    return None
