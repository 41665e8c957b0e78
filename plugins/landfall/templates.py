"""Which partition a run loads: the dataset's templates, or the conf that it was triggered with."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from landfall.dataset import Dataset
from landfall.errors import ConfigError
from landfall.partition import EVERY, Partition

MACRO = "landfall_conf"

Templates = dict[str, str | list[str]]


def partition_templates(dataset: Dataset) -> Templates:
    """Each key's Jinja template. A value in the run's conf wins, and then no date is needed."""
    return {
        key: given if isinstance(given, list) or given == EVERY else _with_conf(key, given)
        for key, given in dataset.source.partition.items()
    }


def _with_conf(key: str, template: str) -> str:
    return (
        f'{{% if {MACRO}(dag_run, "{key}") is none %}}{template}'
        f'{{% else %}}{{{{ {MACRO}(dag_run, "{key}") }}}}{{% endif %}}'
    )


def conf_macro(dataset: Dataset) -> Any:
    """The function behind the templates; refuses a conf that this dataset cannot follow."""
    partition = dataset.source.partition

    def landfall_conf(dag_run: Any, key: str) -> str | None:
        given = given_partition(getattr(dag_run, "conf", None))
        for name, value in given.items():
            if name not in partition:
                raise refused_conf(f"{name!r} is no partition key of {dataset.dataset}.", partition)
            if partition[name] == EVERY or isinstance(partition[name], list):
                raise refused_conf(f"{name!r} is an outer key, loaded as a whole.", partition)
            if isinstance(value, (dict, list, bool)) or value is None:
                raise refused_conf(f"the value of {name!r} is not text.", partition)
        return str(given[key]) if key in given else None

    return landfall_conf


def given_partition(conf: Any) -> Mapping[str, Any]:
    """The `partition` of a trigger's conf; empty when it names none."""
    given = (conf or {}).get("partition") or {}
    if not isinstance(given, Mapping):
        raise refused_conf(f"it is {given!r}, not an object.", {"date": ""})
    return given


def refused_conf(what: str, partition: Mapping[str, Any]) -> ConfigError:
    keys = [k for k, v in partition.items() if v != EVERY and not isinstance(v, list)]
    example = ", ".join(f'"{key}": "…"' for key in keys)
    return ConfigError(
        what, where="conf.partition", fix=f"trigger with --conf '{{\"partition\": {{{example}}}}}'."
    )


def render_partition(
    dataset: Dataset, *, ds: str, conf: Mapping[str, Any] | None = None
) -> Partition:
    """What a run of that date would load, rendered without a scheduler."""
    from datetime import UTC, datetime

    from jinja2 import StrictUndefined
    from jinja2.sandbox import SandboxedEnvironment

    moment = datetime.fromisoformat(ds).replace(tzinfo=UTC)
    names = {
        "ds": ds,
        "ds_nodash": ds.replace("-", ""),
        "ts": moment.isoformat(),
        "logical_date": moment,
        "dag_run": SimpleNamespace(conf=dict(conf or {})),
        MACRO: conf_macro(dataset),
    }
    environment = SandboxedEnvironment(undefined=StrictUndefined)

    def render(template: str) -> str:
        return environment.from_string(template).render(names)

    rendered: dict[str, str | list[str]] = {
        key: [render(t) for t in given] if isinstance(given, list) else render(given)
        for key, given in partition_templates(dataset).items()
    }
    return Partition.of(rendered, dataset.source.types)
