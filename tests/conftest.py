"""What several rooms of the tests share: one real S3 server, stopped whatever happens."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from landfall import local_s3
from landfall.local_s3 import LocalS3


def pytest_configure() -> None:
    """A run that is told to end stops what it started, as after Ctrl-C."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # Commands tested in this process would set it too late, once another test has loaded Airflow.
    os.environ["AIRFLOW__LOGGING__LOGGING_LEVEL"] = "ERROR"
    # Small jobs: the compiler and the collector of Java that start fastest.
    os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


class ByFile(LoadScopeScheduling):
    """Each process of `make test` takes whole files, and one of them all that share a stack."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return STACK if file.startswith(STACK) else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByFile:
    return ByFile(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The stack comes first: it takes longest, and the other process has the rest to itself."""
    items.sort(key=lambda item: not item.nodeid.startswith(STACK))


STACK = "tests/stack/"

PUBLIC = "us-prd-motherduck-open-datasets"
"""Stands in for the bucket of the same name: anybody may read it."""


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalS3]:
    directory: Path = tmp_path_factory.mktemp("s3-server")
    server = local_s3.start(directory, buckets=("landing", "stage", "locked", PUBLIC))
    yield server
    local_s3.stop(directory)


@pytest.fixture(scope="session")
def s3(s3_server: LocalS3) -> Any:
    """A boto3 client of the server."""
    import boto3

    return boto3.client(
        "s3",
        endpoint_url=s3_server.endpoint,
        aws_access_key_id=s3_server.access_key,
        aws_secret_access_key=s3_server.secret_key,
        region_name="us-east-1",
    )


@pytest.fixture(scope="session")
def public_bucket(s3: Any) -> str:
    statement = {
        "Effect": "Allow",
        "Principal": "*",
        "Action": ["s3:GetObject", "s3:ListBucket"],
        "Resource": [f"arn:aws:s3:::{PUBLIC}", f"arn:aws:s3:::{PUBLIC}/*"],
    }
    policy = {"Version": "2012-10-17", "Statement": [statement]}
    s3.put_bucket_policy(Bucket=PUBLIC, Policy=json.dumps(policy))
    return PUBLIC


@pytest.fixture(autouse=True)
def landfall_log(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever Airflow has made of the levels, a test sees what Landfall says."""
    caplog.set_level("INFO", logger="landfall")
