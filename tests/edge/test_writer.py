"""Batches: when they close, what is in them, and where what does not fit goes."""

from __future__ import annotations

import logging
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from landfall.edge.clock import SetClock
from landfall.edge.config import Batch, BufferConfig, DateOf, Output
from landfall.edge.journal import BatchRow
from landfall.edge.run import reporting
from landfall.edge.status import age
from landfall.edge.writer import EdgeWriter, Stopping
from landfall.errors import ConfigError
from landfall.partition import HIVE_NULL
from tests.edge.conftest import QUICK, MakeConfig
from tests.edge.reading import NOON, crash, dead_letters, files_in, ids, rows_in, sales
from tests.edge.test_buffer import wait_for

REGION = {"store_region": "NW"}


def closed_by(writer: EdgeWriter) -> list[BatchRow]:
    """The batches closed so far, in order."""
    assert writer.wait_until_shipped(20)
    return writer.buffer.journal.shipped(before=None, limit=99)


def names(folder: Path) -> list[str]:
    return [name.rpartition("/")[2] for name in files_in(folder)]


def test_what_was_written_is_there(make_config: MakeConfig, tmp_path: Path) -> None:
    records = sales(25)
    with EdgeWriter(make_config()) as writer:
        for record in records:
            writer.write(record)
    assert sorted(rows_in(tmp_path / "out"), key=lambda r: r["event_at"]) == records


def test_a_batch_closes_by_count_for_each_region(make_config: MakeConfig) -> None:
    with EdgeWriter(make_config(), ticking=False) as writer:
        for record in sales(9, store="S001") + sales(12, store="S002"):
            writer.write(record)
        (closed,) = closed_by(writer)
        assert (closed.records, "region=NW" in closed.key) == (10, True)


def test_a_batch_closes_by_size(make_config: MakeConfig) -> None:
    config = make_config(batch=Batch(count=1000, bytes=2000, age=3600))
    with EdgeWriter(config, ticking=False) as writer:
        for record in sales(20):
            writer.write(record)
        closed = closed_by(writer)
        assert [batch.records for batch in closed] == [10, 10]


def test_a_batch_closes_by_age_without_another_record(
    make_config: MakeConfig, tmp_path: Path
) -> None:
    config = make_config(batch=Batch(count=1000, age=0.2))
    writer = EdgeWriter(config)
    writer.write(sales(1)[0])
    wait_for(lambda: names(tmp_path / "out"))
    writer.close()


def test_age_is_counted_from_the_first_record(make_config: MakeConfig) -> None:
    clock = SetClock(NOON)
    config = make_config(batch=Batch(count=1000, age=10))
    with EdgeWriter(config, clock=clock, ticking=False) as writer:
        for seconds, record in zip((0, 6, 12), sales(3), strict=True):
            clock.advance_to(NOON + timedelta(seconds=seconds))
            writer.tick()
            writer.write(record)
        closed = closed_by(writer)
        assert [batch.records for batch in closed] == [2]


def test_a_thousand_sales_are_a_zstd_file_of_about_85_kb(
    make_config: MakeConfig, tmp_path: Path
) -> None:
    with EdgeWriter(make_config(batch=Batch())) as writer:
        for record in sales(1000):
            writer.write(record)
    (path,) = (tmp_path / "out").rglob("*.parquet")
    file = pq.ParquetFile(path)
    assert 75_000 <= path.stat().st_size <= 92_000
    assert file.metadata.num_rows == 1000
    assert file.metadata.row_group(0).column(0).compression == "ZSTD"
    assert not {"region", "date"} & set(file.schema_arrow.names)


@pytest.mark.parametrize(
    ("region", "folder"),
    [("NW", "NW"), ("N/W", "N%2FW"), ("", HIVE_NULL)],
)
def test_any_region_is_one_folder(
    region: str, folder: str, make_config: MakeConfig, tmp_path: Path
) -> None:
    with EdgeWriter(make_config()) as writer:
        writer.write(sales(1)[0] | {"store_region": region})
    (name,) = files_in(tmp_path / "out")
    assert name.startswith(f"transactions/region={folder}/date=2026-02-11/batch_")


