"""The commands, as processes: how they end, what they say, and that a kill does no harm."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from landfall import retail
from landfall.edge.config import read_edge_config
from landfall.edge.status import read_status
from landfall.local_s3 import LocalS3
from tests.edge.reading import (
    as_json,
    dead_letters,
    ids,
    objects_in,
    rows_in,
    rows_in_bucket,
    sales,
)
from tests.edge.test_buffer import wait_for
from tests.edge.test_inputs import append

pytestmark = pytest.mark.slow
COMMAND = [sys.executable, "-m", "landfall.cli", "edge"]
WriteConfig = Callable[..., Path]


@pytest.fixture
def write_config(tmp_path: Path) -> WriteConfig:
    def write(**changes: Any) -> Path:
        document = {
            "columns": retail.COLUMNS,
            "batch": {"count": 10, "age": "1 h"},
            "outputs": [{"folder": "out"}],
            "buffer": {"folder": "buffer"},
        }
        path = tmp_path / "shop.yaml"
        path.write_text(yaml.safe_dump(document | changes))
        return path

    return write


def run(*arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        **options,
    )


@contextmanager
def started(config: Path, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """`edge run` in the background; whatever happens, it does not outlive its test."""
    command = [*COMMAND, "run", str(config)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **options) as process:
        try:
            yield process
        finally:
            process.kill()


def status(config: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run("status", config, "--json").stdout)
    return found


def test_standard_input_is_shipped_when_it_ends(write_config: WriteConfig, tmp_path: Path) -> None:
    records = sales(25)
    lines = "\n".join([*map(as_json, records), "not a record"])
    done = run("run", write_config(), input=lines)
    assert done.returncode == 0, done.stderr
    assert "ended: all is shipped" in done.stderr
    assert ids(rows_in(tmp_path / "out")) == ids(records)
    assert [letter["line"] for letter in dead_letters(tmp_path / "buffer")] == ["not a record"]


def test_status_tells_all_without_disturbing(write_config: WriteConfig, tmp_path: Path) -> None:
    config = write_config()
    assert status(config)["writer"] is None
    lines = "\n".join([*map(as_json, sales(25)), "not a record"])
    assert run("run", config, input=lines).returncode == 0
    found = status(config)
    assert (found["accepted"], found["dead_letters"], found["running"]) == (25, 1, None)
    assert found["buffered"] == {"batches": 0, "records": 0, "bytes": 0}
    assert (found["shipped"]["batches"], found["shipped"]["records"]) == (3, 25)
    assert (found["oldest_unshipped_at"], found["last_error"]) == (None, None)
    shown = run("status", config)
    assert shown.returncode == 0
    assert "25 records" in shown.stdout
    assert "0 batches wait" in shown.stdout


def test_status_and_replay_after_an_outage(
    write_config: WriteConfig, s3_server: LocalS3, s3: Any, bucket: str, tmp_path: Path
) -> None:
    """A missing place for the output, then a place: replay ships the rest, once."""
    output = {"s3": f"s3://{bucket}-later", "endpoint": s3_server.endpoint}
    config = write_config(outputs=[output], input={"files": ["in.jsonl"]})
    append(tmp_path / "in.jsonl", sales(20))
    with started(config) as process:
        wait_for(lambda: (tmp_path / "buffer" / "journal.db").exists())
        wait_for(lambda: read_status(tmp_path / "buffer", []).last_error)
        wait_for(lambda: read_status(tmp_path / "buffer", []).accepted == 20)
        found = status(config)
        assert found["running"] == process.pid
        assert found["buffered"]["records"] == 20
        assert found["oldest_unshipped_seconds"] >= 0
        assert "does not exist: create it" in found["last_error"]
        assert s3_server.secret_key not in json.dumps(found)
        refused = run("replay", config)
        assert refused.returncode == 1
        assert f"another writer (process {process.pid}) uses this buffer" in refused.stderr
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=60)
        assert process.returncode == 0
    assert "the rest waits in the buffer" in said
    assert s3_server.secret_key not in said
    s3.create_bucket(Bucket=f"{bucket}-later")
    done = run("replay", config)
    assert done.returncode == 0, done.stderr
    assert len(rows_in_bucket(s3, f"{bucket}-later")) == 20


def test_replay_puts_back_what_is_missing_and_doubles_nothing(
    write_config: WriteConfig, s3_server: LocalS3, s3: Any, bucket: str
) -> None:
    output = {"s3": f"s3://{bucket}", "endpoint": s3_server.endpoint}
    config = write_config(outputs=[output])
    assert run("run", config, input="\n".join(map(as_json, sales(30)))).returncode == 0
    before = objects_in(s3, bucket)
    s3.delete_object(Bucket=bucket, Key=min(before))
    done = run("replay", config, "--shipped")
    assert done.returncode == 0, done.stderr
    assert objects_in(s3, bucket) == before
    assert status(config)["shipped"]["batches"] == 3


def test_sigterm_flushes_ships_and_ends_with_0(write_config: WriteConfig, tmp_path: Path) -> None:
    config = write_config(input={"files": ["in.jsonl"], "poll": "50 ms"})
    records = sales(15)
    append(tmp_path / "in.jsonl", records)
    with started(config) as process:
        wait_for(lambda: rows_in(tmp_path / "out"))
        assert len(rows_in(tmp_path / "out")) == 10
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=60)
        assert process.returncode == 0, said
    assert ids(rows_in(tmp_path / "out")) == ids(records)


def test_sigterm_ends_a_writer_of_standard_input(write_config: WriteConfig, tmp_path: Path) -> None:
    config = write_config(batch={"count": 10, "age": "100 ms"})
    with started(config, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(as_json(sales(1)[0]) + "\n")
        process.stdin.flush()
        wait_for(lambda: rows_in(tmp_path / "out"))
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def test_files_are_taken_exactly_once_by_writers_that_are_killed(
    write_config: WriteConfig, tmp_path: Path
) -> None:
    """A file of three regions grows while `edge run` is killed again and again."""
    batch = {"count": 40, "age": "200 ms"}
    config = write_config(input={"files": ["in"], "poll": "10 ms"}, batch=batch)
    (tmp_path / "in").mkdir()
    stores = [sales(400, store=store) for store in ("S001", "S002", "S003")]
    records = [record for some in zip(*stores, strict=True) for record in some]
    for part in range(4):
        before = _accepted(tmp_path)
        with started(config):  # killed at its end
            for start in range(part * 300, part * 300 + 300, 50):
                some = [*records[start : start + 50], {"x": start}]
                append(tmp_path / "in" / "sales.jsonl", some)
            wait_for(lambda before=before: _accepted(tmp_path) > before)  # type: ignore[misc]
    assert run("run", config, "--once").returncode == 0
    assert ids(rows_in(tmp_path / "out")) == ids(records)
    letters = [letter["record"]["x"] for letter in dead_letters(tmp_path / "buffer")]
    assert sorted(letters) == list(range(0, 1200, 50))


def _accepted(tmp_path: Path) -> int:
    if not (tmp_path / "buffer" / "journal.db").exists():
        return 0
    return read_status(tmp_path / "buffer", []).accepted


def test_memory_does_not_grow_with_the_run(write_config: WriteConfig, tmp_path: Path) -> None:
    """Ten times the input, about the same peak."""
    peaks = []
    line = as_json(sales(1)[0]) + "\n"
    for number, lines in enumerate((4_000, 40_000)):
        config = write_config(
            batch={"count": 500, "age": "1 h"}, buffer={"folder": f"buffer-{number}"}
        )
        source = tmp_path / "lines"
        source.write_text(line * lines)
        code = (
            "import resource, sys; from landfall.cli import main;"
            f"assert main(['edge', 'run', {str(config)!r}]) == 0;"
            "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
        )
        with source.open() as handle:
            done = subprocess.run(
                [sys.executable, "-c", code],
                stdin=handle,
                capture_output=True,
                text=True,
                check=True,
            )
        peaks.append(int(done.stdout))
    assert peaks[1] < peaks[0] * 1.25


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("outputs: []", "outputs: name at least one"),
        ("outputs: [{folder: a}]\ninputs: {}", "Did you mean 'input'?"),
    ],
)
def test_a_wrong_config_is_one_message(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "shop.yaml"
    path.write_text(text)
    done = run("run", path)
    assert done.returncode == 1
    assert done.stderr.startswith(f"landfall: {path}: ")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_defaults_of_a_config_lie_in_the_home(
    write_config: WriteConfig, tmp_path: Path
) -> None:
    config = write_config(buffer={})
    env = {**os.environ, "LANDFALL_HOME": str(tmp_path / "home")}
    assert run("run", config, input=as_json(sales(1)[0]), env=env).returncode == 0
    assert read_edge_config(config, tmp_path / "home").buffer.folder == tmp_path / "home/edge/shop"
    assert (tmp_path / "home" / "edge" / "shop" / "journal.db").exists()
