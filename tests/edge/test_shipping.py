"""To a real S3 server, through a proxy that fails: exactly once, whatever happens on the way."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from landfall.edge.clock import SetClock
from landfall.edge.config import Batch, BufferConfig, EdgeConfig, Output
from landfall.edge.writer import EdgeWriter
from landfall.local_s3 import LocalS3
from tests.edge.conftest import QUICK, MakeConfig
from tests.edge.fault_proxy import Fault, FaultProxy
from tests.edge.reading import NOON, ids, objects_in, rows_in_bucket, sales
from tests.edge.test_buffer import wait_for

Through = Callable[..., EdgeConfig]
TIMEOUT = 7  # another one, so that a new client looks for keys


@pytest.fixture
def through(proxy: FaultProxy, make_config: MakeConfig, bucket: str) -> Through:
    """A config whose S3 output goes through the proxy."""

    def make(to: str = f"s3://{bucket}/in", **changes: Any) -> EdgeConfig:
        settings = {"s3": to, "endpoint": proxy.endpoint, "backoff": QUICK, "timeout": 5}
        names = ("max_in_flight", "timeout")
        output = {name: changes.pop(name) for name in names if name in changes}
        return make_config(Output(**(settings | output)), **changes)  # type: ignore[arg-type]

    return make


def test_batches_land_below_the_prefix(through: Through, s3: Any, bucket: str) -> None:
    records = sales(25)
    with EdgeWriter(through()) as writer:
        for record in records:
            writer.write(record)
    found = objects_in(s3, bucket)
    assert len(found) == 3
    assert all(key.startswith("in/transactions/region=NE/date=2026-02-11/batch_") for key in found)
    assert ids(rows_in_bucket(s3, bucket)) == ids(records)


@pytest.mark.parametrize("fault", [Fault.DOWN, Fault.BUSY, Fault.LOST, Fault.EXPIRED])
def test_an_outage_is_outlived_and_every_record_is_there_once(
    fault: Fault, through: Through, proxy: FaultProxy, s3: Any, bucket: str,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    caplog.set_level(logging.INFO, "landfall.edge")
    records = sales(60)
    proxy.fault = fault
    writer = EdgeWriter(through(), ticking=False)
    for record in records:
        writer.write(record)
    wait_for(lambda: proxy.seen[fault] >= 4)
    assert writer.buffer.bytes_waiting > 0
    proxy.fault = Fault.NONE
    assert writer.wait_until_shipped(20)
    writer.close()
    assert "bytes wait in the buffer, trying on" in caplog.text
    assert "works again after" in caplog.text
    assert len(objects_in(s3, bucket)) == 6
    assert ids(rows_in_bucket(s3, bucket)) == ids(records)


def test_a_put_whose_answer_was_lost_counts_as_shipped(
    through: Through, proxy: FaultProxy, s3: Any, bucket: str
) -> None:
    proxy.fault = Fault.LOST
    writer = EdgeWriter(through(), ticking=False)
    for record in sales(10):
        writer.write(record)
    wait_for(lambda: objects_in(s3, bucket))
    (before,) = s3.list_objects_v2(Bucket=bucket)["Contents"]
    proxy.fault = Fault.NONE
    assert writer.wait_until_shipped(20)
    assert writer.close()
    assert proxy.answers[412] == 1
    (after,) = s3.list_objects_v2(Bucket=bucket)["Contents"]
    assert after == before


def test_an_object_with_other_content_is_never_overwritten(
    through: Through, proxy: FaultProxy, s3: Any, bucket: str
) -> None:
    unix = int(NOON.timestamp())
    key = f"in/transactions/region=NE/date=2026-02-11/batch_{unix}_001_w.parquet"
    s3.put_object(Bucket=bucket, Key=key, Body=b"somebody else's")
    writer = EdgeWriter(through(), clock=SetClock(NOON), writer="w", ticking=False)
    for record in sales(20):
        writer.write(record)
    wait_for(lambda: len(objects_in(s3, bucket)) == 2)
    wait_for(lambda: proxy.answers[412] >= 2)
    assert not writer.close(drain_seconds=0)
    assert objects_in(s3, bucket)[key] == b"somebody else's"


def test_the_oldest_go_first_and_not_too_many_at_once(through: Through, proxy: FaultProxy) -> None:
    proxy.fault = Fault.DOWN
    writer = EdgeWriter(through(batch=Batch(count=1, age=3600), max_in_flight=2), ticking=False)
    for record in sales(12):
        writer.write(record)
    wait_for(lambda: proxy.seen[Fault.DOWN] >= 3)
    proxy.fault = Fault.SLOW
    proxy.slow_seconds = 0.05
    wait_for(lambda: proxy.seen[Fault.SLOW])
    proxy.most_at_once = 0
    tried = len(proxy.puts) - 1
    assert writer.close(drain_seconds=20)
    counts = [int(key.split("_")[2]) for key in proxy.puts[tried:]]
    assert proxy.most_at_once == 2
    assert sorted(counts) == list(range(1, 13))
    assert all(abs(count - place) <= 1 for place, count in enumerate(counts, 1))


def test_a_batch_keeps_its_name_when_it_is_tried_again(through: Through, proxy: FaultProxy) -> None:
    proxy.fault = Fault.BUSY
    writer = EdgeWriter(through(), ticking=False)
    for record in sales(10):
        writer.write(record)
    wait_for(lambda: len(proxy.puts) >= 3)
    proxy.fault = Fault.NONE
    assert writer.close(drain_seconds=20)
    assert len(set(proxy.puts)) == 1


def test_two_writers_of_a_region_in_the_same_second_both_land(
    through: Through, s3: Any, bucket: str, tmp_path: Path
) -> None:
    clock = SetClock(NOON)
    records = {name: sales(10, seed=name) for name in ("one", "two")}
    for name, some in records.items():
        config = through(buffer=BufferConfig(folder=tmp_path / name))
        with EdgeWriter(config, clock=clock, ticking=False) as writer:
            for record in some:
                writer.write(record)
    keys = list(objects_in(s3, bucket))
    assert len(keys) == 2
    assert len({key.rpartition("_")[0] for key in keys}) == 1  # but for the writer, the same
    assert ids(rows_in_bucket(s3, bucket)) == ids(records["one"] + records["two"])


def test_a_restart_ships_what_the_last_run_could_not(
    through: Through, proxy: FaultProxy, s3: Any, bucket: str
) -> None:
    records = sales(30)
    proxy.fault = Fault.DOWN
    writer = EdgeWriter(through(), ticking=False)
    for record in records:
        writer.write(record)
    assert not writer.close(drain_seconds=0.1)
    proxy.fault = Fault.NONE
    with EdgeWriter(through(), ticking=False) as again:
        assert again.wait_until_shipped(20)
    assert ids(rows_in_bucket(s3, bucket)) == ids(records)


def test_a_missing_bucket_is_named_and_waited_for(
    through: Through, s3: Any, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    name = f"late-{os.getpid()}-{tmp_path.name[-1]}"
    writer = EdgeWriter(through(f"s3://{name}"), ticking=False)
    for record in sales(10):
        writer.write(record)
    wait_for(lambda: f"the bucket '{name}' does not exist: create it" in caplog.text)
    s3.create_bucket(Bucket=name)
    assert writer.close(drain_seconds=20)
    assert len(objects_in(s3, name)) == 1


def test_keys_that_are_renewed_are_found(
    through: Through, s3_server: LocalS3, s3: Any, bucket: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """A file of short-lived keys, refreshed by something else."""
    credentials = tmp_path / "credentials"
    text = "[default]\naws_access_key_id = {}\naws_secret_access_key = {}\n"
    credentials.write_text(text.format("EXPIRED", "old-secret"))
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(credentials))
    writer = EdgeWriter(through(timeout=TIMEOUT), ticking=False)
    for record in sales(10):
        writer.write(record)
    wait_for(lambda: "refuses the credentials (InvalidAccessKeyId): renew them" in caplog.text)
    credentials.write_text(text.format(s3_server.access_key, s3_server.secret_key))
    assert writer.close(drain_seconds=20)
    assert len(objects_in(s3, bucket)) == 1
    assert "old-secret" not in caplog.text


def test_missing_keys_are_named(
    through: Through, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    writer = EdgeWriter(through(timeout=TIMEOUT + 1), ticking=False)
    for record in sales(10):
        writer.write(record)
    wait_for(lambda: "no credentials: set AWS_ACCESS_KEY_ID" in caplog.text)
    assert not writer.close(drain_seconds=0)


def test_a_slow_store_is_waited_for(
    through: Through, proxy: FaultProxy, s3: Any, bucket: str
) -> None:
    proxy.fault = Fault.SLOW
    records = sales(40)
    with EdgeWriter(through(), ticking=False) as writer:
        for record in records:
            writer.write(record)
    assert ids(rows_in_bucket(s3, bucket)) == ids(records)
    assert proxy.most_at_once <= 4
