"""Sample sales behind the connection `aws_default`: the demo's days, and those up to yesterday."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

from landfall.connections import s3_access, s3_client
from landfall.dataset_files import read_dataset
from landfall.demo import DATASET, DAYS
from landfall.errors import ConfigError
from landfall.listing import split_uri
from landfall.s3_access import S3Access
from landfall.settings import load_settings

if TYPE_CHECKING:
    from landfall.edge.demo_days import Landed

STORES = 10
"""Two in each region: enough to see, and landed within seconds."""


def land_sample(days: int) -> Landed:
    """Makes the buckets of landing and stage, and lands what is not there yet."""
    from landfall.edge.demo_days import land_days

    settings = load_settings()
    shipped = settings.repository / "dags" / "datasets" / f"{DATASET}.yaml"
    source = read_dataset(shipped).dataset.source
    access = _own_server(source.connection)
    client = s3_client(source.connection, source.region)
    present = {one["Name"] for one in client.list_buckets()["Buckets"]}
    for name in {split_uri(uri)[0] for uri in (source.uri, settings.stage_uri)} - present:
        client.create_bucket(Bucket=name)
    wanted = sample_days(days, datetime.now(UTC).date())
    buffers = settings.home / "edge"
    return land_days(client, access, source.uri, wanted, buffers, stores=STORES)


def _own_server(connection: str | None) -> S3Access:
    """The connection's server: sample data is for one that is ours, never for AWS."""
    access = s3_access(connection, "us-east-1")
    if access.endpoint is None or access.anonymous:
        raise ConfigError(
            "it names no server of your own.",
            where=f"connection {connection!r}",
            fix="set endpoint_url and keys: sample data does not go to AWS.",
        )
    return access


def sample_days(days: int, today: date) -> list[date]:
    """The demo's days, then these many up to yesterday: what a schedule asks for first."""
    return [*DAYS, *(today - timedelta(days=back) for back in range(days, 0, -1))]
