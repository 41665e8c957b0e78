from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from landfall import retail
from landfall.edge.config import Backoff, Batch, BufferConfig, EdgeConfig, Output
from landfall.local_s3 import LocalS3
from tests.edge.fault_proxy import FaultProxy

MakeConfig = Callable[..., EdgeConfig]
QUICK = Backoff(first=0.02, longest=0.1)


@pytest.fixture
def keys(s3_server: LocalS3, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server's credentials where a writer looks for them."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3_server.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3_server.secret_key)
    monkeypatch.delenv("AWS_SESSION_TOKEN", raising=False)


@pytest.fixture
def bucket(s3: Any, keys: None) -> str:
    name = f"edge-{uuid.uuid4().hex[:12]}"
    s3.create_bucket(Bucket=name)
    return name


@pytest.fixture(scope="session")
def shared_proxy(s3_server: LocalS3) -> Iterator[FaultProxy]:
    with FaultProxy(s3_server.endpoint) as made:
        yield made


@pytest.fixture
def proxy(shared_proxy: FaultProxy) -> FaultProxy:
    """One for all tests, since making a client for another endpoint is slow."""
    shared_proxy.reset()
    return shared_proxy


@pytest.fixture
def make_config(tmp_path: Path) -> MakeConfig:
    """A config of sales to a folder, or to these outputs."""

    def make(*outputs: Output, **changes: Any) -> EdgeConfig:
        settings: dict[str, Any] = {
            "columns": retail.COLUMNS,
            "batch": Batch(count=10, age=3600),
            "outputs": outputs or (Output(folder=tmp_path / "out", backoff=QUICK),),
            "buffer": BufferConfig(folder=tmp_path / "buffer"),
        }
        return EdgeConfig(**(settings | changes))

    return make
