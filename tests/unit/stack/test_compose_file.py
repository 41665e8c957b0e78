"""docker-compose.yaml and the Dockerfile: valid, and safe to start."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from landfall.stack.compose import read_env_file, read_services

ROOT = Path(__file__).resolve().parents[3]
COMPOSE = ROOT / "docker-compose.yaml"
BIN = Path(sys.executable).parent
SERVICES = {
    *("postgres", "s3", "sample-data", "spark-master", "spark-worker-1", "spark-worker-2"),
    *("airflow-init", "airflow-api-server", "airflow-scheduler", "airflow-dag-processor"),
    "airflow-triggerer",
}


@pytest.fixture(scope="module")
def document() -> Any:
    return yaml.safe_load(COMPOSE.read_text())


def run(*command: object) -> None:
    done = subprocess.run(list(map(str, command)), cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_file_follows_the_compose_specification() -> None:
    run(BIN / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", COMPOSE)


def test_the_dockerfile_is_clean() -> None:
    run(BIN / "hadolint", "--config", ".hadolint.yaml", "Dockerfile")


def test_the_dockerfile_copies_only_what_docker_sees() -> None:
    """What .dockerignore leaves out cannot be copied."""
    seen = {line[1:] for line in (ROOT / ".dockerignore").read_text().split() if line[0] == "!"}
    for line in (ROOT / "Dockerfile").read_text().splitlines():
        if line.startswith("COPY "):
            for source in line.split()[2:-1]:
                assert (ROOT / source).exists()
                assert source.split("/")[0] in seen


def test_the_image_runs_as_another_user_than_root() -> None:
    users = re.findall(r"^USER (\S+)", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert users[-1] not in ("root", "0")


def test_all_but_postgres_is_one_image(document: Any) -> None:
    assert set(document["services"]) == SERVICES
    images = {name: given["image"] for name, given in document["services"].items()}
    assert images.pop("postgres").startswith("postgres:")
    assert len(set(images.values())) == 1


def test_every_port_is_on_loopback_and_stands_once(document: Any) -> None:
    listening = []
    for given in document["services"].values():
        for published in given.get("ports", ()):
            assert published.startswith("127.0.0.1:")
            listening.append(published.rpartition(":")[2])
        listening += given.get("expose", ())
    assert len(listening) == len(set(listening))
    assert len(listening) > 10


def test_what_waits_for_health_waits_for_a_service_that_has_a_check(document: Any) -> None:
    services = document["services"]
    for given in services.values():
        for other, how in given.get("depends_on", {}).items():
            wanted = "healthy" if "healthcheck" in services[other] else "completed_successfully"
            assert how["condition"] == f"service_{wanted}"


def test_state_is_in_named_volumes_and_code_is_mounted(document: Any) -> None:
    mounts = {name: given.get("volumes", []) for name, given in document["services"].items()}
    named = {m.split(":")[0] for all_of in mounts.values() for m in all_of if m[0] not in "./"}
    assert named == set(document["volumes"])
    for name, all_of in mounts.items():
        if name.startswith("airflow-"):
            for folder in ("dags", "plugins", "spark_jobs"):
                assert f"./{folder}:/opt/landfall/{folder}:ro" in all_of
            assert "airflow:/opt/landfall/.landfall/airflow" in all_of
            assert "warehouse:/opt/landfall/.landfall/warehouse" in all_of


def test_no_secret_stands_in_a_file_of_the_project() -> None:
    """Whatever is secret comes from .env, and .env.example leaves it empty."""
    secret = re.compile(r"(password|secret|fernet|access_key|login)\w*[\"']?\s*[:=]\s*(.*)", re.I)
    for line in COMPOSE.read_text().splitlines():
        match = secret.search(line.partition("#")[0])
        if match and not match[2].startswith("/"):
            assert "${" in line or "$$" in line, line
    given = read_env_file(ROOT / ".env.example")
    assert given
    assert not any(given.values())
    required = set(re.findall(r"\$\{(\w+):\?", COMPOSE.read_text()))
    assert required == set(given)


def test_the_secrets_are_made_once_and_for_their_owner_only(tmp_path: Path) -> None:
    target = tmp_path / ".env"
    run(ROOT / "bin" / "compose-env", target)
    made = read_env_file(target)
    assert target.stat().st_mode & 0o077 == 0
    assert len(set(made.values())) == len(made)
    assert all(re.fullmatch(r"[\w=-]{20,}", value) for value in made.values())
    from cryptography.fernet import Fernet

    Fernet(made["AIRFLOW_FERNET_KEY"].encode())
    run(ROOT / "bin" / "compose-env", target)
    assert read_env_file(target) == made


def test_each_service_comes_after_those_it_depends_on() -> None:
    order = list(read_services(COMPOSE))
    assert order.index("postgres") < order.index("airflow-init") < order.index("airflow-scheduler")
    assert order.index("spark-master") < order.index("spark-worker-1")
