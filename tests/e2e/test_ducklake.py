"""The chain as a user runs it, with a DuckLake for a warehouse."""

from __future__ import annotations

import json
import re
import subprocess
from datetime import date
from typing import Any

import pytest

from landfall.edge.demo_days import land_days
from landfall.settings import load_settings
from landfall.warehouse.ducklake import DuckLakeWarehouse
from landfall.warehouse.lake_config import LakeConfig
from landfall.warehouse.s3_secret import create_s3_secret
from tests.e2e.conftest import ROOT, Chain
from tests.registering import access

pytestmark = pytest.mark.slow

DAY = "2026-02-11"
DOCUMENT = ROOT / "docs" / "ducklake.md"


@pytest.fixture(scope="module")
def lake(chain: Chain) -> Chain:
    """Only the connection says that it is a lake."""
    chain.extra_env["AIRFLOW_CONN_LANDFALL_WAREHOUSE"] = json.dumps({"conn_type": "ducklake"})
    chain.ship("retail_transactions")
    day, buffers = date.fromisoformat(DAY), chain.home / "edge"
    land_days(chain.s3, chain.server.access, "s3://landing/transactions", [day], buffers, stores=15)
    (chain.home / "venv").symlink_to(load_settings().home / "venv")
    return chain


def query(chain: Chain, sql: str) -> list[Any]:
    warehouse = DuckLakeWarehouse(chain.home / "warehouse", LakeConfig())
    with warehouse.connect("retail", read_only=True) as con:
        create_s3_secret(con, access(chain.server), "s3://landing/", name="reader")
        return con.execute(sql).fetchall()


def test_the_documents_commands_run_as_written(lake: Chain) -> None:
    blocks = re.findall(r"```bash\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert len(blocks) == 4
    script = "\n".join(["set -euo pipefail", *blocks])
    done = subprocess.run(
        ["bash", "-c", script], cwd=ROOT, env=lake.env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    ledger = """SELECT dataset, row_count, snapshot_id FROM retail.main.ingest_runs
                WHERE dataset <> 'sales' ORDER BY run_at"""
    (loaded, rows, snapshot), (landed, _, _) = query(lake, ledger)
    assert (loaded, landed) == ("retail_transactions", "retail_landed")
    assert rows > 10_000
    assert f"({rows},) {rows}\n" in done.stdout
    then = f"SELECT count(*) FROM retail.main.transactions AT (VERSION => {snapshot})"
    assert query(lake, then) == [(rows,)]
    kept = query(lake, "SELECT count(*) FROM retail.main.landed WHERE status <> 'void'")
    assert kept[0][0] >= rows


@pytest.fixture(scope="module")
def sales(lake: Chain) -> str:
    """A registered dataset, with its first day; where it lands."""
    uri = lake.prefix()
    lake.dataset(
        "sales",
        uri,
        source={"partition": {"region": "*", "date": "{{ ds }}"}},
        load={"destination": "retail.main.sales", "mode": "register"},
        lake={"maintenance": "0 3 * * 0"},
    )
    lake.put(f"{uri}/region=NW/date={DAY}/a.parquet", {"id": [1, 2]})
    (first,) = lake.runs(("sales", DAY))
    assert first.tasks == {"wait_for_partition": "success", "register_files": "success"}
    return uri


def test_late_files_are_registered_by_the_next_run(lake: Chain, sales: str) -> None:
    lake.put(f"{sales}/region=SW/date=2026-01-05/late.parquet", {"id": [3]})
    second, third, kept = lake.runs(("sales", DAY), ("sales", DAY), ("sales.maintenance", None))
    assert (second.state, third.tasks["register_files"], kept.state) == (
        "success",
        "skipped",
        "success",
    )
    found = query(lake, "SELECT id, region, date FROM retail.main.sales ORDER BY id")
    day = date.fromisoformat(DAY)
    assert found == [(1, "NW", day), (2, "NW", day), (3, "SW", date(2026, 1, 5))]


def test_the_commands_know_a_lake(lake: Chain, sales: str) -> None:
    for arguments, said in (
        (("plan", "sales", DAY), "sales"),
        (("status", "sales"), f"region=NW/date={DAY}"),
        (("history", "sales"), "loaded"),
        (("lake", "merge", "sales", "--dry-run"), "ingest_runs: "),
        (("lake", "expire", "sales", "--dry-run"), "nothing to do"),
        (("lake", "cleanup", "sales", "--orphans"), "nothing to do"),
    ):
        done = lake.landfall(*arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        assert said in done.stdout, done.stdout
