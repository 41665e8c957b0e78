"""The places that batches are shipped to. A put never overwrites, and may be repeated."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from landfall.edge.config import Output
from landfall.edge.files import create_durably
from landfall.edge.journal import BatchRow
from landfall.listing import split_uri

if TYPE_CHECKING:
    from botocore.exceptions import BotoCoreError, ClientError

_CREDENTIALS = {"ExpiredToken", "InvalidToken", "TokenRefreshRequired", "RequestExpired"}
_BUSY = {"RequestTimeout", "SlowDown", "Throttling", "ThrottlingException", "OperationAborted"}
_CONNECTIONS = 50


class OutputDown(Exception):
    """The output takes nothing for now; what and why, and what to do."""


class Refused(Exception):
    """The output does not take this batch; others may go."""


class Target(Protocol):
    """What a shipper needs of an output."""

    def put(self, batch: BatchRow, body: bytes) -> None:
        """Returns once the output has exactly these bytes under the batch's key."""


def open_target(output: Output) -> Target:
    if output.s3 is not None:
        return S3Target(output)
    assert output.folder is not None
    return FolderTarget(output.folder)


class FolderTarget:
    """A local folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, batch: BatchRow, body: bytes) -> None:
        path = self._folder / batch.key
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            create_durably(path, body)
        except FileExistsError:
            if not path.is_file() or path.read_bytes() != body:
                raise Refused(_taken(str(path))) from None
        except OSError as error:
            raise OutputDown(f"{self._folder} cannot be written: {error.strerror}") from error


class S3Target:
    """A prefix in S3, or in a store that speaks its language."""

    def __init__(self, output: Output) -> None:
        assert output.s3 is not None
        self._output = output
        self._bucket, self._prefix = split_uri(output.s3)

    def put(self, batch: BatchRow, body: bytes) -> None:
        from botocore.exceptions import BotoCoreError, ClientError

        key = self._prefix + batch.key
        try:
            self._put(key, batch, body)
        except ClientError as error:
            raise self._verdict(error, key) from error
        except BotoCoreError as error:
            raise self._unreachable(error) from error

    def _put(self, key: str, batch: BatchRow, body: bytes) -> None:
        from botocore.exceptions import ClientError

        client = clients.of(self._output)
        try:
            client.put_object(
                Bucket=self._bucket,
                Key=key,
                Body=body,
                IfNoneMatch="*",
                ContentType="application/vnd.apache.parquet",
            )
        except ClientError as error:
            if _status(error) != 412:
                raise
            if not self._has(client, key, batch, body):
                raise Refused(_taken(f"s3://{self._bucket}/{key}")) from error

    def _has(self, client: Any, key: str, batch: BatchRow, body: bytes) -> bool:
        """Whether the object that is there is this very batch: an earlier try had succeeded."""
        head = client.head_object(Bucket=self._bucket, Key=key)
        if head["ContentLength"] != len(body):
            return False
        if head["ETag"].strip('"') == batch.md5:
            return True
        # With some kinds of encryption the etag is not the MD5.
        found: bytes = client.get_object(Bucket=self._bucket, Key=key)["Body"].read()
        return found == body

    def _unreachable(self, error: BotoCoreError) -> OutputDown:
        from botocore import exceptions

        if isinstance(error, exceptions.NoCredentialsError | exceptions.PartialCredentialsError):
            clients.renew(self._output)
            return OutputDown(
                f"{self._output.s3}: no credentials: set AWS_ACCESS_KEY_ID and "
                "AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
            )
        if isinstance(error, exceptions.CredentialRetrievalError | exceptions.TokenRetrievalError):
            clients.renew(self._output)
        if isinstance(error, exceptions.ReadTimeoutError | exceptions.ConnectTimeoutError):
            return OutputDown(f"{self._output.s3} did not answer in time")
        # Its own text may name the key, which changes from try to try.
        return OutputDown(f"{self._output.s3} cannot be reached ({type(error).__name__})")

    def _verdict(self, error: ClientError, key: str) -> Exception:
        code = str(error.response.get("Error", {}).get("Code", ""))
        status = _status(error)
        where = f"s3://{self._bucket}"
        if code == "NoSuchBucket":
            return OutputDown(f"the bucket {self._bucket!r} does not exist: create it")
        if status in (401, 403) or code in _CREDENTIALS:
            clients.renew(self._output)
            return OutputDown(
                f"{where} refuses the credentials ({code}): renew them, or give them the right "
                "to put and get objects"
            )
        if status == 501:
            return OutputDown(f"{where} does not know conditional puts ({code})")
        if status >= 500 or status in (404, 409, 429) or code in _BUSY:
            return OutputDown(f"{where} answered {status} {code}")
        return Refused(f"{where} answered {status} {code} to {key}")


def _taken(where: str) -> str:
    return f"{where} exists with other content, and is not overwritten"


def _status(error: ClientError) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


class _Clients:
    """One client for all outputs with the same settings: making one is slow."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: dict[tuple[Any, ...], Any] = {}

    def of(self, output: Output) -> Any:
        with self._lock:
            settings = self._settings(output)
            if settings not in self._made:
                self._made[settings] = _client(output)
            return self._made[settings]

    def renew(self, output: Output) -> None:
        """The next one looks for credentials again."""
        with self._lock:
            self._made.pop(self._settings(output), None)

    @staticmethod
    def _settings(output: Output) -> tuple[Any, ...]:
        return output.endpoint, output.region, output.timeout


clients = _Clients()


def _client(output: Output) -> Any:
    import boto3
    from botocore.config import Config

    session = boto3.session.Session()

    def make(style: str) -> Any:
        return session.client(
            "s3",
            endpoint_url=output.endpoint,
            region_name=output.region or session.region_name or "us-east-1",
            config=Config(
                connect_timeout=min(5.0, output.timeout),
                read_timeout=output.timeout,
                retries={"total_max_attempts": 1},  # the shipper retries
                max_pool_connections=_CONNECTIONS,
                s3={"addressing_style": style},
            ),
        )

    client = make("auto")
    # Other stores seldom have a name for each bucket.
    return client if ".amazonaws.com" in client.meta.endpoint_url else make("path")
