"""What containers would give a service, on this machine: only hosts, ports and paths change."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from landfall.errors import ConfigError
from landfall.stack.compose import Service

HOST = "127.0.0.1"
_ANY_HOST = "0.0.0.0"  # noqa: S104 - what the file says; here it becomes loopback


@dataclass(frozen=True)
class Native:
    """The change from a container's names to this machine's."""

    services: frozenset[str]
    ports: Mapping[int, int]
    paths: Mapping[str, str]

    def text(self, text: str) -> str:
        """The text as it reads here. Comes before variables are filled in: values stay theirs."""
        text = self._hosts.sub(HOST, text).replace(_ANY_HOST, HOST)
        text = self._numbers.sub(lambda match: str(self.ports[int(match[0])]), text)
        return self._folders.sub(lambda match: self.paths[match[0]], text)

    def command(self, words: Iterable[str]) -> list[str]:
        """The program keeps its name even where a service is called the same."""
        program, *rest = words
        return [self._folders.sub(lambda m: self.paths[m[0]], program), *map(self.text, rest)]

    @cached_property
    def _hosts(self) -> re.Pattern[str]:
        names = "|".join(sorted(map(re.escape, self.services), key=len, reverse=True))
        # A host stands alone, or after //, @ or =, and ends where a port, a path or the text does.
        return re.compile(rf'(?:^|(?<=//)|(?<=@)|(?<==))(?:{names})(?=$|[:/"])')

    @cached_property
    def _numbers(self) -> re.Pattern[str]:
        numbers = "|".join(map(str, self.ports))
        return re.compile(rf"(?<![\d.])(?:{numbers})(?![\d.])")

    @cached_property
    def _folders(self) -> re.Pattern[str]:
        longest_first = sorted(self.paths, key=len, reverse=True)
        return re.compile("|".join(map(re.escape, longest_first)))


def choose_ports(
    services: Iterable[Service], last: Mapping[int, int], variables: Mapping[str, str]
) -> dict[int, int]:
    """A port here for each port of the file: the one asked for, else the last one, else a free one.

    All are held at the same time, so no two get the same.
    """
    chosen: dict[int, int] = {}
    with ExitStack() as held:
        for port, variable in ((p, v) for one in services for p, v in one.ports.items()):
            if port in chosen:
                raise ConfigError(f"two services listen on {port}.", where="docker-compose.yaml")
            listener = held.enter_context(socket.socket())
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            asked = int(variables.get(variable or "") or 0)
            try:
                listener.bind((HOST, asked or last.get(port, 0)))
            except OSError as error:
                if asked:
                    raise ConfigError(
                        f"port {asked} is taken.", where=variable, fix="choose another."
                    ) from error
                listener.bind((HOST, 0))
            chosen[port] = listener.getsockname()[1]
    return chosen


def paths(repository: Path, home: Path) -> dict[str, str]:
    """The folders of the image and its volumes, and where they are here."""
    return {
        "/opt/landfall/.landfall": str(home),
        "/opt/landfall": str(repository),
        "/var/lib/postgresql/data": str(home / "stack" / "postgres"),
        # Relative to its data folder: the path of a Unix socket has at most 107 bytes.
        "/var/run/postgresql": ".",
    }
