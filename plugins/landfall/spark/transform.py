"""Filter, deduplicate, select: pure functions from DataFrame to DataFrame, in that order.

Filter and deduplicate speak of the source's columns; select comes last and names the output's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import BooleanType

from landfall.errors import ConfigError
from landfall.manifest import Deduplicate

# The source file of each row, for as long as a tie may need it. Not part of the output.
FILE = "__landfall_file"
# When that file was written.
MODIFIED = "__landfall_modified"
_RANK = "__landfall_rank"


def column(name: str) -> Column:
    """A top-level column by its exact name, whatever characters it has."""
    return F.col(quoted(name))


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def keep_rows(frame: DataFrame, expression: str | None) -> DataFrame:
    """The rows for which the expression is true; NULL is not true."""
    if expression is None:
        return frame
    return frame.filter(condition(frame, expression, where="transform.filter"))


def condition(frame: DataFrame, expression: str, *, where: str) -> Column:
    """The expression over the frame's columns, if it gives true or false for each row."""
    try:
        typed = frame.select(F.expr(expression)).schema.fields
        if len(typed) != 1 or not isinstance(typed[0].dataType, BooleanType):
            kind = typed[0].dataType.simpleString() if len(typed) == 1 else "several columns"
            raise ConfigError(
                f"{expression!r} gives {kind}, not true or false.",
                where=where,
                fix="write a condition, e.g. status <> 'void'.",
            )
        frame.filter(F.expr(expression))  # which refuses aggregates
    except AnalysisException as error:
        raise _refused(frame, expression, where, error) from error
    return F.expr(expression)


def keep_latest(frame: DataFrame, wanted: Deduplicate | None) -> DataFrame:
    """One row for each key: the latest, and of equally late ones the same at every run.

    NULL keys are one key. Rows without a `latest_by` value come last.
    """
    if wanted is None:
        return frame
    for place, name in [
        *(("key", key) for key in wanted.key),
        *([("latest_by", wanted.latest_by)] if wanted.latest_by else []),
    ]:
        if name not in visible(frame):
            raise ConfigError(
                f"there is no column {name!r} in the source. {_columns_hint(frame, name)}",
                where=f"transform.deduplicate.{place}",
                fix="name a column of the source files or a partition key.",
            )
    order = [column(wanted.latest_by).desc_nulls_last()] if wanted.latest_by else []
    order += [F.xxhash64(_row_text(frame)), column(FILE)]
    ranked = Window.partitionBy(*map(column, wanted.key)).orderBy(*order)
    try:
        numbered = frame.withColumn(_RANK, F.row_number().over(ranked))
        return numbered.filter(column(_RANK) == 1).drop(_RANK)
    except AnalysisException as error:
        raise ConfigError(
            f"rows cannot be compared by these columns: {reason(error)}",
            where="transform.deduplicate",
            fix="use columns of simple types (no maps) for key and latest_by.",
        ) from error


def choose_columns(
    frame: DataFrame,
    select: Mapping[str, str] | None,
    keys: Sequence[str],
    also: Sequence[Column] = (),
) -> DataFrame:
    """The output's columns: all of the source's, or those of `select` and the partition keys.

    The keys are always there, so that the rows of a partition can be replaced. `also` are columns
    of Landfall's own, at the end.
    """
    if select is None:
        return frame.select(*map(column, visible(frame)), *also)
    chosen: list[Column] = []
    for name, expression in select.items():
        where = f"transform.select.{name}"
        same_key = next((key for key in keys if key.lower() == name.lower()), None)
        if same_key is not None and expression.strip() not in (same_key, quoted(same_key)):
            raise ConfigError(
                f"{expression!r} would redefine the partition key {same_key!r}.",
                where=where,
                fix="give the column another name; the partition keys are added as they are.",
            )
        try:
            fields = frame.select(F.expr(expression).alias(name)).schema.fields
        except AnalysisException as error:
            raise _refused(frame, expression, where, error) from error
        if len(fields) != 1:
            raise ConfigError(
                f"{expression!r} gives {len(fields)} columns.",
                where=where,
                fix="write one expression for one column.",
            )
        chosen.append(F.expr(expression).alias(name))
    named = {name.lower() for name in select}
    chosen += [column(key) for key in keys if key.lower() not in named]
    try:
        return frame.select(*chosen, *also)
    except AnalysisException as error:
        raise ConfigError(
            f"the expressions do not go together: {reason(error)}",
            where="transform.select",
            fix="use expressions that give one value for each row.",
        ) from error


def visible(frame: DataFrame) -> list[str]:
    """The columns that a dataset file may name."""
    return [name for name in frame.columns if name not in (FILE, MODIFIED)]


def reason(error: AnalysisException) -> str:
    """Spark's message without its hints and plans: the first sentence after the condition."""
    text = str(error).strip().partition("\n")[0]
    text = re.sub(r"^\[[A-Z0-9_.]+\]\s*", "", text)
    text = re.sub(r"\s*SQLSTATE: \w+.*$", "", text)
    text = re.sub(r"\s*Did you mean one of the following\?.*$", "", text)
    return text if text.endswith(".") else f"{text}."


def _refused(
    frame: DataFrame, expression: str, where: str, error: AnalysisException
) -> ConfigError:
    missing = (error.getMessageParameters() or {}).get("objectName", "").strip("`")
    return ConfigError(
        f"{expression!r} cannot be used: {reason(error)} {_columns_hint(frame, missing)}",
        where=where,
        fix="correct the expression; it is Spark SQL over the source's columns.",
    )


def _columns_hint(frame: DataFrame, missing: str) -> str:
    columns = visible(frame)
    by_lower = {name.lower(): name for name in columns}
    close = get_close_matches(missing.lower(), by_lower, n=1)
    meant = f"Did you mean {by_lower[close[0]]!r}? " if missing and close else ""
    return f"{meant}The columns are: {', '.join(columns)}."


def _row_text(frame: DataFrame) -> Column:
    return row_text(visible(frame))


def row_text(names: Sequence[str]) -> Column:
    """These columns of a row as text. A hash of the columns themselves would refuse maps."""
    whole = F.struct(*map(column, names))
    every_digit = {
        "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
        "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    }
    return F.to_json(whole, every_digit)
