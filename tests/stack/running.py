"""The stack that the tests share: started by `bin/landfall up`, driven as users drive it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import boto3
import httpx
from botocore.config import Config

from landfall.stack import processes
from landfall.stack.compose import read_env_file
from landfall.stack.state import Phase, StackFolder, State
from landfall.warehouse.duckdb import DuckDBWarehouse

ROOT = Path(__file__).resolve().parents[2]
MINUTES = 60.0
LONG = 9 * MINUTES
"""More than anything here takes on two cores that others use too."""
BY_DAY = "SELECT date, count(*), count(DISTINCT id) FROM {table} GROUP BY date ORDER BY date"
T = TypeVar("T")


def wait_for(look: Callable[[], T | None], what: str, seconds: float = LONG) -> T:
    """What `look` finds once it finds something; an error that names it if it never does."""
    deadline = time.monotonic() + seconds
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < deadline, f"after {seconds:.0f} s still waiting for {what}"
        time.sleep(0.3)


@dataclass
class RunningStack:
    """One stack in a home of its own."""

    home: Path
    settings: dict[str, str]
    supervisor: subprocess.Popen[bytes] | None = None
    _token: str | None = field(default=None, repr=False)

    @property
    def folder(self) -> StackFolder:
        return StackFolder(self.home / "stack")

    @property
    def state(self) -> State:
        return self.folder.read()

    @property
    def output(self) -> str:
        return (self.home / "up.txt").read_text()

    @property
    def env(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        return {**kept, "LANDFALL_HOME": str(self.home), **self.settings}

    @property
    def secrets(self) -> dict[str, str]:
        return read_env_file(self.folder.path / ".env")

    # Its life

    def up(self) -> None:
        with (self.home / "up.txt").open("ab") as output:
            self.supervisor = subprocess.Popen(
                [ROOT / "bin" / "landfall", "up"],
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        started = self.supervisor
        wait_for(
            lambda: (
                started.poll() is not None
                or (self.state.phase is Phase.UP and self.state.supervisor == started.pid)
            ),
            "the stack to be up",
            6 * MINUTES,
        )
        assert started.poll() is None, self.output
        self._token = None

    def keep_up(self) -> None:
        """Starts it, unless it runs."""
        if self.supervisor is None or self.supervisor.poll() is not None:
            self.up()

    def interrupt(self) -> int:
        """Ctrl-C; returns when all of it is over."""
        assert self.supervisor is not None
        self.supervisor.send_signal(signal.SIGINT)
        return self.supervisor.wait(2 * MINUTES)

    def left_overs(self, sessions: dict[int, float | None]) -> list[str]:
        found = processes.members(self.folder.path, sessions)
        return [f"{process.pid} {' '.join(process.cmdline())[:120]}" for process in found]

    def kill_service(self, name: str) -> int:
        """SIGKILL to all processes of a service, as if its machine had died; its old process."""
        sid = self.state.names[name]
        processes.kill(lambda: processes.of_session(sid))
        return sid

    # Airflow's REST API and command

    def api(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        page = self.state.page
        with httpx.Client(trust_env=False, timeout=60) as client:
            if self._token is None:
                user = {"username": "admin", "password": self.secrets["AIRFLOW_ADMIN_PASSWORD"]}
                answer = client.post(f"{page}/auth/token", json=user)
                assert answer.status_code == 201, answer.text
                self._token = answer.json()["access_token"]
            answer = client.request(
                method,
                f"{page}/api/v2{path}",
                json=body,
                params=query,
                headers={"Authorization": f"Bearer {self._token}"},
            )
        assert answer.status_code < 300, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None

    def airflow(self, *arguments: str) -> str:
        """`bin/airflow …` from another terminal."""
        done = subprocess.run(
            [ROOT / "bin" / "airflow", *arguments], env=self.env, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        return done.stdout

    def trigger(self, dag: str, **partition: str) -> str:
        """A run without a logical date, for the partition of its conf."""
        body = {"logical_date": None, "conf": {"partition": partition}}
        return str(self.api("POST", f"/dags/{dag}/dagRuns", body)["dag_run_id"])

    def runs(self, dag: str, **query: Any) -> list[dict[str, Any]]:
        return self.api("GET", f"/dags/{dag}/dagRuns", limit=100, **query)["dag_runs"]

    def tasks(self, dag: str, run: str) -> dict[str, dict[str, Any]]:
        answer = self.api("GET", f"/dags/{dag}/dagRuns/{run}/taskInstances")
        return {task["task_id"]: task for task in answer["task_instances"]}

    def log(self, dag: str, run: str, task: str, number: int = 1) -> str:
        path = f"/dags/{dag}/dagRuns/{run}/taskInstances/{task}/logs/{number}"
        return json.dumps(self.api("GET", path, full_content=True))

    def finished(self, dag: str, run: str, seconds: float = LONG) -> str:
        """The state that the run ends in."""

        def look() -> str | None:
            state = self.api("GET", f"/dags/{dag}/dagRuns/{run}")["state"]
            return state if state in ("success", "failed") else None

        return wait_for(look, f"{dag} {run} to end", seconds)

    def succeeded(self, dag: str, run: str, seconds: float = LONG) -> None:
        state = self.finished(dag, run, seconds)
        if state != "success":
            tasks = self.tasks(dag, run)
            failed = next((t for t in tasks.values() if t["state"] == "failed"), None)
            detail = (
                self.log(dag, run, failed["task_id"], failed["try_number"])[-3000:]
                if failed
                else {name: task["state"] for name, task in tasks.items()}
            )
            raise AssertionError(f"{dag} {run} ended as {state}: {detail}")

    # S3, Spark, the warehouse

    @property
    def s3(self) -> Any:
        return boto3.client(
            "s3",
            endpoint_url=f"http://127.0.0.1:{self.state.ports[8333]}",
            region_name="us-east-1",
            aws_access_key_id=self.secrets["S3_ACCESS_KEY"],
            aws_secret_access_key=self.secrets["S3_SECRET_KEY"],
            config=Config(proxies={}, s3={"addressing_style": "path"}),
        )

    def spark(self, port: int, path: str = "/json/") -> Any:
        with httpx.Client(trust_env=False, timeout=30) as client:
            answer = client.get(f"http://127.0.0.1:{self.state.ports[port]}{path}")
        assert answer.status_code == 200, answer.text
        return answer.json() if path.endswith("/json/") else answer.text

    @contextmanager
    def warehouse(self, database: str) -> Iterator[Any]:
        """Reads the database as soon as no load holds it."""
        with DuckDBWarehouse(self.home / "warehouse").connect(database, read_only=True) as con:
            yield con

    def rows(self, table: str, query: str = "SELECT * FROM {table}", *values: Any) -> list[Any]:
        with self.warehouse(table.partition(".")[0]) as con:
            return con.execute(query.format(table=table), list(values)).fetchall()

    def ledger(self, table: str, dataset: str) -> list[tuple[str, str, int]]:
        """Partition, status and rows of every run that ended, oldest first."""
        schema = table.rpartition(".")[0]
        return self.rows(
            table,
            f"SELECT load_partition, status, row_count FROM {schema}.ingest_runs "
            "WHERE dataset = ? ORDER BY run_at",
            dataset,
        )
