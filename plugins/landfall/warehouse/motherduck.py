"""MotherDuck: DuckDB's own client, another connect call."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb  # noqa: TID253

from landfall.errors import ConfigError
from landfall.sql import literal
from landfall.warehouse.base import Warehouse
from landfall.warehouse.duckdb import private_settings
from landfall.warehouse.extensions import extension_path

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


class MotherDuckWarehouse(Warehouse):
    """`directory` holds the extension and what DuckDB spills; the data is at MotherDuck."""

    def __init__(
        self,
        directory: Path,
        *,
        token: str,
        options: Mapping[str, str] | None = None,
        connect: Callable[..., DuckDBPyConnection] = duckdb.connect,
        env: Mapping[str, str] = os.environ,
    ) -> None:
        self.directory = directory
        self.options = dict(options or {})
        self._token = token
        self._connect = connect
        self._env = env

    @property
    def description(self) -> str:
        return "MotherDuck"

    @property
    def secrets(self) -> tuple[str, ...]:
        return (self._token,)

    def _open(self, database: str, *, read_only: bool) -> DuckDBPyConnection:
        if not self._env.get("HOME"):
            raise ConfigError(
                "HOME is not set, which MotherDuck's client needs.",
                fix="set HOME in the environment of the Airflow worker.",
            )
        config = self._config()
        url = f"md:{database}?attach_mode=single"
        try:
            return self._connect(url, config=config)
        except duckdb.Error as error:
            if read_only or not self.classify(error).terminal:
                raise
        with self._connect("md:", config=config) as con:
            con.execute(f'CREATE DATABASE IF NOT EXISTS "{database}"')
        return self._connect(url, config=config)

    def _config(self) -> dict[str, Any]:
        settings = private_settings(self.directory)
        self._install(settings)
        return {**settings, **self.options, "motherduck_token": self._token}

    def _install(self, settings: Mapping[str, Any]) -> None:
        """Copies the extension from its wheel to where the `md:` prefix looks for it."""
        self.directory.mkdir(parents=True, exist_ok=True)
        with duckdb.connect(":memory:", config=dict(settings)) as con:
            con.execute(f"INSTALL {literal(str(extension_path('motherduck')))}")