def test_an_event_of_another_day_is_in_another_folder(
    make_config: MakeConfig, tmp_path: Path
) -> None:
    with EdgeWriter(make_config()) as writer:
        for days, record in enumerate(sales(2)):
            writer.write(record | {"event_at": record["event_at"] - timedelta(days=days)})
    folders = {name.split("/")[2] for name in files_in(tmp_path / "out")}
    assert folders == {"date=2026-02-11", "date=2026-02-10"}


def test_the_clocks_day_is_a_choice(make_config: MakeConfig, tmp_path: Path) -> None:
    clock = SetClock(NOON + timedelta(days=30))
    config = make_config(date=DateOf.CLOCK)
    with EdgeWriter(config, clock=clock, ticking=False) as writer:
        writer.write(sales(1)[0])
    assert files_in(tmp_path / "out")[0].split("/")[2] == "date=2026-03-13"


def test_a_clock_that_goes_backward_neither_collides_nor_waits(
    make_config: MakeConfig, tmp_path: Path
) -> None:
    clock = SetClock(NOON)
    config = make_config(batch=Batch(count=1000, age=10))
    with EdgeWriter(config, clock=clock, ticking=False) as writer:
        for hours, record in enumerate(sales(3)):
            clock.moment = NOON - timedelta(hours=hours)
            clock.elapsed += 5
            writer.write(record)
            clock.elapsed += 10
            writer.tick()
        closed = closed_by(writer)
        assert [batch.records for batch in closed] == [1, 1, 1]
    assert len(set(names(tmp_path / "out"))) == 3


def test_restarts_within_one_second_never_collide(make_config: MakeConfig, tmp_path: Path) -> None:
    clock = SetClock(NOON)
    for record in sales(5):
        with EdgeWriter(make_config(), clock=clock, ticking=False) as writer:
            writer.write(record)
    found = names(tmp_path / "out")
    assert [name.split("_")[2] for name in found] == ["001", "002", "003", "004", "005"]
    assert len({name.split("_")[1] for name in found}) == 1


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"store_region": None}, "has no 'store_region', which its path is made of"),
        ({"event_at": None}, "has no time in 'event_at'"),
        ({"quantity": "two"}, "'quantity' is 'two', not a whole number"),
        ({"extra": 1}, "has 'extra', which is not a column"),
    ],
)
def test_a_record_that_does_not_fit_is_a_dead_letter(
    change: dict[str, Any], reason: str, make_config: MakeConfig, tmp_path: Path
) -> None:
    good, bad = sales(2)
    with EdgeWriter(make_config()) as writer:
        writer.write(good)
        writer.write(bad | change)
        writer.flush()
        assert writer.buffer.journal.fact("dead_letters") == 1
        assert writer.buffer.journal.fact("accepted") == 1
    (letter,) = dead_letters(tmp_path / "buffer")
    assert reason in letter["reason"]
    assert letter["record"]["transaction_id"] == bad["transaction_id"]
    assert ids(rows_in(tmp_path / "out")) == ids([good])


def test_a_record_that_only_arrow_refuses_is_a_dead_letter(
    make_config: MakeConfig, tmp_path: Path
) -> None:
    config = make_config(columns={"store_region": "string", "event_at": "timestamp[ns, tz=UTC]"})
    with EdgeWriter(config) as writer:
        writer.write(REGION | {"event_at": "2026-02-11T00:00:00Z"})
        writer.write(REGION | {"event_at": "9999-02-11T00:00:00Z"})
        writer.write(REGION | {"event_at": "9999-02-12T00:00:00Z"})
    assert len(rows_in(tmp_path / "out")) == 1
    assert len(dead_letters(tmp_path / "buffer")) == 2


