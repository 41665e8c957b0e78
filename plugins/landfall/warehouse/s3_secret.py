"""The secret with which DuckDB reads the stage: of this session only, made right before a load."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import duckdb  # noqa: TID253

from landfall.errors import WarehouseError
from landfall.sql import identifier
from landfall.warehouse.base import plain_message, redact
from landfall.warehouse.extensions import load_extension

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from landfall.s3_access import S3Access


def secret_statement(access: S3Access, scope_uri: str, name: str) -> tuple[str, list[Any]]:
    """The statement; everything that is not a keyword is bound, so that no log shows it."""
    options: list[tuple[str, Any]] = [("SCOPE", scope_uri), ("REGION", access.region)]
    if access.access_key is not None:
        options += [("KEY_ID", access.access_key), ("SECRET", access.secret_key or "")]
    if access.session_token is not None:
        options.append(("SESSION_TOKEN", access.session_token))
    if access.endpoint is not None:
        parts = urlsplit(access.endpoint if "://" in access.endpoint else f"//{access.endpoint}")
        options += [
            ("ENDPOINT", parts.netloc),
            ("URL_STYLE", "path"),
            ("USE_SSL", parts.scheme != "http"),
        ]
    listed = ", ".join(f"{option} ?" for option, _ in options)
    text = (
        f"CREATE OR REPLACE TEMPORARY SECRET {identifier(name, what='secret')} "
        f"(TYPE s3, PROVIDER config, {listed})"
    )
    return text, [value for _, value in options]


def create_s3_secret(
    con: DuckDBPyConnection, access: S3Access, scope_uri: str, *, name: str = "landfall_stage"
) -> None:
    """Lets this connection read what lies below `scope_uri`. No error shows a credential."""
    load_extension(con, "httpfs")
    failed: str | None = None
    try:
        con.execute(*secret_statement(access, scope_uri, name))
    except duckdb.Error as error:
        failed = redact(plain_message(error), access.secrets)
    if failed is not None:  # raised outside the handler: no chained error carries the original
        raise WarehouseError(
            f"the S3 secret could not be made: {failed}",
            where=scope_uri,
            fix="check the keys and the endpoint of the S3 connection.",
        )
