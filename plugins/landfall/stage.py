"""The stage's objects, read and removed through the dataset's stage connection."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Collection
from datetime import UTC, datetime, timedelta

from landfall.connections import s3_client
from landfall.dataset import Dataset
from landfall.listing import split_uri
from landfall.s3 import S3Store

_MOMENT = "%Y%m%dT%H%M%S%fZ"
ABANDONED = timedelta(days=1)
"""An attempt of another run that is older than this is not about to be loaded any more."""


def new_attempt(run_id: str) -> str:
    """A name of its own for each try: when it began, of which run it is, and a random part."""
    moment = datetime.now(UTC).strftime(_MOMENT)
    return f"{moment}-{_mark(run_id)}-{uuid.uuid4().hex[:8]}"


def may_remove(attempt: str, *, loaded: str, run_id: str, superseded: Collection[str]) -> bool:
    """Whether no run can load it any more, now that `loaded` is loaded by this run.

    An older attempt of another run stays for a while: that run may be at work on it right now.
    """
    if attempt >= loaded:  # attempts are named by the time they began
        return False
    if attempt in superseded or f"-{_mark(run_id)}-" in attempt:
        return True
    try:
        began = datetime.strptime(attempt.partition("-")[0], _MOMENT).replace(tzinfo=UTC)
    except ValueError:  # not a name that Landfall gives
        return False
    return datetime.now(UTC) - began > ABANDONED


def _mark(run_id: str) -> str:
    return hashlib.sha256(run_id.encode()).hexdigest()[:8]


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
