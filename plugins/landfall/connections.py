"""Airflow connections, as the rest of the library needs them. Where things run is decided here."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from landfall.errors import ConfigError
from landfall.lake_connection import is_lake, lake_config
from landfall.s3_access import S3Access

if TYPE_CHECKING:
    from landfall.settings import Settings
    from landfall.warehouse.factory import WarehouseConfig

DEFAULT_WAREHOUSE = "landfall_warehouse"


def s3_client(conn_id: str | None, region: str) -> Any:
    """A boto3 client for the connection; None means unsigned requests to a public bucket."""
    if conn_id is None:
        import boto3
        from botocore import UNSIGNED
        from botocore.config import Config

        # AWS_ENDPOINT_URL_S3 is honoured, so a stand-in for a public bucket changes nothing else.
        return boto3.client("s3", region_name=region, config=Config(signature_version=UNSIGNED))
    return _aws_hook(conn_id).get_client_type("s3")


def s3_access(conn_id: str | None, region: str) -> S3Access:
    """The same as plain values, for Spark and DuckDB. Asked for late: keys may be short-lived."""
    if conn_id is None:
        endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
        return S3Access(endpoint=endpoint, region=region)
    hook = _aws_hook(conn_id)
    credentials = hook.get_credentials()
    return S3Access(
        access_key=credentials.access_key,
        secret_key=credentials.secret_key,
        session_token=credentials.token,
        endpoint=hook.conn_config.get_service_endpoint_url("s3"),
        region=hook.region_name or region,
    )


def warehouse_config(conn_id: str, settings: Settings) -> WarehouseConfig:
    """The warehouse behind a connection; only the default may be absent: a local DuckDB file."""
    from airflow.sdk import BaseHook
    from airflow.sdk.exceptions import AirflowNotFoundException

    from landfall.warehouse.factory import WarehouseConfig, WarehouseKind

    directory = settings.warehouse_dir
    try:
        connection = BaseHook.get_connection(conn_id)
    except AirflowNotFoundException:
        if conn_id != DEFAULT_WAREHOUSE:
            raise ConfigError(
                f"the Airflow connection {conn_id!r} does not exist.",
                where="load.warehouse",
                fix=f"add it: airflow connections add {conn_id} --conn-type duckdb --conn-host …",
            ) from None
        return WarehouseConfig(kind=WarehouseKind.DUCKDB, directory=directory)
    host = connection.host or ""
    if connection.conn_type == "motherduck" or host.startswith("md:"):
        token = connection.password or os.environ.get("MOTHERDUCK_TOKEN")
        if not token:
            raise ConfigError(
                "no MotherDuck token.",
                where=f"connection {conn_id!r}",
                fix="set the token as the connection's password, or MOTHERDUCK_TOKEN.",
            )
        return WarehouseConfig(kind=WarehouseKind.MOTHERDUCK, directory=directory, token=token)
    if is_lake(connection):
        lake = lake_config(connection, directory, s3_access)
        return WarehouseConfig(kind=WarehouseKind.DUCKLAKE, directory=directory, lake=lake)
    if connection.conn_type != "duckdb":
        raise ConfigError(
            f"connection type {connection.conn_type!r} is not a warehouse.",
            where=f"connection {conn_id!r}",
            fix='use type "duckdb" (a file in host; "md:" for MotherDuck), or "ducklake".',
        )
    return WarehouseConfig(
        kind=WarehouseKind.DUCKDB, directory=directory, path=Path(host) if host else None
    )


def require_connection(conn_id: str, conn_type: str) -> None:
    """Refuse a missing connection: the providers would silently use a default of their own."""
    from airflow.sdk import BaseHook
    from airflow.sdk.exceptions import AirflowNotFoundException

    try:
        BaseHook.get_connection(conn_id)
    except AirflowNotFoundException:
        raise ConfigError(
            f"the Airflow connection {conn_id!r} does not exist.",
            fix=f"add it: airflow connections add {conn_id} --conn-type {conn_type} …",
        ) from None


def _aws_hook(conn_id: str) -> Any:
    from airflow.providers.amazon.aws.hooks.s3 import S3Hook

    require_connection(conn_id, "aws")
    return S3Hook(aws_conn_id=conn_id)
