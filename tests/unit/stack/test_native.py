"""From the compose file to this machine: hosts, ports and paths change, and nothing else does."""

from __future__ import annotations

import re
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from landfall.errors import ConfigError
from landfall.stack.compose import fill_in, read_services
from landfall.stack.native import Native, choose_ports, paths

ROOT = Path(__file__).resolve().parents[3]
SERVICES = read_services(ROOT / "docker-compose.yaml")
PORTS = {port: 20_000 + n for n, port in enumerate(p for s in SERVICES.values() for p in s.ports)}
NATIVE = Native(frozenset(SERVICES), PORTS, paths(Path("/srv/landfall"), Path("/srv/state")))


def words(text: str) -> list[str]:
    return re.split(r"[^\w-]+", text)


@pytest.mark.parametrize("name", SERVICES)
def test_only_hosts_ports_and_paths_of_a_service_change(name: str) -> None:
    service = SERVICES[name]
    texts = [*service.command[1:], *map(str, service.environment.values())]
    for text in texts:
        here = NATIVE.text(text)
        # Put back what may change: the rest must be what the file says.
        for port, other in PORTS.items():
            here = re.sub(rf"(?<!\d){other}(?!\d)", str(port), here)
        for there, folder in sorted(NATIVE.paths.items(), key=lambda pair: -len(pair[1])):
            if folder != ".":
                here = here.replace(folder, there)
        gone = [word for word in words(text) if word not in words(here)]
        assert set(gone) <= {*SERVICES, "0", "var", "run", "postgresql"}, text
    assert NATIVE.command(service.command)[0] == service.command[0]


@pytest.mark.parametrize("name", SERVICES)
def test_no_name_of_a_container_is_left(name: str) -> None:
    service = SERVICES[name]
    checks = service.healthcheck.test if service.healthcheck else ()
    for text in [*service.command[1:], *checks, *map(str, service.environment.values())]:
        here = NATIVE.text(text)
        assert "/opt/landfall" not in here
        assert "0.0.0.0" not in here
        for other in SERVICES:
            assert f"//{other}" not in here
            assert f"@{other}" not in here
            assert here != other


def test_values_of_variables_are_left_alone() -> None:
    text = NATIVE.text("http://s3:8333/?key=${KEY}")
    port = PORTS[8333]
    assert fill_in(text, {"KEY": "8333@s3"}) == f"http://127.0.0.1:{port}/?key=8333@s3"


def test_variables_are_filled_in_as_compose_does() -> None:
    assert fill_in("$$HOME ${A} ${B:-b} ${C:-}", {"A": "a", "B": ""}) == "$HOME a b "
    with pytest.raises(ConfigError, match=r"X is not set\. Fix: run it"):
        fill_in("${X:?run it}", {})


def test_ports_are_kept_unless_somebody_else_has_them() -> None:
    first = choose_ports(SERVICES.values(), {}, {})
    assert len(set(first.values())) == len(PORTS)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        number = taken.getsockname()[1]
        second = choose_ports(SERVICES.values(), {**first, 8080: number}, {})
        assert second[8080] != number
        assert second | {8080: 0} == first | {8080: 0}
        with pytest.raises(ConfigError, match=f"AIRFLOW_PORT: port {number} is taken"):
            choose_ports(SERVICES.values(), first, {"AIRFLOW_PORT": str(number)})


def test_a_port_that_two_services_claim_is_refused() -> None:
    one = SERVICES["s3"]
    with pytest.raises(ConfigError, match="two services listen on 8333"):
        choose_ports([one, replace(one, name="again")], {}, {})