def test_columns_of_the_first_batch_are_held_after_a_restart(
    make_config: MakeConfig, tmp_path: Path
) -> None:
    config = make_config(columns=None, date=DateOf.CLOCK, batch=Batch(count=2, age=3600))
    with EdgeWriter(config) as writer:
        writer.write(REGION | {"n": 1})
        writer.write(REGION | {"n": 2.5, "note": None})
    with EdgeWriter(config) as writer:
        writer.write(REGION | {"n": "three"})
        writer.write(REGION | {"n": 4, "note": "x"})
    rows = sorted(rows_in(tmp_path / "out"), key=lambda row: row["n"])
    assert [(row["n"], row["note"]) for row in rows] == [(1.0, None), (2.5, None), (4.0, "x")]
    assert [letter["record"]["n"] for letter in dead_letters(tmp_path / "buffer")] == ["three"]


def test_the_first_batch_closes_by_age_too(make_config: MakeConfig, tmp_path: Path) -> None:
    config = make_config(columns=None, date=DateOf.CLOCK, batch=Batch(count=1000, age=0.2))
    writer = EdgeWriter(config)
    writer.write(REGION | {"n": 1})
    wait_for(lambda: names(tmp_path / "out"))
    writer.close()


def test_a_field_that_the_path_says_is_not_in_the_files(
    make_config: MakeConfig, tmp_path: Path
) -> None:
    path = "t/shop={shop}/b_{count}_{writer}.parquet"
    config = make_config(columns={"shop": "string", "n": "int8"}, path=path)
    with EdgeWriter(config) as writer:
        writer.write({"shop": "A", "n": 1})
    assert rows_in(tmp_path / "out") == [{"n": 1}]


def test_a_resumed_source_is_taken_once(make_config: MakeConfig, tmp_path: Path) -> None:
    """Two regions: the first one's batch is durable, the second one's was lost in a crash."""
    records = [r for pair in zip(sales(10), sales(10, store="S002"), strict=True) for r in pair]
    crashed = EdgeWriter(make_config(), ticking=False)
    for position, record in enumerate(records[:19]):
        crashed.write(record, source="till", position=position)
    crash(crashed)
    with EdgeWriter(make_config(), ticking=False) as writer:
        assert writer.resume_at("till") == 1
        taken = [
            writer.write(records[n], source="till", position=n)
            for n in range(writer.resume_at("till"), len(records))
        ]
    assert sum(taken) == 10
    assert ids(rows_in(tmp_path / "out")) == ids(records)


def test_a_full_buffer_stops_the_input_until_there_is_room(
    make_config: MakeConfig, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "landfall.edge")
    (tmp_path / "out").touch()  # where the output's folder should be
    records = sales(60)
    buffer = BufferConfig(folder=tmp_path / "buffer", max_bytes=25_000)
    writer = EdgeWriter(make_config(buffer=buffer), ticking=False)
    taking = threading.Thread(target=lambda: [writer.write(one) for one in records])
    taking.start()
    wait_for(lambda: "the buffer is full (buffer.max_bytes 25000)" in caplog.text)
    assert taking.is_alive()
    assert 25_000 <= writer.buffer.size < 40_000
    (tmp_path / "out").unlink()
    taking.join(20)
    assert "there is room in the buffer: input is taken again" in caplog.text
    assert writer.close()
    assert ids(rows_in(tmp_path / "out")) == ids(records)


def test_a_full_buffer_can_be_stopped(make_config: MakeConfig, tmp_path: Path) -> None:
    (tmp_path / "out").touch()
    buffer = BufferConfig(folder=tmp_path / "buffer", max_bytes=1)
    writer = EdgeWriter(make_config(buffer=buffer), ticking=False)
    for record in sales(10):
        writer.write(record)
    writer.stopping.set()
    with pytest.raises(Stopping):
        writer.write(sales(1)[0])
    assert not writer.close(drain_seconds=0)


def test_shipped_batches_are_removed_after_their_time(make_config: MakeConfig) -> None:
    clock = SetClock(NOON)
    with EdgeWriter(make_config(), clock=clock, ticking=False) as writer:
        for record in sales(10):
            writer.write(record)
        assert writer.wait_until_shipped(20)
        clock.advance_to(NOON + timedelta(days=6.9))
        writer.tick()
        assert writer.buffer.size > 0
        clock.advance_to(NOON + timedelta(days=7.1))
        writer.tick()
        assert writer.buffer.size == 0
        assert writer.buffer.journal.fact("shipped_batches") == 1


