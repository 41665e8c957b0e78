"""What Spark, Hadoop and Parquet throw, as Landfall's errors."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

from landfall.errors import (
    ConfigError,
    ContractError,
    LandfallError,
    SourceChanged,
    SourceError,
    TransientError,
    Unreachable,
)
from landfall.listing import SourceFile, split_uri
from landfall.manifest import StageSpec

_COMMITTER = re.compile(
    r"PathOutputCommitProtocol|BindingParquetOutputCommitter|S3AFileSystem not found"
    r"|No FileSystem for scheme"
)
_NO_CLASS = re.compile(r"ClassNotFound|not found|No FileSystem|must be loadable")
_NO_BUCKET = re.compile(r"UnknownStoreException|NoSuchBucket|[Bb]ucket .{0,80}does not exist")
_EXPIRED = re.compile(r"ExpiredToken|RequestTimeTooSkewed")
_DENIED = re.compile(
    r"AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch|NoAuthWithAWSException"
    r"|Status Code: 40[13]\b|CredentialInitializationException|NoAwsCredentialsException"
)
_UNREACHABLE = re.compile(
    r"ConnectException|UnknownHostException|SocketTimeoutException|ConnectTimeoutException"
    r"|ConnectTimeout|NoRouteToHostException|SSL\w*Exception|Unable to execute HTTP request"
    r"|AWSServiceThrottledException|AWSStatus500Exception|AWSNoResponseException"
    r"|Status Code: 5\d\d\b|Unable to load credentials|SocketException|ApiCallTimeout"
)
_CHANGED = re.compile(r"RemoteFileChangedException|FILE_NOT_EXIST|FileNotFoundException")
_CORRUPT = re.compile(
    r"is not a Parquet file|CANNOT_READ_FILE_FOOTER|FAILED_READ_FILE|ParquetDecodingException"
    r"|Could not read footer|corrupted"
)
_UNSUPPORTED = re.compile(
    r"(?:PARQUET_TYPE_\w+\] *)?((?:Illegal|Unrecognized) Parquet type: [^\n]*?"
    r"|Parquet type not[^\n]*?)(?:\.\s|\.$| SQLSTATE|\n|$)"
)
# Errors of an expression on a value: overflow, division by zero, a cast that does not fit.
_ON_VALUE = re.compile(r"\[([A-Z_0-9.]+)\] ([^\n]*?) SQLSTATE: 22")


def java_text(error: BaseException) -> str:
    """Class and message of the error and of all its causes; nothing when it is Python's own."""
    thrown: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    lines: list[str] = []
    while thrown is not None and len(lines) < 20:
        lines.append(f"{thrown.getClass().getName()}: {thrown.getMessage()}")
        thrown = thrown.getCause()
    return "\n".join(lines)


def explain(
    error: BaseException, spec: StageSpec, files: Iterable[SourceFile] = ()
) -> LandfallError:
    """The error for people, of the kind that says whether trying again may help."""
    if isinstance(error, LandfallError):
        return error
    text = java_text(error) or f"{type(error).__name__}: {error}"
    named = _file_in(text, spec, files)
    if _COMMITTER.search(text) and _NO_CLASS.search(text):
        return committer_missing("a class of S3A or of its committer is not on the class path")
    return (
        _of_store(text, spec)
        or _of_file(text, named, split_uri(spec.source_uri)[0])
        or _of_value(text)
        or TransientError(
            f"the Spark job failed unexpectedly: {_first_line(text)}",
            fix="see the job's log; the next try starts anew.",
        )
    )


def committer_missing(what: str) -> ConfigError:
    return ConfigError(
        f"the stage was not written with the S3A magic committer: {what}.",
        where="spark",
        fix="add the jars hadoop-aws and spark-hadoop-cloud_2.13 of Spark's own version to the "
        "submit (set-up puts them into the jars folder).",
    )


def _of_store(text: str, spec: StageSpec) -> LandfallError | None:
    source, stage = split_uri(spec.source_uri)[0], split_uri(spec.stage_uri)[0]
    at_stage = stage != source and f"s3a://{stage}" in text and f"s3a://{source}/" not in text
    bucket = stage if at_stage else source
    where = f"s3://{bucket}"
    terminal = ConfigError if at_stage else SourceError
    connection = (
        "the connection of the stage" if at_stage else "the connection in source.connection"
    )
    if _NO_BUCKET.search(text):
        key = "LANDFALL_STAGE_URI" if at_stage else "source.uri"
        return terminal(
            f"the bucket {bucket!r} does not exist.",
            where=where,
            fix=f"correct {key}, or the endpoint of {connection}.",
        )
    if _EXPIRED.search(text):
        return TransientError(
            "S3 refused the credentials: they have expired.",
            where=where,
            fix=f"the next try gets new ones; if it fails too, renew those of {connection}.",
        )
    if _DENIED.search(text):
        right = "write to" if at_stage else "list and read"
        return terminal(
            f"S3 refused access to the bucket {bucket!r}.",
            where=where,
            fix=f"check the keys of {connection}, and that they may {right} the bucket.",
        )
    if _UNREACHABLE.search(text):
        return Unreachable(
            f"the S3 endpoint of the bucket {bucket!r} did not answer: {_network_reason(text)}",
            where=where,
            fix=f"check the endpoint of {connection}, and the network.",
        )
    return None


def _of_file(text: str, named: str | None, bucket: str) -> LandfallError | None:
    where = f"s3://{bucket}/{named}" if named else f"s3://{bucket}"
    file = named or "a source file"
    if _CHANGED.search(text):
        return SourceChanged(
            f"{file} changed or vanished while it was read.",
            where=where,
            fix="the next try reads the source as it is then; let the writer finish first.",
        )
    if unsupported := _UNSUPPORTED.search(text):
        nanos = " (write nanosecond timestamps as microseconds)" if "NANOS" in text else ""
        return SourceError(
            f"{file} has a type that Spark cannot read: {unsupported.group(1)}.",
            where=where,
            fix=f"write the column with another type{nanos}.",
        )
    if _CORRUPT.search(text):
        return SourceError(
            f"{file} cannot be read as Parquet: it is truncated, damaged or no Parquet file.",
            where=where,
            fix="land the file again or remove it, or leave it out with source.files.",
        )
    return None


def _of_value(text: str) -> LandfallError | None:
    found = _ON_VALUE.search(text)
    if not found:
        return None
    return ContractError(
        f"an expression failed on a value: {found.group(2)}",
        where="transform",
        fix="use the forms that give NULL instead: try_cast, try_divide, try_to_number.",
    )


def _file_in(text: str, spec: StageSpec, files: Iterable[SourceFile]) -> str | None:
    """The source file that the text names, as S3A spells it or as Spark encodes it."""
    bucket = split_uri(spec.source_uri)[0]
    files = list(files)
    if len(files) == 1:
        return files[0].key
    named = [
        file.key
        for file in files
        if f"s3a://{bucket}/{file.key}" in text
        or f"s3a://{bucket}/{quote(file.key, safe=_PLAIN)}" in text
    ]
    return max(named, key=len, default=None)


# What Java leaves as it is in the path of a URI.
_PLAIN = "/_-!.~'()*,;:$&+=@"


def _network_reason(text: str) -> str:
    found = re.search(r"(Connection refused|Connection reset|[Tt]imed? ?out|UnknownHost\w*)", text)
    return f"{found.group(1)}." if found else _first_line(text)


def _first_line(text: str) -> str:
    line = text.strip().partition("\n")[0]
    return line if len(line) <= 300 else f"{line[:300]}…"
