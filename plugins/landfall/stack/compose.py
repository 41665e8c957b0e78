"""docker-compose.yaml as data: the part of the compose format that the file uses, and no more."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import yaml

from landfall.errors import ConfigError

_VARIABLE = re.compile(r"\$(?:(\$)|\{(\w+)(?::([-?])((?:[^{}]|\{[^{}]*\})*))?\})")
_PUBLISHED = re.compile(r"127\.0\.0\.1:(?:\$\{(\w+):-\d+\}|\d+):(\d+)")
_UNITS = {"s": 1.0, "m": 60.0}


class Condition(StrEnum):
    """When a service that another one depends on is far enough."""

    HEALTHY = "service_healthy"
    COMPLETED = "service_completed_successfully"


@dataclass(frozen=True)
class Healthcheck:
    test: tuple[str, ...]
    pause: float
    """Seconds between two looks while the service starts."""


@dataclass(frozen=True)
class Service:
    """One service, word for word as in the file: variables are not filled in."""

    name: str
    image: str
    entrypoint: tuple[str, ...]
    command: tuple[str, ...]
    environment: Mapping[str, str]
    depends_on: Mapping[str, Condition]
    healthcheck: Healthcheck | None
    ports: Mapping[int, str | None]
    """Every port it listens on, and the variable that may choose the published one."""
    volumes: tuple[str, ...]
    """The folders that outlive it."""
    working_dir: str | None
    stop_signal: str
    stop_seconds: float
    restarts: bool

    @property
    def runs_once(self) -> bool:
        """It does its work and ends; all others run until they are stopped."""
        return self.healthcheck is None


def read_services(path: Path) -> dict[str, Service]:
    """The services by name, each after all that it depends on."""
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    services = {name: _service(name, given) for name, given in document["services"].items()}
    ordered: dict[str, Service] = {}
    while len(ordered) < len(services):
        free = [
            one
            for one in services.values()
            if one.name not in ordered and set(one.depends_on) <= set(ordered)
        ]
        if not free:
            raise ConfigError("services depend on each other in a circle.", where=str(path))
        ordered |= {one.name: one for one in free}
    return ordered


def fill_in(text: str, variables: Mapping[str, str]) -> str:
    """The text with its `${…}` filled in as compose does: set but empty counts as not set."""

    def value(match: re.Match[str]) -> str:
        dollar, name, kind, rest = match.groups()
        if dollar:
            return "$"
        found = variables.get(name, "")
        if found or kind is None:
            return found
        if kind == "?":
            raise ConfigError(f"{name} is not set.", where="docker-compose.yaml", fix=f"{rest}.")
        return str(rest)

    return _VARIABLE.sub(value, text)


def read_env_file(path: Path) -> dict[str, str]:
    """A file of NAME=value lines, as compose reads `.env`."""
    lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    pairs = [line.partition("=") for line in lines if line and not line.startswith("#")]
    return {name: value for name, _, value in pairs}


def _service(name: str, given: Mapping[str, Any]) -> Service:
    conditions = given.get("depends_on", {})
    return Service(
        name=name,
        image=given["image"],
        entrypoint=tuple(given.get("entrypoint", ())),
        command=tuple(given["command"]),
        environment=given.get("environment", {}),
        depends_on={other: Condition(how["condition"]) for other, how in conditions.items()},
        healthcheck=_healthcheck(given["healthcheck"]) if "healthcheck" in given else None,
        ports=_ports(given),
        volumes=tuple(v.split(":")[1] for v in given.get("volumes", ()) if v[0] not in "./"),
        working_dir=given.get("working_dir"),
        stop_signal=given.get("stop_signal", "SIGTERM"),
        stop_seconds=_seconds(given.get("stop_grace_period", "10s")),
        restarts=given.get("restart") == "on-failure",
    )


def _healthcheck(given: Mapping[str, Any]) -> Healthcheck:
    kind, *test = given["test"]
    if kind != "CMD":
        raise ConfigError(f"a health check starts with CMD, not {kind!r}.", where="healthcheck")
    return Healthcheck(tuple(test), _seconds(given["start_interval"]))


def _ports(given: Mapping[str, Any]) -> dict[int, str | None]:
    found: dict[int, str | None] = {}
    for entry in given.get("ports", ()):
        match = _PUBLISHED.fullmatch(entry)
        if match is None:
            raise ConfigError(
                f"{entry!r} is published beyond this machine.",
                where="docker-compose.yaml",
                fix="write it as 127.0.0.1:${NAME_PORT:-port}:port.",
            )
        found[int(match[2])] = match[1]
    return found | {int(port): None for port in given.get("expose", ())}


def _seconds(text: str) -> float:
    return float(text[:-1]) * _UNITS[text[-1]]
