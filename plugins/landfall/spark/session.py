"""The Spark session as the job needs it: S3A, its committer, and Parquet types kept unchanged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

from landfall.listing import split_uri
from landfall.manifest import StageSpec
from landfall.s3_access import SOURCE_ENV, STAGE_ENV, S3Access

COMMITTER = "magic"

# Read when the session starts: what a small job does not need is left out.
_START = {
    "spark.ui.enabled": "false",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.extensions": "",
}

_SQL = {
    # The S3A committer; without the spark-hadoop-cloud jar these classes do not exist.
    "spark.sql.sources.commitProtocolClass": (
        "org.apache.spark.internal.io.cloud.PathOutputCommitProtocol"
    ),
    "spark.sql.parquet.output.committer.class": (
        "org.apache.spark.internal.io.cloud.BindingParquetOutputCommitter"
    ),
    # What stands in a file arrives: same instants, same days, also before 1582.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.inferTimestampNTZ.enabled": "true",
    "spark.sql.legacy.parquet.nanosAsLong": "false",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInWrite": "CORRECTED",
    "spark.sql.timeType.enabled": "true",
    # `A` and `a` are two columns; a value's type is the stated one.
    "spark.sql.caseSensitive": "true",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    # A file that cannot be read ends the attempt; skipping it would lose rows.
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.ansi.enabled": "true",
}

_HADOOP = {
    "fs.s3a.committer.name": COMMITTER,
    "fs.s3a.committer.magic.enabled": "true",
    "mapreduce.outputcommitter.factory.scheme.s3a": (
        "org.apache.hadoop.fs.s3a.commit.S3ACommitterFactory"
    ),
    # A refused connection is reported after seconds; a server that is busy gets longer.
    "fs.s3a.attempts.maximum": "2",
    "fs.s3a.retry.limit": "4",
    "fs.s3a.retry.interval": "250ms",
    "fs.s3a.retry.throttle.limit": "12",
    "fs.s3a.retry.throttle.interval": "250ms",
    "fs.s3a.connection.establish.timeout": "5s",
    "fs.s3a.connection.timeout": "60s",
    "fs.s3a.experimental.input.fadvise": "random",
}

_AUTH = "org.apache.hadoop.fs.s3a."
_ANONYMOUS = _AUTH + "AnonymousAWSCredentialsProvider"
_SIMPLE = _AUTH + "SimpleAWSCredentialsProvider"
_TEMPORARY = _AUTH + "TemporaryAWSCredentialsProvider"


def start_session(name: str) -> SparkSession:
    """The session of this process; the master and the jars are spark-submit's."""
    builder = SparkSession.builder.appName(name)
    for key, value in _START.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def access_from(env: Mapping[str, str], spec: StageSpec) -> dict[str, S3Access]:
    """How each bucket is reached. A bucket that is not named here uses the default chain."""
    found: dict[str, S3Access] = {}
    # The stage's comes last: in a bucket that is both, it is the one that may write.
    for variable, uri in ((SOURCE_ENV, spec.source_uri), (STAGE_ENV, spec.stage_uri)):
        if env.get(variable):
            found[split_uri(uri)[0]] = S3Access.from_json(env[variable])
    return found


def configure(spark: SparkSession, access: Mapping[str, S3Access]) -> None:
    """Sets what the job relies on. Credentials go into the driver's Hadoop configuration only."""
    for key, value in _SQL.items():
        spark.conf.set(key, value)
    hadoop = hadoop_configuration(spark)
    for key, value in _HADOOP.items():
        hadoop.set(key, value)
    for bucket, how in access.items():
        for key, value in s3a_settings(how).items():
            hadoop.set(f"fs.s3a.bucket.{bucket}.{key}", value)


def s3a_settings(access: S3Access) -> dict[str, str]:
    """The access as S3A's settings of one bucket, without their prefix."""
    settings = {"endpoint.region": access.region}
    if access.endpoint:
        settings["endpoint"] = access.endpoint
        settings["path.style.access"] = "true"
        tls = not access.endpoint.startswith("http://")
        settings["connection.ssl.enabled"] = str(tls).lower()
    if access.anonymous:
        return {**settings, "aws.credentials.provider": _ANONYMOUS}
    settings["access.key"] = access.access_key or ""
    settings["secret.key"] = access.secret_key or ""
    settings["aws.credentials.provider"] = _SIMPLE
    if access.session_token:
        settings["session.token"] = access.session_token
        settings["aws.credentials.provider"] = _TEMPORARY
    return settings


def hadoop_configuration(spark: SparkSession) -> Any:
    return spark.sparkContext._jsc.hadoopConfiguration()


def jvm(spark: SparkSession) -> Any:
    """The driver's Java side; its classes have no types in Python."""
    return spark.sparkContext._jvm
