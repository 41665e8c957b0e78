"""One bucket through Hadoop's FileSystem: listing, and the few small objects the job touches."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from landfall.listing import SourceFile, split_uri
from landfall.spark.session import hadoop_configuration, jvm


def s3a(uri: str) -> str:
    """The URI in the scheme that Hadoop knows."""
    bucket, prefix = split_uri(uri)
    return f"s3a://{bucket}/{prefix}".rstrip("/")


class Store:
    """A `landfall.listing.Lister` over S3A, with exactly the requests that the listing needs."""

    def __init__(self, spark: SparkSession, bucket: str) -> None:
        self.bucket = bucket
        self._jvm = jvm(spark)
        self._configuration = hadoop_configuration(spark)

    def folders(self, prefix: str) -> list[str]:
        try:
            found = self._system().listStatus(self._path(prefix))
        except Py4JJavaError as error:
            if is_not_found(error):
                return []
            raise
        return [str(s.getPath().getName()) for s in found if s.isDirectory()]

    def files(self, prefix: str) -> list[SourceFile]:
        found: list[SourceFile] = []
        try:
            remaining = self._system().listFiles(self._path(prefix), True)
            while remaining.hasNext():
                status = remaining.next()
                key = str(status.getPath().toUri().getPath()).removeprefix("/")
                modified = datetime.fromtimestamp(status.getModificationTime() / 1000, UTC)
                etag = str(status.getETag() or "").strip('"')
                found.append(SourceFile(key, int(status.getLen()), etag, modified))
        except Py4JJavaError as error:
            if not is_not_found(error):
                raise
        return found

    def exists(self, key: str) -> bool:
        return bool(self._system().exists(self._path(key)))

    def read_text(self, key: str) -> str:
        stream = self._system().open(self._path(key))
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()

    def write_text(self, key: str, text: str) -> None:
        """One object, there as a whole or not at all."""
        stream = self._system().create(self._path(key), False)
        stream.write(bytearray(text.encode()))
        stream.close()

    def _path(self, key: str) -> Any:
        # Three parts: a key is taken as it is, with its colons, spaces and percent signs.
        return self._jvm.org.apache.hadoop.fs.Path("s3a", self.bucket, f"/{key.rstrip('/')}")

    def _system(self) -> Any:
        return self._path("").getFileSystem(self._configuration)


def is_not_found(error: Py4JJavaError) -> bool:
    """Whether a key is missing; a missing bucket is another matter."""
    name = str(error.java_exception.getClass().getName())
    return name == "java.io.FileNotFoundException"
