"""One bucket as Landfall sees it: listing, small objects, deleting what Landfall itself wrote."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from landfall.errors import LandfallError, SourceError, Unreachable
from landfall.listing import SourceFile

if TYPE_CHECKING:
    from botocore.exceptions import ClientError

_DELETE_AT_ONCE = 1000


class S3Store:
    """A `Lister` over a boto3 client."""

    def __init__(self, client: Any, bucket: str, *, connection: str | None) -> None:
        self._client = client
        self._bucket = bucket
        self._connection = connection

    def folders(self, prefix: str) -> list[str]:
        names: list[str] = []
        for page in self._pages(Prefix=prefix, Delimiter="/"):
            names += [
                found["Prefix"].removeprefix(prefix).rstrip("/")
                for found in page.get("CommonPrefixes", [])
            ]
        return names

    def files(self, prefix: str) -> list[SourceFile]:
        return [
            SourceFile(found["Key"], found["Size"], found["ETag"].strip('"'), found["LastModified"])
            for page in self._pages(Prefix=prefix)
            for found in page.get("Contents", [])
            if not found["Key"].endswith("/")
        ]

    def read_text(self, key: str) -> str | None:
        """The object's text, or None where there is no such object."""
        with self._errors():
            try:
                body = self._client.get_object(Bucket=self._bucket, Key=key)["Body"]
            except self._client.exceptions.NoSuchKey:
                return None
            return str(body.read().decode("utf-8"))

    def write_text(self, key: str, text: str) -> None:
        with self._errors():
            self._client.put_object(Bucket=self._bucket, Key=key, Body=text.encode("utf-8"))

    def delete_prefix(self, prefix: str) -> int:
        """Remove every object below the prefix; how many there were."""
        pages = self._pages(Prefix=prefix)
        keys = [found["Key"] for page in pages for found in page.get("Contents", [])]
        with self._errors():
            for start in range(0, len(keys), _DELETE_AT_ONCE):
                batch = [{"Key": key} for key in keys[start : start + _DELETE_AT_ONCE]]
                self._client.delete_objects(Bucket=self._bucket, Delete={"Objects": batch})
        return len(keys)

    def _pages(self, **query: str) -> Iterator[dict[str, Any]]:
        with self._errors():
            paginator = self._client.get_paginator("list_objects_v2")
            yield from paginator.paginate(Bucket=self._bucket, **query)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            yield
        except ClientError as error:
            raise self._refusal(error) from error
        except BotoCoreError as error:
            raise Unreachable(
                f"S3 did not answer: {error}",
                where=f"s3://{self._bucket}",
                fix=f"check the endpoint and the network of {self._connection_name}.",
            ) from error

    def _refusal(self, error: ClientError) -> LandfallError:
        code = str(error.response.get("Error", {}).get("Code", ""))
        status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        where = f"s3://{self._bucket}"
        if code == "NoSuchBucket":
            return SourceError(
                "the bucket does not exist.",
                where=where,
                fix="correct the URI in the dataset file, or create the bucket.",
            )
        if status in (401, 403):
            return SourceError(
                f"S3 refuses the credentials ({code}).",
                where=where,
                fix=f"check the keys of {self._connection_name} and its rights on the bucket.",
            )
        if status >= 500 or code in ("SlowDown", "RequestTimeout", "ThrottlingException"):
            return Unreachable(f"S3 answered {status} {code}.", where=where)
        return SourceError(f"S3 answered {status} {code}.", where=where)

    @property
    def _connection_name(self) -> str:
        if self._connection is None:
            return "the public bucket (connection: null)"
        return f"the Airflow connection {self._connection!r}"
