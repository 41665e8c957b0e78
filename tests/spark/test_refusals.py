"""What cannot be staged is refused: the error names what and where, and nothing is published."""

from __future__ import annotations

import re
import socket
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import stage_partition
from landfall.errors import (
    ConfigError,
    ContractError,
    LandfallError,
    ManifestError,
    SourceChanged,
    SourceError,
    Unreachable,
)
from landfall.s3_access import S3Access
from landfall.spark import session
from tests.spark.conftest import Landing, once, parquet

pytestmark = pytest.mark.slow

DAY = "date=2026-02-11"
THE_DAY = {"date": "2026-02-11"}


@pytest.fixture
def filled(landing: Landing) -> Landing:
    landing.put(f"{DAY}/a.parquet", {"amount": [1, 2], "status": ["ok", "void"]})
    landing.put(f"{DAY}/b.parquet", {"amount": [3], "status": ["ok"]})
    return landing


def refusal(kind: type[LandfallError], landing: Landing, **given: Any) -> str:
    """The message of the error; nothing may be published beside it."""
    with pytest.raises(kind) as caught:
        landing.stage(THE_DAY, **given)
    assert type(caught.value) is kind
    assert not any(key.endswith("manifest.json") for key in landing.staged_keys())
    return str(caught.value)


@pytest.mark.parametrize(
    "expression, said",
    [
        ("amount >", "Syntax error"),
        ("ammount > 0", "Did you mean 'amount'?"),
        ("amount + 1", "not true or false"),
        ("sum(amount) > 1", "sum"),
    ],
)
def test_a_filter_that_cannot_be_used_is_refused(
    filled: Landing, expression: str, said: str
) -> None:
    message = refusal(ConfigError, filled, filter=expression)
    assert message.startswith("transform.filter: ")
    assert expression in message
    assert said in message


def test_a_missing_column_lists_those_that_exist(filled: Landing) -> None:
    assert "amount, status, date" in refusal(ConfigError, filled, filter="nothing_like_it > 0")


def test_a_filter_that_fails_on_a_value_says_so(filled: Landing) -> None:
    message = refusal(ContractError, filled, filter="cast(status AS int) > 0")
    assert "try_cast" in message and "'ok'" in message


@pytest.mark.parametrize(
    "select, where",
    [
        ({"n": "ammount"}, "transform.select.n"),
        ({"date": "current_date()"}, "transform.select.date"),
        ({"n": "explode(array(1, 2))"}, "transform.select"),
        ({"n": "sum(amount)"}, "transform.select"),
    ],
)
def test_a_select_that_cannot_be_used_is_refused(
    filled: Landing, select: dict[str, str], where: str
) -> None:
    assert refusal(ConfigError, filled, select=select).startswith(f"{where}: ")


def test_a_missing_key_of_deduplicate_is_refused(filled: Landing) -> None:
    message = refusal(ConfigError, filled, deduplicate=once("amont"))
    assert message.startswith("transform.deduplicate.key: ")
    assert "Did you mean 'amount'?" in message


def test_a_truncated_file_is_named(filled: Landing) -> None:
    filled.put(f"{DAY}/cut.parquet", parquet({"amount": [1], "status": ["x"]})[:-20])
    assert f"{DAY}/cut.parquet" in refusal(SourceError, filled)


def test_a_file_damaged_in_its_data_is_named(filled: Landing) -> None:
    body = bytearray(parquet({"amount": list(range(2000)), "status": ["x"] * 2000}))
    body[4:400] = b"\xff" * 396
    filled.put(f"{DAY}/hurt.parquet", bytes(body))
    assert f"{DAY}/hurt.parquet" in refusal(SourceError, filled)


def test_a_file_that_is_no_parquet_is_named(filled: Landing) -> None:
    filled.put(f"{DAY}/note 1%.parquet", b"this is a text, longer than any Parquet footer is")
    assert f"{DAY}/note 1%.parquet" in refusal(SourceError, filled)


def test_a_file_without_a_byte_is_named(filled: Landing) -> None:
    filled.put(f"{DAY}/empty.parquet", b"")
    assert f"{DAY}/empty.parquet has 0 bytes" in refusal(SourceError, filled)


def test_incompatible_types_name_the_column_and_both_files(filled: Landing) -> None:
    filled.put(f"{DAY}/c.parquet", {"amount": ["three"], "status": ["ok"]})
    message = refusal(SourceError, filled)
    assert re.search(r"'amount' is bigint in \S+a\.parquet, but string in \S+c\.parquet", message)


