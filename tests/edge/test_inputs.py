"""Files that grow: every line is taken once, wherever a run ends."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from landfall.edge.config import Batch
from landfall.edge.inputs import FileInput, read_stream
from landfall.edge.writer import EdgeWriter
from tests.edge.conftest import MakeConfig
from tests.edge.reading import as_json, crash, dead_letters, ids, rows_in, sales

MAX_LINE = 2_000


class Run:
    """A writer that reads files; `crash` ends it as a kill would."""

    def __init__(self, make_config: MakeConfig, *places: Path | str, **changes: Any) -> None:
        self.writer = EdgeWriter(make_config(**changes), ticking=False)
        self._files = FileInput([str(place) for place in places], self.writer, MAX_LINE)

    def read(self) -> Run:
        while self._files.read_some():
            pass
        return self

    def crash(self) -> None:
        crash(self.writer)

    def end(self) -> None:
        assert self.writer.close(drain_seconds=60)


def append(path: Path, records: list[dict[str, Any]], end: str = "\n") -> None:
    with path.open("a", encoding="utf-8") as handle:
        handle.write("\n".join(map(as_json, records)) + end)


def test_a_file_that_grows_is_read_on(make_config: MakeConfig, tmp_path: Path) -> None:
    path, records = tmp_path / "a.jsonl", sales(30)
    run = Run(make_config, path)
    for start in (0, 10, 20):
        append(path, records[start : start + 10])
        run.read()
    run.end()
    assert ids(rows_in(tmp_path / "out")) == ids(records)


def test_a_restart_goes_on_where_the_last_run_stopped(
    make_config: MakeConfig, tmp_path: Path
) -> None:
    path, records = tmp_path / "a.jsonl", sales(30)
    append(path, records[:20])
    Run(make_config, path).read().end()
    append(path, records[20:])
    Run(make_config, path).read().end()
    assert ids(rows_in(tmp_path / "out")) == ids(records)


def test_a_crash_between_batches_of_two_regions_neither_loses_nor_doubles(
    make_config: MakeConfig, tmp_path: Path
) -> None:
    """The first region's batch is durable, the second one's lines lie in between and are not."""
    path = tmp_path / "a.jsonl"
    pairs = zip(sales(14), sales(14, store="S002"), strict=True)
    records = [record for pair in pairs for record in pair]
    append(path, records[:19])
    first = Run(make_config, path).read()
    assert first.writer.buffer.journal.fact("accepted") == 10
    first.crash()
    append(path, records[19:])
    second = Run(make_config, path).read()
    second.crash()
    Run(make_config, path).read().end()
    assert ids(rows_in(tmp_path / "out")) == ids(records)


def test_a_file_that_vanished_too_early_is_named(
    make_config: MakeConfig, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "a.jsonl"
    append(path, [*sales(3, store="S002"), *sales(10)])
    Run(make_config, path).read().crash()
    path.unlink()
    Run(make_config, path).read().end()
    assert f"{path} is gone, and its last records were not durable yet" in caplog.text


def test_dead_letters_are_not_doubled_by_a_crash(make_config: MakeConfig, tmp_path: Path) -> None:
    path, records = tmp_path / "a.jsonl", sales(12)
    path.write_text('{"broken\n')
    append(path, records)
    Run(make_config, path).read().crash()
    with path.open("a") as handle:
        handle.write("[]\n")
    Run(make_config, path).read().end()
    letters = dead_letters(tmp_path / "buffer")
    assert [letter["line"] for letter in letters] == ['{"broken', "[]"]
    assert letters[0]["position"] == 0
    assert ids(rows_in(tmp_path / "out")) == ids(records)


def test_a_renamed_file_is_not_read_again(make_config: MakeConfig, tmp_path: Path) -> None:
    inbox, records = tmp_path / "in", sales(20)
    inbox.mkdir()
    append(inbox / "a.jsonl", records[:10])
    run = Run(make_config, inbox).read()
    (inbox / "a.jsonl").rename(inbox / "a.1.jsonl")
    append(inbox / "a.jsonl", records[10:])
    run.read().end()
    assert ids(rows_in(tmp_path / "out")) == ids(records)


def test_a_file_that_was_emptied_and_written_anew_is_read_from_its_start(
    make_config: MakeConfig, tmp_path: Path
) -> None:
    path, records = tmp_path / "a.jsonl", sales(20)
    append(path, records[:10])
    run = Run(make_config, path).read()
    path.write_text("")
    run.read()
    append(path, records[10:])
    run.read().end()
    assert ids(rows_in(tmp_path / "out")) == ids(records)


def test_a_folder_is_all_its_files_of_lines(make_config: MakeConfig, tmp_path: Path) -> None:
    inbox, records = tmp_path / "in", sales(30)
    inbox.mkdir()
    for number, ending in enumerate(("jsonl", "ndjson", "json", "txt", "jsonl.tmp")):
        append(inbox / f"{number}.{ending}", records[number * 6 : number * 6 + 6])
    (inbox / "empty.jsonl").touch()
    (inbox / "folder.jsonl").mkdir()
    Run(make_config, inbox).read().end()
    assert ids(rows_in(tmp_path / "out")) == ids(records[:18])


def test_a_line_that_is_still_being_written_is_waited_for(
    make_config: MakeConfig, tmp_path: Path
) -> None:
    path = tmp_path / "a.jsonl"
    one, two = sales(2)
    text = as_json(two)
    append(path, [one])
    with path.open("a") as handle:
        handle.write(text[:50])
        handle.flush()
        run = Run(make_config, path).read()
        handle.write(text[50:] + "\n")
    run.read().end()
    assert ids(rows_in(tmp_path / "out")) == ids([one, two])
    assert dead_letters(tmp_path / "buffer") == []


def test_a_last_line_without_an_end_counts(make_config: MakeConfig, tmp_path: Path) -> None:
    path, records = tmp_path / "a.jsonl", sales(3)
    append(path, records[:1], end="")
    run = Run(make_config, path).read()
    append(path, [], end="\n")
    append(path, records[1:], end="")
    run.read().end()
    assert ids(rows_in(tmp_path / "out")) == ids(records)


def test_empty_lines_and_other_line_ends_do_no_harm(
    make_config: MakeConfig, tmp_path: Path
) -> None:
    path, records = tmp_path / "a.jsonl", sales(2)
    path.write_bytes(f"\ufeff{as_json(records[0])}\r\n\r\n \n{as_json(records[1])}\r\n".encode())
    Run(make_config, path).read().end()
    Run(make_config, path).read().end()
    assert ids(rows_in(tmp_path / "out")) == ids(records)


def test_a_line_that_is_too_long_is_a_dead_letter(
    make_config: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("landfall.edge.inputs._CHUNK", 500)
    path, records = tmp_path / "a.jsonl", sales(2)
    append(path, records[:1])
    with path.open("a") as handle:
        handle.write("x" * 9_000)
    run = Run(make_config, path).read()
    append(path, [], end="\n")
    append(path, records[1:])
    run.read().end()
    (letter,) = dead_letters(tmp_path / "buffer")
    assert letter["reason"] == f"is longer than input.max_line ({MAX_LINE} bytes)"
    assert letter["line"] == "x" * MAX_LINE
    assert ids(rows_in(tmp_path / "out")) == ids(records)


def test_a_stream_is_read_to_its_end(make_config: MakeConfig, tmp_path: Path) -> None:
    records = sales(25)
    read, write = os.pipe()
    with os.fdopen(write, "w") as handle:
        handle.write("\n".join(map(as_json, records)) + "\n" + "y" * 3_000 + "\n{}")
    with EdgeWriter(make_config(batch=Batch(count=10, age=3600))) as writer:
        read_stream(read, writer, MAX_LINE)
    os.close(read)
    assert ids(rows_in(tmp_path / "out")) == ids(records)
    reasons = [letter["reason"] for letter in dead_letters(tmp_path / "buffer")]
    assert reasons == [
        f"is longer than input.max_line ({MAX_LINE} bytes)",
        "has no time in 'event_at', which its date is made of",
    ]
