"""Reading dataset files: each one alone, so that a bad file never takes another down."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from landfall.dataset import Dataset, DatasetFile, is_template
from landfall.errors import ConfigError
from landfall.partition import EVERY, Value, hive_unescape, parse_value


class _StrictLoader(yaml.SafeLoader):
    """YAML that refuses a key written twice, which plain YAML answers with the last one."""


def _mapping(loader: _StrictLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: set[Any] = set()
    for key_node, _ in node.value:
        key = loader.construct_object(key_node, deep=True)
        if key in seen:
            raise yaml.constructor.ConstructorError(
                None, None, f"the key {key!r} stands here twice", key_node.start_mark
            )
        seen.add(key)
    return loader.construct_mapping(node, deep=True)


_StrictLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def _octal_stays_text(loader: _StrictLoader, node: yaml.ScalarNode) -> int | str:
    """`region: 01` is text that a person wrote, not the number one."""
    text = str(node.value)
    if text.lstrip("+-").startswith("0") and text.lstrip("+-") != "0":
        return text
    return int(loader.construct_yaml_int(node))


_StrictLoader.add_constructor("tag:yaml.org,2002:int", _octal_stays_text)


def dataset_paths(directory: Path) -> list[Path]:
    return sorted([*directory.glob("*.yaml"), *directory.glob("*.yml")])


def read_dataset(path: Path) -> DatasetFile:
    """The dataset in one file, or a ConfigError that names file, key and fix."""
    document = read_mapping(path, examples="dags/datasets/")
    try:
        return DatasetFile(path=path, dataset=Dataset.model_validate(document))
    except ValidationError as error:
        raise ConfigError(
            problems(error, Dataset, described_in="docs/datasets.md"), where=str(path)
        ) from None


def read_mapping(path: Path, *, examples: str) -> dict[Any, Any]:
    """The keys of a YAML file; a ConfigError says why it has none and where examples are."""
    try:
        document = yaml.load(path.read_text(encoding="utf-8"), _StrictLoader)  # noqa: S506
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}.", where=str(path)) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"is not valid YAML: {error}", where=str(path)) from error
    if not isinstance(document, dict):
        raise ConfigError(
            "holds no keys.",
            where=str(path),
            fix=f"start from one of the examples in {examples}.",
        )
    return document


def read_datasets(directory: Path) -> tuple[list[DatasetFile], list[tuple[Path, ConfigError]]]:
    """Every dataset that can be used, and for every file that cannot, why."""
    if not directory.is_dir():
        return [], [(directory, ConfigError("is not a folder.", where=str(directory)))]
    return read_files(dataset_paths(directory))


def read_files(
    paths: Iterable[Path],
) -> tuple[list[DatasetFile], list[tuple[Path, ConfigError]]]:
    """The same for these files, in this order."""
    good: list[DatasetFile] = []
    bad: list[tuple[Path, ConfigError]] = []
    for path in paths:
        try:
            candidate = read_dataset(path)
            _refuse_clash(candidate, good)
            good.append(candidate)
        except ConfigError as error:
            bad.append((path, error))
    return good, bad


def _refuse_clash(candidate: DatasetFile, others: Iterable[DatasetFile]) -> None:
    """The file that comes first by name keeps its place; the second one is refused."""
    mine = candidate.dataset
    for other in others:
        theirs = other.dataset
        if mine.dataset == theirs.dataset:
            raise ConfigError(
                f"dataset {mine.dataset!r} is declared in {other.path.name} already.",
                where=str(candidate.path),
                fix="give one of them another name.",
            )
        same_table = (
            mine.load.destination.lower() == theirs.load.destination.lower()
            and mine.load.warehouse == theirs.load.warehouse
        )
        if same_table and not _disjoint(mine, theirs):
            raise ConfigError(
                f"load.destination {mine.load.destination} is written by {other.path.name} too, "
                "and each would delete the other's rows.",
                where=str(candidate.path),
                fix="use another table, or partitions whose fixed values do not overlap "
                "(for example region: NW here and region: SW there).",
            )


def _disjoint(one: Dataset, two: Dataset) -> bool:
    """Whether no partition of one can ever hold rows of the other."""
    for key in one.source.partition:
        mine, theirs = _fixed(one, key), _fixed(two, key)
        same_type = one.source.key_type(key) == two.source.key_type(key)
        if mine and theirs and same_type and mine.isdisjoint(theirs):
            return True
    return False


def _fixed(dataset: Dataset, key: str) -> set[Value] | None:
    """The key's values, typed: `9` and `09` are one integer. None: they are not fixed."""
    source = dataset.source
    given = source.partition.get(key, EVERY)
    values = {given} if isinstance(given, str) else set(given)
    if any(value == EVERY or is_template(value) for value in values):
        return None
    return {parse_value(hive_unescape(v), source.key_type(key), key=key) for v in values}


def problems(error: ValidationError, model: type[BaseModel], *, described_in: str) -> str:
    """All that is wrong with a file of this model: each key, and its fix."""
    return "; ".join(_problem(detail, model, described_in) for detail in error.errors())


def _problem(detail: ErrorDetails, model: type[BaseModel], described_in: str) -> str:
    location = ".".join(str(part) for part in detail["loc"] if not _is_union_branch(part))
    if detail["type"] == "extra_forbidden":
        return f"unknown key {location!r}.{_did_you_mean(detail['loc'], model)}"
    if detail["type"] == "missing":
        return f"the key {location!r} is missing. Fix: add it ({described_in} describes it)."
    message = detail["msg"].removeprefix("Value error, ")
    if detail["type"] == "enum" or detail["type"].endswith("_type"):
        message = f"{message} (it is {detail['input']!r})"
    return f"{location or 'the file'}: {message}."


def _is_union_branch(part: int | str) -> bool:
    return part in ("str", "list[str]", "[key]")


def _did_you_mean(location: tuple[int | str, ...], model: type[BaseModel]) -> str:
    *parents, unknown = location
    for parent in parents:
        if isinstance(parent, str):  # a number is a place in a list, whose items share one model
            model = _model_of(model.model_fields[parent].annotation) or model
    names = list(model.model_fields)
    close = get_close_matches(str(unknown), names, n=1)
    if close:
        return f" Did you mean {close[0]!r}?"
    return f" Fix: remove it; the keys here are {', '.join(names)}."


def _model_of(annotation: Any) -> type[BaseModel] | None:
    for candidate in (annotation, *get_args(annotation)):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None
