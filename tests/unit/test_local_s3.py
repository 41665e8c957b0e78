from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import ClientError

from landfall import local_s3
from landfall.local_s3 import LocalS3, LocalS3Error


def client(server: LocalS3, secret_key: str | None = None) -> Any:
    return boto3.client(
        "s3",
        endpoint_url=server.endpoint,
        region_name="us-east-1",
        aws_access_key_id=server.access_key,
        aws_secret_access_key=secret_key or server.secret_key,
        config=Config(retries={"max_attempts": 1}, proxies={}),
    )


def status_code(error: pytest.ExceptionInfo[ClientError]) -> int:
    return int(error.value.response["ResponseMetadata"]["HTTPStatusCode"])


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, LocalS3]]:
    """One server for the tests that leave it running as it is."""
    directory = tmp_path_factory.mktemp("s3")
    try:
        yield directory, local_s3.start(directory)
    finally:
        local_s3.stop(directory)


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """A directory of its own for a test that stops, restarts or breaks its server."""
    yield tmp_path
    local_s3.stop(tmp_path)


def test_the_buckets_are_there_from_the_start(shared: tuple[Path, LocalS3]) -> None:
    names = {bucket["Name"] for bucket in client(shared[1]).list_buckets()["Buckets"]}
    assert {"landing", "stage"} <= names


def test_starting_twice_gives_the_same_server(shared: tuple[Path, LocalS3]) -> None:
    assert local_s3.start(shared[0]) == shared[1]


def test_a_second_start_adds_missing_buckets(shared: tuple[Path, LocalS3]) -> None:
    local_s3.start(shared[0], buckets=("extra",))
    client(shared[1]).put_object(Bucket="extra", Key="a", Body=b"x")


def test_status_is_the_running_server(shared: tuple[Path, LocalS3]) -> None:
    assert local_s3.status(shared[0]) == shared[1]


def test_a_wrong_key_gets_403(shared: tuple[Path, LocalS3]) -> None:
    with pytest.raises(ClientError) as error:
        client(shared[1], secret_key="wrong").list_objects_v2(Bucket="landing")
    assert status_code(error) == 403


def test_an_anonymous_caller_gets_403(shared: tuple[Path, LocalS3]) -> None:
    anonymous = boto3.client(
        "s3",
        endpoint_url=shared[1].endpoint,
        region_name="us-east-1",
        config=Config(signature_version=UNSIGNED, proxies={}),
    )
    with pytest.raises(ClientError) as error:
        anonymous.list_objects_v2(Bucket="landing")
    assert status_code(error) == 403


def test_a_write_to_a_missing_bucket_fails(shared: tuple[Path, LocalS3]) -> None:
    with pytest.raises(ClientError) as error:
        client(shared[1]).put_object(Bucket="missing", Key="a", Body=b"x")
    assert error.value.response["Error"]["Code"] == "NoSuchBucket"


def test_the_credentials_are_in_no_command_line_and_no_log(shared: tuple[Path, LocalS3]) -> None:
    directory, server = shared
    command = Path(f"/proc/{server.pid}/cmdline")
    if command.exists():
        assert server.secret_key.encode() not in command.read_bytes()
        assert server.access_key.encode() not in command.read_bytes()
    assert server.secret_key not in (directory / "server.log").read_text(errors="replace")
    assert server.secret_key not in repr(server)


@pytest.mark.parametrize("name", ["state.json", "connection.json"])
def test_the_files_with_credentials_are_private(shared: tuple[Path, LocalS3], name: str) -> None:
    assert (shared[0] / name).stat().st_mode & 0o777 == 0o600


def test_the_connection_is_what_airflow_expects(shared: tuple[Path, LocalS3]) -> None:
    directory, server = shared
    connection = json.loads(server.connection_json())
    assert connection["conn_type"] == "aws"
    assert connection["login"] == server.access_key
    assert connection["password"] == server.secret_key
    assert connection["extra"]["endpoint_url"] == server.endpoint
    assert (directory / "connection.json").read_text() == server.connection_json()


@pytest.mark.slow
def test_two_servers_run_side_by_side(shared: tuple[Path, LocalS3], directory: Path) -> None:
    other = local_s3.start(directory)
    client(other).put_object(Bucket="landing", Key="only-here", Body=b"x")
    assert "Contents" not in client(shared[1]).list_objects_v2(Bucket="landing")


@pytest.mark.slow
def test_data_port_and_credentials_survive_a_restart(directory: Path) -> None:
    first = local_s3.start(directory)
    client(first).put_object(Bucket="landing", Key="a/b", Body=b"kept")
    local_s3.stop(directory)
    second = local_s3.start(directory)
    assert (second.endpoint, second.secret_key) == (first.endpoint, first.secret_key)
    assert client(second).get_object(Bucket="landing", Key="a/b")["Body"].read() == b"kept"


@pytest.mark.slow
def test_data_survives_when_every_old_port_is_taken(directory: Path) -> None:
    first = local_s3.start(directory)
    client(first).put_object(Bucket="landing", Key="a/b", Body=b"kept")
    local_s3.stop(directory)
    listeners = []
    for port in json.loads((directory / "state.json").read_text())["ports"].values():
        listeners.append(socket.create_server(("127.0.0.1", port)))
    try:
        second = local_s3.start(directory)
        assert second.endpoint != first.endpoint
        assert client(second).get_object(Bucket="landing", Key="a/b")["Body"].read() == b"kept"
    finally:
        for listener in listeners:
            listener.close()


@pytest.mark.slow
def test_stop_leaves_no_process_and_no_status(directory: Path) -> None:
    server = local_s3.start(directory)
    local_s3.stop(directory)
    assert not local_s3._is_ours(server.pid, directory)
    assert local_s3.status(directory) is None
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", int(server.endpoint.rpartition(":")[2])), 1)


def test_stop_without_a_server_does_nothing(tmp_path: Path) -> None:
    local_s3.stop(tmp_path)
    local_s3.stop(tmp_path / "missing")


def test_a_port_that_is_taken_is_an_error_that_names_it(directory: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(LocalS3Error, match=str(port)):
            local_s3.start(directory, port=port)


@pytest.mark.slow
def test_starters_at_the_same_time_get_one_server(directory: Path) -> None:
    servers: list[LocalS3] = []
    threads = [
        threading.Thread(target=lambda: servers.append(local_s3.start(directory))) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(servers) == 3 and len(set(servers)) == 1