def test_a_type_that_spark_cannot_read_is_named_with_its_file(filled: Landing) -> None:
    filled.put(f"{DAY}/c.parquet", {"at": pa.array([1], pa.timestamp("ns"))})
    message = refusal(SourceError, filled)
    assert f"{DAY}/c.parquet" in message
    assert "microseconds" in message


def test_nothing_there_is_an_error(landing: Landing) -> None:
    assert "date=2026-02-11" in refusal(SourceError, landing)


@pytest.mark.parametrize("how", ["changed", "vanished", "arrived"])
def test_a_source_that_changes_meanwhile_ends_the_attempt(filled: Landing, how: str) -> None:
    def interfere() -> None:
        if how == "vanished":
            key = f"{filled.root}/{DAY}/b.parquet"
            filled.client.delete_object(Bucket="landing", Key=key)
        else:
            name = "b" if how == "changed" else "new"
            filled.put(f"{DAY}/{name}.parquet", {"amount": [9], "status": ["late"]})

    message = refusal(SourceChanged, filled, before_check=interfere)
    assert f"{'new' if how == 'arrived' else 'b'}.parquet {how}" in message


def test_a_source_that_vanishes_before_the_read_is_no_corrupt_file(
    filled: Landing, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = stage_partition.publish.write

    def vanish(*given: Any) -> None:
        filled.client.delete_object(Bucket="landing", Key=f"{filled.root}/{DAY}/b.parquet")
        write(*given)

    monkeypatch.setattr(stage_partition.publish, "write", vanish)
    assert "b.parquet" in refusal(SourceChanged, filled)


def test_a_bucket_that_does_not_exist_is_named(landing: Landing) -> None:
    spec = replace(landing.spec(THE_DAY), source_uri="s3://no-such-bucket/x")
    with pytest.raises(SourceError, match="'no-such-bucket' does not exist"):
        stage_partition.run(landing.spark, spec, {"no-such-bucket": landing.access})


def test_a_stage_bucket_that_does_not_exist_is_named(filled: Landing) -> None:
    spec = filled.spec(THE_DAY, stage_uri="s3://no-such-stage/x")
    both = {"landing": filled.access, "no-such-stage": filled.access}
    with pytest.raises(ConfigError, match="'no-such-stage' does not exist"):
        stage_partition.run(filled.spark, spec, both)


def test_wrong_credentials_name_the_connection(landing: Landing) -> None:
    spec = replace(landing.spec(THE_DAY), source_uri="s3://locked/x")
    wrong = replace(landing.access, secret_key="not-the-secret")
    with pytest.raises(SourceError, match=r"refused.*'locked'.*source\.connection") as caught:
        stage_partition.run(landing.spark, spec, {"locked": wrong})
    assert "not-the-secret" not in str(caught.value)


def test_an_endpoint_that_refuses_is_reported_soon(landing: Landing) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    spec = replace(landing.spec(THE_DAY), source_uri="s3://unreachable/x")
    nowhere = S3Access("key", "secret", endpoint=f"http://127.0.0.1:{port}")
    with pytest.raises(Unreachable, match=r"'unreachable'.*Connection refused"):
        stage_partition.run(landing.spark, spec, {"unreachable": nowhere})


def test_another_committer_than_the_magic_one_is_an_error(
    filled: Landing, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_rename = "org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol"
    monkeypatch.setitem(session._SQL, "spark.sql.sources.commitProtocolClass", by_rename)
    monkeypatch.setitem(
        session._SQL,
        "spark.sql.parquet.output.committer.class",
        "org.apache.parquet.hadoop.ParquetOutputCommitter",
    )
    assert "spark-hadoop-cloud" in refusal(ConfigError, filled)


def test_a_missing_committer_class_is_an_error(
    filled: Landing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(
        session._SQL,
        "spark.sql.sources.commitProtocolClass",
        "org.apache.spark.internal.io.cloud.PathOutputCommitProtocolThatIsMissing",
    )
    assert "spark-hadoop-cloud" in refusal(ConfigError, filled)


def test_an_attempt_is_written_once(filled: Landing) -> None:
    spec = filled.spec(THE_DAY)
    filled.run(spec)
    with pytest.raises(ManifestError, match="not empty"):
        filled.run(spec)