def test_every_output_gets_every_batch(make_config: MakeConfig, tmp_path: Path) -> None:
    outputs = [Output(folder=tmp_path / name, backoff=QUICK) for name in ("a", "b")]
    with EdgeWriter(make_config(*outputs)) as writer:
        for record in sales(25):
            writer.write(record)
    assert files_in(tmp_path / "a") == files_in(tmp_path / "b")
    assert len(rows_in(tmp_path / "a")) == 25


def test_an_output_that_fails_does_not_hold_up_another(
    make_config: MakeConfig, tmp_path: Path
) -> None:
    (tmp_path / "b").touch()
    outputs = [Output(folder=tmp_path / name, backoff=QUICK) for name in ("a", "b")]
    writer = EdgeWriter(make_config(*outputs), ticking=False)
    for record in sales(20):
        writer.write(record)
    wait_for(lambda: len(rows_in(tmp_path / "a")) == 20)
    assert writer.buffer.bytes_waiting > 0
    (tmp_path / "b").unlink()
    assert writer.close()
    assert files_in(tmp_path / "a") == files_in(tmp_path / "b")


def test_an_output_that_is_taken_away_holds_up_nothing(
    make_config: MakeConfig, tmp_path: Path
) -> None:
    (tmp_path / "b").touch()
    outputs = [Output(folder=tmp_path / name, backoff=QUICK) for name in ("a", "b")]
    writer = EdgeWriter(make_config(*outputs), ticking=False)
    for record in sales(20):
        writer.write(record)
    wait_for(lambda: writer.buffer.journal.waiting_number(outputs[0].name) == 0)
    assert not writer.close(drain_seconds=0)
    with EdgeWriter(make_config(outputs[0]), ticking=False) as again:
        assert again.buffer.bytes_waiting == 0
        assert again.buffer.journal.fact("shipped_batches") == 2


def test_a_file_that_is_there_is_not_overwritten_and_others_go_on(
    make_config: MakeConfig, tmp_path: Path
) -> None:
    clock = SetClock(NOON)
    unix = int(NOON.timestamp())
    taken = tmp_path / f"out/transactions/region=NE/date=2026-02-11/batch_{unix}_001_w.parquet"
    taken.parent.mkdir(parents=True)
    taken.write_bytes(b"somebody else's")
    writer = EdgeWriter(make_config(), clock=clock, writer="w", ticking=False)
    for record in sales(20):
        writer.write(record)
    wait_for(lambda: len(names(tmp_path / "out")) == 2)
    assert not writer.wait_while_shipping()  # which ends, although something is left
    error = next(iter(writer.buffer.journal.outputs().values()))[1]
    assert error is not None
    assert "exists with other content, and is not overwritten" in error
    writer.close(drain_seconds=0)
    assert taken.read_bytes() == b"somebody else's"


def test_a_writer_without_a_buffer_is_an_error(make_config: MakeConfig) -> None:
    with pytest.raises(ConfigError, match=r"buffer.folder is missing"):
        EdgeWriter(make_config(buffer=BufferConfig()))


def test_progress_is_logged_again_and_again(
    make_config: MakeConfig, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "landfall.edge")
    monkeypatch.setattr("landfall.edge.run._PROGRESS_SECONDS", 0.02)
    with EdgeWriter(make_config()) as writer, reporting(writer):
        for record in [*sales(10), {}]:
            writer.write(record)
        writer.flush()
        assert writer.wait_until_shipped(60)
        said = "accepted 10 records, shipped 1 batches, dead letters 1, waiting 0 batches (0 bytes)"
        wait_for(lambda: caplog.text.count(said) >= 2)


def test_an_age_is_never_negative() -> None:
    assert age(datetime.now(UTC) + timedelta(hours=1)) == 0


def test_a_closed_writer_takes_nothing(make_config: MakeConfig) -> None:
    writer = EdgeWriter(make_config())
    writer.close()
    with pytest.raises(ValueError, match="the writer is closed"):
        writer.write(sales(1)[0])
