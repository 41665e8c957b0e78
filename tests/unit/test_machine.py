"""A package, a Java or a jar that is not the right one is named, with what to do about it."""

from __future__ import annotations

import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from landfall import machine
from landfall.errors import ConfigError
from landfall.settings import Settings, load_settings


def install(monkeypatch: pytest.MonkeyPatch, folder: Path, **packages: str) -> None:
    """Other versions of these packages, as Python's own metadata tells them."""
    for name, version in packages.items():
        about = folder / f"{name}-{version}.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}")
    monkeypatch.syspath_prepend(str(folder))


def java(monkeypatch: pytest.MonkeyPatch, folder: Path, version: str, modules: str = "") -> Path:
    """Stands where a Java of that version would."""
    (folder / "bin").mkdir()
    program = folder / "bin" / "java"
    program.write_text(
        f"""#!/bin/sh
case $1 in
  -version) echo 'openjdk version "{version}" 2026-01-20' >&2 ;;
  --list-modules) echo '{modules}' ;;
esac
"""
    )
    program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(folder))
    return program


def refusal(check: Any, *arguments: Any) -> str:
    with pytest.raises(ConfigError) as refused:
        check(*arguments)
    assert refused.value.fix
    return str(refused.value)


def test_the_installed_packages_are_the_right_ones() -> None:
    assert "which MotherDuck accepts" in machine.duckdb_version()
    assert "pyspark-client the same" in machine.pyspark_version()


@pytest.mark.parametrize("version", ["1.4.0", "1.5.7", "2.0.0"])
def test_a_duckdb_that_motherduck_refuses_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    install(monkeypatch, tmp_path, duckdb=version)
    assert f"{version} is outside of what MotherDuck accepts" in refusal(machine.duckdb_version)


@pytest.mark.parametrize("version", ["1.4.1", "1.5.6"])
def test_the_ends_of_motherducks_range_are_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    install(monkeypatch, tmp_path, duckdb=version)
    assert version in machine.duckdb_version()


def test_two_versions_of_pyspark_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, tmp_path, pyspark="4.2.0")
    assert "pyspark is 4.2.0, pyspark-client 4.1.2" in refusal(machine.pyspark_version)


def test_a_missing_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert refusal(machine.java_version) == "PATH: java is not found. Fix: run: make setup."


def test_a_java_home_without_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    message = refusal(machine.java_version)
    assert message.startswith(f"JAVA_HOME {tmp_path}/nowhere: java is not found.")


@pytest.mark.parametrize(("version", "number"), [("11.0.2", "11"), ("1.8.0_402", "8")])
def test_a_java_of_another_version_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, number: str
) -> None:
    program = java(monkeypatch, tmp_path, version)
    message = refusal(machine.java_version)
    assert f"{program} has version {number}; Spark 4 needs 17 or 21." in message


def test_a_reduced_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java(monkeypatch, tmp_path, "17.0.1", "java.base@17.0.1")
    assert "lacks the module jdk.incubator.vector" in refusal(machine.java_version)


@pytest.fixture
def copied_jars(tmp_path: Path) -> Settings:
    """The project's own jars, linked from another folder."""
    settings = load_settings()
    for jar in settings.jars_dir.glob("*.jar"):
        (tmp_path / jar.name).symlink_to(jar)
    return replace(settings, jars_dir=tmp_path)


def one_jar(settings: Settings, name: str) -> Path:
    (found,) = settings.jars_dir.glob(f"*{name}*.jar")
    return found


def test_the_projects_jars_are_whole(copied_jars: Settings) -> None:
    assert machine.jars(copied_jars).endswith("all with their pinned sums")
    assert "spark-hadoop-cloud" in machine.committer(copied_jars.jars_dir)


def test_a_changed_jar_is_named(copied_jars: Settings) -> None:
    jar = one_jar(copied_jars, "hadoop-aws")
    content = jar.read_bytes()
    jar.unlink()
    jar.write_bytes(content[:-1] + b"x")
    message = refusal(machine.jars, copied_jars)
    assert f"{copied_jars.jars_dir}: {jar.name} is not the file that is pinned." in message


def test_a_missing_jar_is_named(copied_jars: Settings) -> None:
    jar = one_jar(copied_jars, "transfer-manager")
    jar.unlink()
    assert f"{jar.name} is missing." in refusal(machine.jars, copied_jars)


def test_a_missing_committer_is_named(copied_jars: Settings) -> None:
    one_jar(copied_jars, "hadoop-cloud").unlink()
    message = refusal(machine.committer, copied_jars.jars_dir)
    assert "spark-hadoop-cloud is not among the jars" in message


def test_a_jar_without_the_committer_in_it_is_not_enough(copied_jars: Settings) -> None:
    jar = one_jar(copied_jars, "hadoop-cloud")
    jar.unlink()
    with zipfile.ZipFile(jar, "w") as archive:
        archive.writestr("META-INF/MANIFEST.MF", "")
    assert "spark-hadoop-cloud" in refusal(machine.committer, copied_jars.jars_dir)
