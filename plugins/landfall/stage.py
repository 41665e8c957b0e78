"""The stage's objects, read and removed through the dataset's stage connection."""

from __future__ import annotations

from datetime import datetime

from landfall.connections import s3_client
from landfall.dataset import Dataset
from landfall.listing import split_uri
from landfall.s3 import S3Store


def attempt_time(moment: datetime) -> str:
    """How the name of an attempt that began then begins: names sort by time."""
    return moment.strftime("%Y%m%dT%H%M%S%fZ")


def stage_store(dataset: Dataset, uri: str) -> tuple[S3Store, str]:
    """The stage's bucket, and the key within it that the URI names."""
    bucket, prefix = split_uri(uri)
    client = s3_client(dataset.stage.connection, dataset.source.region)
    return S3Store(client, bucket, connection=dataset.stage.connection), prefix.rstrip("/")


def read_stage_object(dataset: Dataset, uri: str) -> str | None:
    store, key = stage_store(dataset, uri)
    return store.read_text(key)


def write_stage_object(dataset: Dataset, uri: str, text: str) -> None:
    store, key = stage_store(dataset, uri)
    store.write_text(key, text)
