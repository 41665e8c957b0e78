"""What this machine needs besides connections: the right packages, Java, Spark's jars."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import zipfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from landfall.errors import ConfigError
from landfall.settings import Settings

MOTHERDUCK_OLDEST = (1, 4, 1)
MOTHERDUCK_NEWEST = (1, 5, 6)
JAVA_VERSIONS = (17, 21)
COMMITTER = "org/apache/spark/internal/io/cloud/PathOutputCommitProtocol.class"


def duckdb_version() -> str:
    installed = version("duckdb")
    numbers = tuple(int(part) for part in re.findall(r"\d+", installed)[:3])
    if not MOTHERDUCK_OLDEST <= numbers <= MOTHERDUCK_NEWEST:
        raise ConfigError(
            f"{installed} is outside of what MotherDuck accepts (1.4.1 to 1.5.6).",
            fix="install the pinned version: make setup.",
        )
    return f"{installed}, which MotherDuck accepts (1.4.1 to 1.5.6)"


def pyspark_version() -> str:
    try:
        full, client = version("pyspark"), version("pyspark-client")
    except PackageNotFoundError as error:
        raise ConfigError(f"{error.name} is not installed.", fix="run: make setup.") from error
    if full != client:
        raise ConfigError(
            f"pyspark is {full}, pyspark-client {client}: their files overlap and mix.",
            fix="install both in the pinned version: make setup.",
        )
    return f"{full}, pyspark-client the same"


def java_version() -> str:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if not java or not shutil.which(java):
        where = f"JAVA_HOME {home}" if home else "PATH"
        raise ConfigError("java is not found.", where=where, fix="run: make setup.")
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    found = re.search(r'version "(?:1\.)?(\d+)', said.stderr)  # Java 8 calls itself 1.8
    number = int(found[1]) if found else 0
    if number not in JAVA_VERSIONS:
        raise ConfigError(
            f"{java} has version {number or 'unknown'}; Spark 4 needs 17 or 21.",
            fix="install Java 17 (openjdk-17-jre-headless on Debian), or set JAVA_HOME.",
        )
    modules = subprocess.run([java, "--list-modules"], capture_output=True, text=True, check=False)
    if "jdk.incubator.vector" not in modules.stdout:
        raise ConfigError(
            f"{java} lacks the module jdk.incubator.vector, which Spark needs.",
            fix="install a full JRE or JDK 17, not a reduced one.",
        )
    return f"{number} with jdk.incubator.vector ({java})"


def jars(settings: Settings) -> str:
    """Present, and each with its pinned sum."""
    pins = settings.spark_job.parent / "jars.sha256"
    lines = pins.read_text().splitlines() if pins.exists() else []
    pairs = [line.split() for line in lines if line.strip() and line[0] != "#"]
    wanted = {name: pinned for pinned, name in pairs}
    if not wanted:
        raise ConfigError("no jar is pinned.", where=str(pins), fix="run: make lock-jars.")
    for name, pinned in wanted.items():
        file = settings.jars_dir / name
        if not file.is_file():
            raise ConfigError(f"{name} is missing.", where=str(file.parent), fix="run: make setup.")
        if hashlib.sha256(file.read_bytes()).hexdigest() != pinned:
            raise ConfigError(
                f"{name} is not the file that is pinned.",
                where=str(file.parent),
                fix="delete it, then run: make setup.",
            )
    return f"{len(wanted)} present, all with their pinned sums"


def committer(folder: Path) -> str:
    for jar in sorted(folder.glob("*spark-hadoop-cloud*.jar")):
        with zipfile.ZipFile(jar) as archive:
            if COMMITTER in archive.namelist():
                return f"in {jar.name}"
    raise ConfigError(
        "spark-hadoop-cloud is not among the jars: Spark would rename files, unsafe on S3.",
        where=str(folder),
        fix="run: make setup.",
    )
