"""What a crash, a second writer, another version or a full disk can do to a buffer."""

from __future__ import annotations

import json
import logging
import os
import resource
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from landfall.edge.buffer import Buffer, Commit, Damaged, Sealed
from landfall.edge.clock import Clock
from landfall.edge.config import Batch, BufferConfig, Output
from landfall.edge.files import append_durably, create_durably
from landfall.edge.home import EdgeBufferError
from landfall.edge.journal import SourceState
from landfall.edge.writer import EdgeWriter
from tests.edge.conftest import MakeConfig
from tests.edge.reading import NOON, dead_letters, ids, rows_in, sales

T = TypeVar("T")
SEALED = Sealed("region=NW/batch.parquet", 3, b"body", NOON)


def open_buffer(folder: Path, **changes: object) -> Buffer:
    settings = {"max_bytes": 10**9, "retention": 60.0, "clock": Clock(), "writer": None}
    return Buffer(folder, **(settings | changes))  # type: ignore[arg-type]


def test_a_second_writer_is_refused_with_the_first_ones_process(tmp_path: Path) -> None:
    first = open_buffer(tmp_path)
    with pytest.raises(EdgeBufferError, match=rf"another writer \(process {os.getpid()}\)"):
        open_buffer(tmp_path)
    first.close()
    open_buffer(tmp_path).close()


def test_the_writers_id_is_made_once(tmp_path: Path) -> None:
    writers = set()
    for _ in range(3):
        buffer = open_buffer(tmp_path / "one")
        writers.add(buffer.writer)
        buffer.close()
    other = open_buffer(tmp_path / "two")
    other.close()
    assert len(writers) == 1
    assert other.writer not in writers


def test_another_version_is_refused_and_untouched(tmp_path: Path) -> None:
    (tmp_path / "format.json").write_text(
        json.dumps({"format": "landfall-edge-buffer", "version": 2, "writer": "x"})
    )
    (tmp_path / "batches").mkdir()
    (tmp_path / "batches" / ".new.part").write_bytes(b"x")
    with pytest.raises(EdgeBufferError, match="has version 2, and this writer knows version 1"):
        open_buffer(tmp_path)
    assert (tmp_path / "batches" / ".new.part").exists()


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "holiday.jpg").touch()
    with pytest.raises(EdgeBufferError, match=r"not a buffer: it holds 'holiday.jpg'"):
        open_buffer(tmp_path)


def test_a_journal_that_is_no_database_is_a_clear_error(tmp_path: Path) -> None:
    open_buffer(tmp_path).close()
    (tmp_path / "journal.db").write_bytes(b"not a database, but long enough to look like one" * 9)
    with pytest.raises(EdgeBufferError, match=r"journal.db cannot be read"):
        open_buffer(tmp_path)


def test_what_a_crash_left_half_written_is_removed(tmp_path: Path) -> None:
    buffer = open_buffer(tmp_path)
    buffer.commit(Commit([SEALED], letters=[{"reason": "first"}]))
    buffer.close()
    (tmp_path / "batches" / ".000000000002.parquet.part").write_bytes(b"half")
    (tmp_path / "batches" / "000000000002.parquet").write_bytes(b"whole, but never counted")
    letters = next((tmp_path / "dead_letters").glob("*.jsonl"))
    with letters.open("a") as handle:
        handle.write('{"reason": "never counted"}\n{"rea')
    open_buffer(tmp_path).close()
    assert [path.name for path in (tmp_path / "batches").iterdir()] == ["000000000001.parquet"]
    assert dead_letters(tmp_path) == [{"reason": "first"}]


def test_positions_and_totals_outlive_a_restart(tmp_path: Path) -> None:
    buffer = open_buffer(tmp_path)
    state = SourceState("/var/pos/a.jsonl", 120, ((20, 40),))
    buffer.commit(Commit([SEALED], [{"reason": "x"}], {"file:1": state}, {"a": "int8"}))
    buffer.close()
    again = open_buffer(tmp_path)
    assert again.journal.sources() == {"file:1": state}
    assert again.columns == {"a": "int8"}
    assert again.next_count == 2
    assert (again.journal.fact("accepted"), again.journal.fact("dead_letters")) == (3, 1)
    assert again.size == again.bytes_waiting == len(SEALED.body)
    again.close()


def test_a_batch_that_was_changed_is_not_shipped(tmp_path: Path) -> None:
    buffer = open_buffer(tmp_path)
    buffer.commit(Commit([SEALED, SEALED]))
    one, two = buffer.journal.waiting("s3://x", without=(), limit=2)
    (tmp_path / "batches" / "000000000001.parquet").write_bytes(b"bodY")
    (tmp_path / "batches" / "000000000002.parquet").unlink()
    for batch in (one, two):
        with pytest.raises(Damaged, match=f"{batch.count:012d}.parquet"):
            buffer.read(batch)
    buffer.close()


