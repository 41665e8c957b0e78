"""One loader in a process of its own: `loader.py LAKE STAGE NUMBER`. Waits for a line to start."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from landfall.load import load
from landfall.warehouse.ducklake import DuckLakeWarehouse
from landfall.warehouse.lake_config import CatalogKind, LakeConfig, PostgresCatalog
from tests.loading import Stage, rows

lake, stage, number = json.loads(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
address = PostgresCatalog(**lake["postgres"]) if lake["postgres"] else None
config = LakeConfig(CatalogKind(lake["catalog"]), postgres=address, data_path=lake["data_path"])
warehouse = DuckLakeWarehouse(Path(lake["directory"]), config, lock_timeout=120)
day = "2026-02-11" if lake["same"] else f"2026-02-{number + 10}"
request = Stage(stage).request(rows(day, rows=50), partition={"region": "*", "date": day})
print("ready", flush=True)
sys.stdin.readline()
print(load(warehouse, request).status.value, flush=True)
