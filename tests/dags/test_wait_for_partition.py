"""The sensor: what it asks S3, and when it is satisfied. Against a real S3 server."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from landfall.dataset import Dataset
from landfall.errors import SourceError
from landfall.listing import find_files, split_uri
from landfall.local_s3 import LocalS3
from landfall.readiness import not_ready
from landfall.s3 import S3Store
from landfall.templates import render_partition

pytestmark = pytest.mark.slow

DAY = "2026-02-11"
REGIONS = ("MW", "NE", "NW", "SE", "SW")


def dataset(uri: str, **ready: Any) -> Dataset:
    return Dataset.model_validate(
        {
            "dataset": "sales",
            "start_date": "2026-01-01",
            "source": {
                "uri": uri,
                "partition": {"region": "*", "date": "{{ ds }}"},
                "types": {"date": "date"},
                "ready": ready,
            },
            "load": {"destination": "retail.main.sales"},
        }
    )


@pytest.fixture
def landing(s3: Any) -> str:
    return f"s3://landing/{uuid.uuid4().hex}"


def put(s3: Any, landing: str, region: str, day: str, name: str) -> None:
    bucket, prefix = split_uri(landing)
    s3.put_object(Bucket=bucket, Key=f"{prefix}region={region}/date={day}/{name}", Body=b"PAR1")


def look(s3: Any, spec: Dataset) -> tuple[str | None, int]:
    """What is missing, and how many requests it took to know."""
    requests: list[str] = []
    client_events = s3.meta.events
    client_events.register("before-send.s3", lambda request, **_: requests.append(request.url), "n")
    try:
        bucket, root = split_uri(spec.source.uri)
        partition = render_partition(spec, ds=DAY)
        store = S3Store(s3, bucket, connection="aws_default")
        listing = find_files(store, root, partition, spec.source.files)
    finally:
        client_events.unregister("before-send.s3", unique_id="n")
    return not_ready(listing, spec.source.ready, datetime.now(UTC)), len(requests)


def test_the_number_of_requests_does_not_depend_on_the_history(s3: Any, landing: str) -> None:
    for region in REGIONS:
        put(s3, landing, region, DAY, "a.parquet")
    missing, with_one_day = look(s3, dataset(landing))
    assert missing is None
    first = datetime(2025, 1, 1, tzinfo=UTC)
    for n in range(365):
        for region in REGIONS:
            put(s3, landing, region, (first + timedelta(days=n)).date().isoformat(), "a.parquet")
    missing, with_a_year = look(s3, dataset(landing))
    assert missing is None
    assert with_a_year == with_one_day == 1 + len(REGIONS)


def test_an_empty_partition_is_not_ready(s3: Any, landing: str) -> None:
    put(s3, landing, "NW", "2026-02-10", "a.parquet")
    assert look(s3, dataset(landing))[0] == "no source file is there"


def test_it_waits_for_the_minimum_number_of_files(s3: Any, landing: str) -> None:
    put(s3, landing, "NW", DAY, "a.parquet")
    spec = dataset(landing, min_files=2)
    assert look(s3, spec)[0] == "1 of at least 2 files are there"
    put(s3, landing, "SW", DAY, "b.parquet")
    assert look(s3, spec)[0] is None


def test_it_waits_for_the_marker_in_every_folder(s3: Any, landing: str) -> None:
    put(s3, landing, "NW", DAY, "a.parquet")
    put(s3, landing, "SW", DAY, "a.parquet")
    put(s3, landing, "NW", DAY, "_SUCCESS")
    spec = dataset(landing, marker="_SUCCESS")
    missing, _ = look(s3, spec)
    assert missing is not None and "region=SW" in missing
    put(s3, landing, "SW", DAY, "_SUCCESS")
    assert look(s3, spec)[0] is None


def test_it_waits_until_no_file_is_young(s3: Any, landing: str) -> None:
    put(s3, landing, "NW", DAY, "a.parquet")
    missing, _ = look(s3, dataset(landing, quiet_minutes=10))
    assert missing is not None and "younger than 10 minutes" in missing


def test_a_bucket_that_does_not_exist_is_named(s3: Any) -> None:
    with pytest.raises(SourceError, match=r"s3://no-such-bucket: the bucket does not exist\. Fix:"):
        look(s3, dataset("s3://no-such-bucket/x"))


def test_refused_credentials_name_the_connection_to_check(s3_server: LocalS3) -> None:
    import boto3

    stranger = boto3.client(
        "s3",
        endpoint_url=s3_server.endpoint,
        aws_access_key_id="nobody",
        aws_secret_access_key="wrong",
        region_name="us-east-1",
    )
    with pytest.raises(SourceError, match=r"refuses the credentials.*'aws_default'"):
        look(stranger, dataset("s3://landing/x"))
