"""An Airflow connection of DuckLake kind.

The type is `ducklake`; where a form offers known types only, `duckdb` with `catalog` in extra.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from landfall.errors import ConfigError

if TYPE_CHECKING:
    from landfall.s3_access import S3Access
    from landfall.warehouse.lake_config import LakeConfig

_EXTRA = ("catalog", "data_path", "aws_conn_id")


def is_lake(connection: Any) -> bool:
    return connection.conn_type == "ducklake" or (
        connection.conn_type == "duckdb" and "catalog" in _extra(connection)
    )


def lake_config(
    connection: Any, directory: Path, access: Callable[[str | None, str], S3Access]
) -> LakeConfig:
    """Relative paths lie below `directory`; `access` tells how an AWS connection reaches S3."""
    from landfall.warehouse.lake_config import CatalogKind, LakeConfig, PostgresCatalog

    where = f"connection {connection.conn_id!r}"
    extra = _extra(connection)
    for name in extra:
        if name not in _EXTRA:
            raise ConfigError(
                f"extra has the unknown key {name!r}.",
                where=where,
                fix=f"the keys are {', '.join(_EXTRA)}.",
            )
    kind = str(extra.get("catalog", CatalogKind.DUCKDB.value))
    if kind not in list(CatalogKind):
        raise ConfigError(
            f"{kind!r} is not a kind of catalog.",
            where=where,
            fix=f"set catalog in extra to one of {', '.join(CatalogKind)}.",
        )
    catalog = CatalogKind(kind)
    data_path = _data_path(extra, directory)
    on_s3 = data_path is not None and "://" in data_path
    reach = access(extra.get("aws_conn_id", "aws_default"), "us-east-1") if on_s3 else None
    host = connection.host or None
    if catalog is not CatalogKind.POSTGRES:
        path = directory / host if host else None
        return LakeConfig(catalog, path=path, data_path=data_path, access=reach)
    address = PostgresCatalog(
        host=host,
        port=connection.port,
        database=connection.schema or None,
        user=connection.login or None,
        password=connection.password or None,
    )
    return LakeConfig(catalog, postgres=address, data_path=data_path, access=reach)


def _data_path(extra: Mapping[str, Any], directory: Path) -> str | None:
    given = extra.get("data_path")
    if given is None or "://" in str(given):
        return given
    return str(directory / str(given))


def _extra(connection: Any) -> dict[str, Any]:
    try:
        extra = json.loads(connection.extra) if connection.extra else {}
    except ValueError:
        extra = None
    if not isinstance(extra, dict):
        raise ConfigError("extra is not a JSON object.", where=f"connection {connection.conn_id!r}")
    return extra
