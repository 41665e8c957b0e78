"""Sample sales behind the connection `aws_default`: the demo's days, and those up to yesterday."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

from landfall.connections import s3_access, s3_client
from landfall.dataset_files import read_dataset
from landfall.demo import DATASET, DAYS
from landfall.edge.demo_days import Landed, land_days
from landfall.listing import split_uri
from landfall.settings import load_settings


def land_sample(days: int) -> Landed:
    """Makes the buckets of landing and stage, and lands what is not there yet."""
    settings = load_settings()
    shipped = settings.repository / "dags" / "datasets" / f"{DATASET}.yaml"
    source = read_dataset(shipped).dataset.source
    client = s3_client(source.connection, source.region)
    bucket, _ = split_uri(source.uri)
    present = {one["Name"] for one in client.list_buckets()["Buckets"]}
    for name in {bucket, split_uri(settings.stage_uri)[0]} - present:
        client.create_bucket(Bucket=name)
    wanted = sample_days(days, datetime.now(UTC).date())
    access = s3_access(source.connection, source.region)
    return land_days(client, access, source.uri, wanted, settings.home / "edge")


def sample_days(days: int, today: date) -> list[date]:
    """The demo's days, then these many up to yesterday: what a schedule asks for first."""
    return [*DAYS, *(today - timedelta(days=back) for back in range(days, 0, -1))]
