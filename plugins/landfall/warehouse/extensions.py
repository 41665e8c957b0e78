"""DuckDB's extensions come as wheels: nothing is downloaded, nothing is installed at home."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb  # noqa: TID253

from landfall.errors import WarehouseError
from landfall.sql import literal

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


def extension_path(name: str) -> Path:
    """The extension's file for this DuckDB."""
    spec = find_spec(f"duckdb_extension_{name}")
    if spec is not None and spec.origin is not None:
        folder = Path(spec.origin).parent / "extensions" / f"v{duckdb.__version__}"
        path = folder / f"{name}.duckdb_extension"
        if path.is_file():
            return path
    raise WarehouseError(
        f"DuckDB's extension {name!r} for version {duckdb.__version__} is not installed.",
        fix=f"run: pip install duckdb-extension-{name}=={duckdb.__version__}",
    )


def load_extension(con: DuckDBPyConnection, name: str) -> None:
    con.execute(f"LOAD {literal(str(extension_path(name)))}")