def test_a_file_is_created_once(tmp_path: Path) -> None:
    create_durably(tmp_path / "a", b"one")
    with pytest.raises(FileExistsError):
        create_durably(tmp_path / "a", b"two")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("a", b"one")]


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """The system refuses to write more than this to a file."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_an_append_that_fails_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "letters"
    append_durably(path, b"x" * 60)
    with largest_file(100), pytest.raises(OSError, match="File too large"):
        append_durably(path, b"y" * 60)
    assert path.read_bytes() == b"x" * 60


def wait_for(condition: Callable[[], T], *, seconds: float = 60, every: float = 0.01) -> T:
    """What the condition gives as soon as it holds."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if found := condition():
            return found
        time.sleep(every)
    raise AssertionError("it did not come true in time")


@pytest.mark.parametrize("room", [4_000, "journal"], ids=["batch", "journal"])
def test_a_refusing_disk_stops_the_input_and_loses_nothing(
    room: int | str, make_config: MakeConfig, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The limit hits the batch's own file, or only the journal behind it."""
    caplog.set_level(logging.INFO, "landfall.edge")
    config = make_config()
    writer = EdgeWriter(config, ticking=False)
    records = sales(25)
    size = (tmp_path / "buffer" / "journal.db-wal").stat().st_size if room == "journal" else room
    taking = threading.Thread(target=lambda: [writer.write(one) for one in records])
    with largest_file(int(size)):
        taking.start()
        wait_for(lambda: "the buffer cannot be written" in caplog.text)
        assert taking.is_alive()
        assert writer.buffer.journal.fact("accepted", 0) == 0
    taking.join(20)
    assert not taking.is_alive()
    assert "can be written again: input is taken again" in caplog.text
    assert writer.close()
    assert ids(rows_in(tmp_path / "out")) == ids(records)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=600k", "landfall-test", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small disk needs root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(disk: Path) -> Path:
    filler = disk / "filler"
    with pytest.raises(OSError, match="No space left"), filler.open("wb", buffering=0) as handle:
        while True:
            handle.write(b"x" * 4096)
    return filler


def test_a_full_disk_stops_the_input_and_loses_nothing(
    small_disk: Path, make_config: MakeConfig, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = make_config(buffer=BufferConfig(folder=small_disk / "buffer"))
    writer = EdgeWriter(config, ticking=False)
    filler = fill(small_disk)
    records = sales(50)
    taking = threading.Thread(target=lambda: [writer.write(one) for one in records])
    taking.start()
    wait_for(lambda: "No space left on device" in caplog.text)
    filler.unlink()
    taking.join(20)
    assert not taking.is_alive()
    assert writer.close()
    assert ids(rows_in(tmp_path / "out")) == ids(records)


def test_on_a_full_disk_shipped_batches_are_given_up_first(
    small_disk: Path, make_config: MakeConfig, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = make_config(
        batch=Batch(count=100, age=3600), buffer=BufferConfig(folder=small_disk / "buffer")
    )
    records = sales(1100)
    with EdgeWriter(config, ticking=False) as writer:
        for record in records[:1000]:
            writer.write(record)
        assert writer.wait_until_shipped(60)
        filler = fill(small_disk)
        for record in records[1000:]:
            writer.write(record)
        assert writer.wait_until_shipped(60)
    assert filler.exists()
    assert "removed early, to make room" in caplog.text
    assert ids(rows_in(tmp_path / "out")) == ids(records)


def test_shipped_batches_make_room_before_the_input_stops(
    make_config: MakeConfig, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = make_config(buffer=BufferConfig(folder=tmp_path / "buffer", max_bytes=20_000))
    with EdgeWriter(config, ticking=False) as writer:
        for record in sales(100):
            writer.write(record)
        writer.wait_until_shipped(20)
        assert writer.buffer.size < 40_000
    assert len(rows_in(tmp_path / "out")) == 100
    assert "removed early, to make room" in caplog.text


def test_an_output_that_is_gone_for_good_keeps_unshipped_batches(
    make_config: MakeConfig, tmp_path: Path
) -> None:
    """Neither time nor space removes a batch that was not shipped."""
    (tmp_path / "file").touch()
    lost = Output(folder=tmp_path / "file" / "below")
    buffer = BufferConfig(folder=tmp_path / "buffer", retention=0.001, max_bytes=1_000_000)
    writer = EdgeWriter(make_config(lost, buffer=buffer), ticking=False)
    for record in sales(20):
        writer.write(record)
    writer.buffer.expire()
    writer.buffer.make_room(10**9)
    assert not writer.close(drain_seconds=0)
    assert len(list((tmp_path / "buffer" / "batches").iterdir())) == 2
