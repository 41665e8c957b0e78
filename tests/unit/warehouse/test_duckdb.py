"""A local file: one writer at a time, nothing outside its folder, errors that say what to do."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import duckdb
import pytest

from landfall.errors import (
    ConfigError,
    Conflict,
    ContractError,
    LandfallError,
    ManifestError,
    Unreachable,
    WarehouseError,
)
from landfall.s3_access import S3Access
from landfall.sql import Destination
from landfall.warehouse.base import Locked
from landfall.warehouse.duckdb import DuckDBWarehouse
from landfall.warehouse.factory import WarehouseConfig, WarehouseKind, open_warehouse
from landfall.warehouse.s3_secret import create_s3_secret, secret_statement

HOLD = """
import duckdb, sys, time
con = duckdb.connect(sys.argv[1])
con.execute("CREATE TABLE IF NOT EXISTS t (a INTEGER)")
print("held", flush=True)
time.sleep(float(sys.argv[2]))
"""


def hold(file: Path, seconds: float) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", HOLD, str(file), str(seconds)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_each_database_has_a_file_of_its_name(tmp_path: Path) -> None:
    with DuckDBWarehouse(tmp_path / "w").connect("retail") as con:
        con.execute("CREATE TABLE retail.main.t (a INTEGER)")
    assert [path.name for path in (tmp_path / "w").iterdir()] == ["retail.duckdb"]


def test_a_file_that_is_named_serves_any_database(tmp_path: Path) -> None:
    warehouse = DuckDBWarehouse(tmp_path, path=tmp_path / "my file's.db")
    with warehouse.connect("retail") as con:
        con.execute("CREATE TABLE retail.main.t (a INTEGER)")
    assert (tmp_path / "my file's.db").is_file()


def test_a_hostile_database_name_is_refused(tmp_path: Path) -> None:
    with (
        pytest.raises(ConfigError, match="DROP"),
        DuckDBWarehouse(tmp_path).connect('x"; DROP TABLE t'),
    ):
        pass


def test_the_schema_is_made_once(tmp_path: Path) -> None:
    warehouse = DuckDBWarehouse(tmp_path)
    destination = Destination("retail", "sales", "t")
    with warehouse.connect("retail") as con:
        warehouse.ensure_destination(con, destination)
        warehouse.ensure_destination(con, destination)
        con.execute("CREATE TABLE retail.sales.t (a INTEGER)")


def test_read_only_makes_nothing(tmp_path: Path) -> None:
    with DuckDBWarehouse(tmp_path / "w").connect("retail", read_only=True) as con:
        assert con.execute("SELECT count(*) FROM duckdb_tables()").fetchone() == (0,)
    assert not (tmp_path / "w").exists()


def test_read_only_writes_nothing(tmp_path: Path) -> None:
    warehouse = DuckDBWarehouse(tmp_path)
    with warehouse.connect("retail"):
        pass
    with (
        warehouse.connect("retail", read_only=True) as con,
        pytest.raises(duckdb.InvalidInputException),
    ):
        con.execute("CREATE TABLE retail.main.t (a INTEGER)")


@pytest.mark.slow
def test_nothing_is_written_to_the_home_directory_or_here(tmp_path: Path) -> None:
    home, here = tmp_path / "home", tmp_path / "here"
    home.mkdir()
    here.mkdir()
    script = (
        "from pathlib import Path\n"
        "from landfall.s3_access import S3Access\n"
        "from landfall.warehouse.duckdb import DuckDBWarehouse\n"
        "from landfall.warehouse.s3_secret import create_s3_secret\n"
        f"w = DuckDBWarehouse(Path({str(tmp_path / 'w')!r}), options={{'memory_limit': '80MB'}})\n"
        "with w.connect('retail') as con:\n"
        "    create_s3_secret(con, S3Access('k', 's'), 's3://stage/')\n"
        "    con.execute('CREATE TABLE retail.main.t AS SELECT i, md5(i::VARCHAR) AS m "
        "FROM range(1500000) r(i) ORDER BY m')\n"
    )
    env = {**os.environ, "HOME": str(home), "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", script], cwd=here, env=env, check=True, timeout=120)
    assert list(home.iterdir()) == list(here.iterdir()) == []
    assert [path.name for path in (tmp_path / "w").iterdir()] == ["retail.duckdb"]


@pytest.mark.slow
def test_a_second_process_waits_until_the_file_is_free(tmp_path: Path) -> None:
    process = hold(tmp_path / "retail.duckdb", 1.0)
    try:
        with DuckDBWarehouse(tmp_path, lock_timeout=30).connect("retail") as con:
            con.execute("INSERT INTO retail.main.t VALUES (1)")
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_waiting_ends_with_the_process_that_holds_the_file(tmp_path: Path) -> None:
    process = hold(tmp_path / "retail.duckdb", 60)
    started = time.monotonic()
    try:
        with (
            pytest.raises(Locked) as refused,
            DuckDBWarehouse(tmp_path, lock_timeout=0.3).connect("retail"),
        ):
            pass
    finally:
        process.kill()
        process.wait()
    assert isinstance(refused.value, Conflict)
    assert not refused.value.terminal
    assert f"process {process.pid} holds the file" in str(refused.value)
    assert str(tmp_path / "retail.duckdb") in str(refused.value)
    assert time.monotonic() - started < 10


def test_a_connection_of_the_same_process_is_waited_for_too(tmp_path: Path) -> None:
    warehouse = DuckDBWarehouse(tmp_path, lock_timeout=0.1)
    with (
        warehouse.connect("retail"),
        pytest.raises(Locked, match="this process"),
        warehouse.connect("retail"),
    ):
        pass


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(WarehouseError) as refused,
        DuckDBWarehouse(tmp_path / "file" / "w").connect("retail"),
    ):
        pass
    assert str(tmp_path / "file" / "w") in str(refused.value)
    assert "Fix:" in str(refused.value)


def test_a_file_of_another_kind_is_named(tmp_path: Path) -> None:
    (tmp_path / "retail.duckdb").write_bytes(b"not a database" * 1_000)
    with (
        pytest.raises(WarehouseError, match=r"retail\.duckdb.*not a valid DuckDB"),
        DuckDBWarehouse(tmp_path).connect("retail"),
    ):
        pass


def test_a_transaction_reports_the_first_error_and_leaves_nothing(tmp_path: Path) -> None:
    warehouse = DuckDBWarehouse(tmp_path)
    with warehouse.connect("retail") as con:
        con.execute("CREATE TABLE retail.main.t (a INTEGER)")
        with pytest.raises(duckdb.ConversionException), warehouse.transaction(con):
            con.execute("INSERT INTO retail.main.t VALUES (1)")
            con.execute("INSERT INTO retail.main.t VALUES ('x')")
        assert con.execute("SELECT count(*) FROM retail.main.t").fetchone() == (0,)


def test_a_swallowed_error_is_never_committed_in_silence(tmp_path: Path) -> None:
    warehouse = DuckDBWarehouse(tmp_path)
    with warehouse.connect("retail") as con:
        con.execute("CREATE TABLE retail.main.t (a INTEGER PRIMARY KEY)")
        with pytest.raises(duckdb.TransactionException), warehouse.transaction(con):
            con.execute("INSERT INTO retail.main.t VALUES (1)")
            with pytest.raises(duckdb.ConstraintException):
                con.execute("INSERT INTO retail.main.t VALUES (1)")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (duckdb.TransactionException("Conflict on update!"), Conflict),
        (duckdb.TransactionException("Failed to commit: PRIMARY KEY violation"), Conflict),
        (duckdb.IOException('Could not set lock on file "x"'), Conflict),
        (duckdb.IOException("Could not connect to server error for HTTP HEAD"), Unreachable),
        (duckdb.ConnectionException("Connection already closed"), Unreachable),
        (duckdb.IOException("write: No space left on device"), WarehouseError),
        (duckdb.IOException('Cannot open file "x": Read-only file system'), WarehouseError),
        (duckdb.FatalException("invalidated: No space left on device"), WarehouseError),
        (duckdb.IOException("No files found that match"), ManifestError),
        (duckdb.InvalidInputException("No magic bytes found at end of file"), ManifestError),
        (duckdb.ConstraintException("NOT NULL constraint failed"), ContractError),
        (duckdb.BinderException("anything else"), WarehouseError),
        (RuntimeError("anything else"), WarehouseError),
    ],
)
def test_each_error_has_its_kind(
    tmp_path: Path, error: Exception, kind: type[LandfallError]
) -> None:
    assert type(DuckDBWarehouse(tmp_path).classify(error)) is kind


def test_an_error_shows_no_statement(tmp_path: Path) -> None:
    error = duckdb.BinderException("no such column\n\nLINE 1: SELECT secret FROM t")
    assert "LINE" not in str(DuckDBWarehouse(tmp_path).classify(error))


@pytest.mark.parametrize(
    ("access", "shown"),
    [
        (S3Access("k", "s", endpoint="http://127.0.0.1:8333"), "endpoint=127.0.0.1:8333"),
        (S3Access("k", "s", endpoint="http://127.0.0.1:8333"), "use_ssl=false"),
        (S3Access("k", "s", endpoint="https://s3.example.com"), "use_ssl=true"),
        (S3Access("k", "s", endpoint="https://s3.example.com"), "url_style=path"),
        (S3Access("k", "s", "t", region="eu-west-1"), "region=eu-west-1"),
        (S3Access(), "scope=s3://stage/"),
    ],
)
def test_the_s3_secret_says_what_the_connection_says(
    tmp_path: Path, access: S3Access, shown: str
) -> None:
    with DuckDBWarehouse(tmp_path).connect("retail") as con:
        create_s3_secret(con, access, "s3://stage/")
        row = con.execute("SELECT secret_string, persistent FROM duckdb_secrets()").fetchone()
    assert row is not None
    assert shown in row[0]
    assert row[1] is False


def test_an_anonymous_secret_has_no_key() -> None:
    text, _ = secret_statement(S3Access(), "s3://stage/", "x")
    assert "KEY_ID" not in text


def test_no_error_shows_the_s3_secret(tmp_path: Path) -> None:
    access = S3Access("key", "hunter2", "token9", endpoint="http://x")
    with DuckDBWarehouse(tmp_path).connect("retail") as con:
        con.execute("SET lock_configuration = true")
        create_s3_secret(con, access, "s3://stage/")

    class Refusing:
        def execute(self, text: str, parameters: object = None) -> None:
            if text.startswith("CREATE"):
                raise duckdb.BinderException(f"cannot bind {parameters}\n\nLINE 1: {text}")

    with pytest.raises(WarehouseError) as refused:
        create_s3_secret(Refusing(), access, "s3://stage/")  # type: ignore[arg-type]
    everything = f"{refused.value!r} {refused.value.__cause__} {refused.value.__context__} {access}"
    assert "hunter2" not in everything
    assert "token9" not in everything


def test_the_factory_opens_a_local_file_by_default(tmp_path: Path) -> None:
    warehouse = open_warehouse(WarehouseConfig(WarehouseKind.DUCKDB, tmp_path, lock_timeout=5))
    assert isinstance(warehouse, DuckDBWarehouse)
    assert warehouse.lock_timeout == 5
    assert str(tmp_path) in warehouse.describe()
