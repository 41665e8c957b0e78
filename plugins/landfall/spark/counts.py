"""Rows counted on their way, in the pass that writes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812

from landfall.errors import ConfigError, TransientError
from landfall.manifest import StageSpec
from landfall.spark import source


class Counts:
    """Row counts taken in the pass that writes, by name."""

    def __init__(self) -> None:
        self._observations: dict[str, Observation] = {}

    def of(
        self, name: str, frame: DataFrame, examples: Mapping[str, Any] | None = None
    ) -> DataFrame:
        differs = {f"differs_{key}": F.min(value) for key, value in (examples or {}).items()}
        return self.measured(name, frame, differs)

    def measured(self, name: str, frame: DataFrame, measures: Mapping[str, Column]) -> DataFrame:
        """The frame, whose `rows` and these aggregates are known once it is written."""
        self._observations[name] = Observation()
        wanted = [value.alias(key) for key, value in measures.items()]
        return frame.observe(self._observations[name], F.count(F.lit(1)).alias("rows"), *wanted)

    def value(self, name: str) -> dict[str, Any]:
        observation = self._observations[name]
        java: Any = observation._jo
        # Python's side cannot take the empty row of a step that is not in the plan any more.
        return observation.get if java.getRow().length() else {}

    def check_keys(self, read: source.Source, name: str = "read") -> None:
        """Refuse a source where a file contradicts its path."""
        for key in read.disagreements:
            example = self.value(name).get(f"differs_{key}")
            if example is not None:
                raise source.disagreement(key, example)

    def check(self, in_sources: int, in_stage: int, spec: StageSpec) -> tuple[int, int, int]:
        """Rows read, kept by the filter and left by deduplication, if all of them add up.

        A step that Spark proved empty while planning (a filter that is never true) is not in
        the plan any more and counts nothing: what its footers say is then what was read.
        """
        read = self.value("read").get("rows", in_sources)
        kept = self.value("kept").get("rows", 0)
        unique = self.value("unique").get("rows", 0)
        if unique != self.value("staged").get("rows", 0) and spec.select is not None:
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
