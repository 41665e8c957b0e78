"""The config of an edge writer: every key a user can write, validated and frozen."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from landfall.dataset import Identifier, S3Uri
from landfall.dataset_files import problems, read_mapping
from landfall.edge.column_types import TypeText, check_type
from landfall.edge.path import DATE, PathTemplate
from landfall.edge.quantities import Bytes, Seconds
from landfall.errors import ConfigError

DEFAULT_PATH = (
    "transactions/region={store_region}/date={date}/batch_{unix}_{count}_{writer}.parquet"
)


S = TypeVar("S", bound=BaseModel)


class DateOf(StrEnum):
    EVENT = "event"
    CLOCK = "clock"


def _type(text: TypeText) -> TypeText:
    check_type(text)
    return text


def _endpoint(text: str | None) -> str | None:
    if text is None:
        return None
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"write it as http://host:port or https://host (it is {text!r})")
    if parts.username or parts.password:
        raise ValueError("no credentials in the endpoint: they belong in the environment (AWS_*)")
    return text.rstrip("/")


def _path(text: str) -> str:
    PathTemplate(text)
    return text


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Input(_Section):
    """Where `edge run` takes its records from."""

    files: tuple[str, ...] = ()
    """Files, patterns such as `/var/pos/*.jsonl`, or folders (their `.jsonl`, `.ndjson` and
    `.json` files). Relative ones start at the config file. None: standard input."""
    poll: Seconds = 0.5
    """How long between two looks for something new."""
    max_line: Bytes = 1_000_000
    """A longer line is a dead letter."""


class Batch(_Section):
    """When a batch is closed: whichever comes first. Each folder of the path has its own."""

    count: int = Field(1000, ge=1)
    """Records."""
    bytes: Bytes = 8_000_000
    """Size of the values, before compression."""
    age: Seconds = 10
    """Time since its first record."""


class Backoff(_Section):
    """How long an output that failed is left alone; the time doubles, with jitter."""

    first: Seconds = 0.5
    longest: Seconds = 30


class Output(_Section):
    """One place that every batch is shipped to: `s3` or `folder`."""

    s3: S3Uri | None = None
    """Bucket and prefix. Keys come from the environment, as boto3 finds them."""
    folder: Path | None = None
    """A local folder, for development."""
    endpoint: Annotated[str | None, AfterValidator(_endpoint)] = None
    """Of an S3-compatible store; none: AWS, or `AWS_ENDPOINT_URL_S3`."""
    region: str | None = None
    """None: `AWS_REGION`, or us-east-1."""
    timeout: Seconds = 30
    """How long S3 may take to answer."""
    max_in_flight: int = Field(4, ge=1, le=64)
    """How many batches are shipped at once."""
    backoff: Backoff = Backoff()

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if (self.s3 is None) == (self.folder is None):
            raise ValueError("name one place: s3: s3://bucket/prefix, or folder: a path")
        if self.folder is not None and (self.endpoint or self.region):
            raise ValueError("endpoint and region belong to an s3 output")
        return self

    @property
    def name(self) -> str:
        """What logs, status and the buffer call it."""
        return self.s3 or str(self.folder)


class BufferConfig(_Section):
    """The local folder that outlives crashes and outages."""

    folder: Path | None = None
    """One for each writer. Relative: to the config file. None: `edge/<config>` in the home."""
    max_bytes: Bytes = 10_000_000_000
    """At this size no more input is taken until there is room. Shipped batches make room first."""
    retention: Seconds = 7 * 86400
    """How long shipped batches are kept. Unshipped ones are never removed."""


class EdgeConfig(_Section):
    """One edge writer."""

    input: Input = Input()
    columns: dict[str, Annotated[TypeText, AfterValidator(_type)]] | None = None
    """Arrow types by column. None: as the first batch has them, held from then on."""
    required: tuple[str, ...] = ()
    """Columns that must not be null."""
    path: Annotated[str, AfterValidator(_path)] = DEFAULT_PATH
    """Hive folders made of fields and of `{date}`; a name with `{count}` and `{writer}`."""
    date: DateOf = DateOf.EVENT
    """What `{date}` is: the day of the event, or the day on which it was taken. Both in UTC."""
    event_time: Identifier = "event_at"
    """The field that says when the event was."""
    batch: Batch = Batch()
    outputs: tuple[Output, ...]
    """S3, local folders, or several of them: each gets every batch."""
    buffer: BufferConfig = BufferConfig()

    @field_validator("outputs", mode="after")
    @classmethod
    def _different(cls, outputs: tuple[Output, ...]) -> tuple[Output, ...]:
        if not outputs:
            raise ValueError("name at least one: {s3: s3://bucket/prefix}, or {folder: a path}")
        names = [output.name for output in outputs]
        if len(set(names)) < len(names):
            raise ValueError("one output stands here twice")
        return outputs

    @model_validator(mode="after")
    def _columns_fit(self) -> Self:
        if self.columns is None:
            return self
        if not self.columns:
            raise ValueError("columns is empty: name them, or leave the key out")
        needed = {name: f"path uses {{{name}}}" for name in self.template.fields}
        if self.by_event:
            needed[self.event_time] = "event_time names it"
        needed |= dict.fromkeys(self.required, "required names it")
        for name, why in needed.items():
            if name not in self.columns:
                raise ValueError(f"columns lacks {name!r}, and {why}")
        if hidden := self.hidden & self.columns.keys():
            key = min(hidden)
            raise ValueError(
                f"the column {key!r} would be hidden by the path's {key}=: rename one of them"
            )
        return self

    @property
    def template(self) -> PathTemplate:
        return PathTemplate(self.path)

    @property
    def by_event(self) -> bool:
        return self.template.uses_date and self.date is DateOf.EVENT

    @property
    def hidden(self) -> set[str]:
        """Path keys made of something else than the field of their name."""
        keys = self.template.keys.items()
        return {key for key, place in keys if key != place or place == DATE}

    @property
    def in_path(self) -> set[str]:
        """Fields that the path says under their own name; the files do not say them again."""
        keys = self.template.keys.items()
        return {key for key, place in keys if key == place and place != DATE}


def read_edge_config(path: Path, home: Path) -> EdgeConfig:
    """The config in a file, its paths absolute; a ConfigError names file, key and fix."""
    document = read_mapping(path, examples="edge/")
    try:
        config = EdgeConfig.model_validate(document)
    except ValidationError as error:
        found = problems(error, EdgeConfig, described_in="docs/edge.md")
        raise ConfigError(found, where=str(path)) from None
    base = path.absolute().parent
    return _update(
        config,
        input=_update(config.input, files=tuple(_below(base, f) for f in config.input.files)),
        buffer=_update(
            config.buffer,
            folder=base / config.buffer.folder if config.buffer.folder
            else home / "edge" / path.stem,
        ),
        outputs=tuple(
            _update(output, folder=base / output.folder) if output.folder else output
            for output in config.outputs
        ),
    )  # fmt: skip


def _below(base: Path, pattern: str) -> str:
    return str(base / Path(pattern).expanduser())


def _update(section: S, **values: Any) -> S:
    return section.model_copy(update=values)
