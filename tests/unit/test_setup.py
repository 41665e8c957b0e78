from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from landfall.settings import load_settings

REPOSITORY = Path(__file__).resolve().parents[2]


def pinned_sums(path: Path) -> dict[str, str]:
    lines = [line.split() for line in path.read_text().splitlines()]
    return {words[1]: words[0] for words in lines if words and not words[0].startswith("#")}


def set_up(repository: Path, home: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [repository / "bin" / "setup"],
        env={**os.environ, "LANDFALL_HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The files that set-up reads, in a home where only the jars are left to check."""
    for name in ("bin", "spark_jobs"):
        shutil.copytree(REPOSITORY / name, tmp_path / name)
    shutil.copy(REPOSITORY / "requirements.lock", tmp_path)
    home = tmp_path / "home"
    (home / "jars").mkdir(parents=True)
    (home / "venv").symlink_to(load_settings().home / "venv")
    shutil.copytree(load_settings().home / "stamps", home / "stamps")
    pin = hashlib.sha256(b"as published").hexdigest()
    (tmp_path / "spark_jobs" / "jars.sha256").write_text(f"# package a:b:1\n\n{pin}  a_b-1.jar\n")
    stamp = hashlib.sha256((tmp_path / "spark_jobs" / "jars.sha256").read_bytes()).hexdigest()
    (home / "stamps" / "jars").write_text(stamp + "\n")
    (home / "airflow").mkdir()
    (home / "airflow" / "airflow.db").touch()
    return tmp_path


def test_a_second_run_has_nothing_to_do(copy: Path) -> None:
    (copy / "home" / "jars" / "a_b-1.jar").write_bytes(b"as published")
    result = set_up(copy, copy / "home")
    assert result.returncode == 0, result.stderr
    assert result.stdout.endswith("nothing to do\n")
    assert len(result.stdout.splitlines()) == 1


def test_a_jar_with_a_wrong_sum_is_refused_by_name(copy: Path) -> None:
    (copy / "home" / "jars" / "a_b-1.jar").write_bytes(b"tampered with")
    result = set_up(copy, copy / "home")
    assert result.returncode == 1
    assert "wrong SHA-256 sum: a_b-1.jar" in result.stderr


def test_a_missing_jar_is_named(copy: Path) -> None:
    result = set_up(copy, copy / "home")
    assert result.returncode == 1
    assert "missing: a_b-1.jar" in result.stderr


def test_an_unknown_option_shows_the_usage() -> None:
    result = subprocess.run(
        [REPOSITORY / "bin" / "setup", "--nonsense"], capture_output=True, text=True, check=False
    )
    assert result.returncode == 2
    assert "--relock-jars" in result.stdout


@pytest.mark.parametrize("command", ["airflow", "landfall"])
def test_a_command_before_set_up_says_what_to_run(command: str, tmp_path: Path) -> None:
    result = subprocess.run(
        [REPOSITORY / "bin" / command, "version"],
        env={**os.environ, "LANDFALL_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 1
    assert "run make setup" in result.stderr


def test_the_jars_here_are_the_pinned_ones() -> None:
    sums = pinned_sums(REPOSITORY / "spark_jobs" / "jars.sha256")
    found = {
        jar.name: hashlib.sha256(jar.read_bytes()).hexdigest()
        for jar in load_settings().jars_dir.glob("*.jar")
    }
    assert found == sums


def test_the_committers_are_among_the_jars_and_the_sdk_bundle_is_not() -> None:
    names = pinned_sums(REPOSITORY / "spark_jobs" / "jars.sha256")
    assert any("spark-hadoop-cloud_2.13-" in name for name in names)
    assert any("s3-transfer-manager-" in name for name in names)
    assert not any("bundle" in name for name in names)


def test_no_jar_is_one_that_pyspark_has() -> None:
    spark_jars = load_settings().home.glob("venv/lib/python3*/site-packages/pyspark/jars/*.jar")
    artifact = re.compile(r"-\d[^/]*\.jar$")
    ours = {
        artifact.sub("", name.partition("_")[2])
        for name in pinned_sums(REPOSITORY / "spark_jobs" / "jars.sha256")
    }
    theirs = {artifact.sub("", jar.name) for jar in spark_jars}
    assert theirs
    assert not ours & theirs


def test_airflow_does_not_run_the_library_as_plugins() -> None:
    assert "landfall/" in (REPOSITORY / "plugins" / ".airflowignore").read_text().splitlines()


def test_both_sparks_are_one_version() -> None:
    lock = (REPOSITORY / "requirements.lock").read_text()
    assert len(set(re.findall(r"^pyspark(?:-client)?==(\S+)", lock, re.MULTILINE))) == 1


def test_make_help_lists_every_command() -> None:
    makefile = (REPOSITORY / "Makefile").read_text()
    targets = re.findall(r"^\.PHONY: (\S+)", makefile, re.MULTILINE)
    shown = subprocess.run(
        ["make", "--no-print-directory", "help"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert [line.split()[1] for line in shown.splitlines()] == targets
