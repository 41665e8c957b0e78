"""What Airflow's page shows of a dataset file."""

from __future__ import annotations

import pytest

from tests.stack.datasets import RETAIL
from tests.stack.running import RunningStack

pytestmark = pytest.mark.slow


def test_the_page_shows_what_the_dataset_file_says(stack: RunningStack) -> None:
    shown = stack.api("GET", f"/dags/{RETAIL}/details")
    for text in (
        "Store sales, one day replaced a run",
        "| source | `s3://landing/transactions` |",
        "| destination | `retail.main.transactions` (replace) |",
        "| schedule | `30 6 * * *` (UTC) |",
        "| contract | new columns: evolve; no row left: an error |",
    ):
        assert text in shown["doc_md"]
    assert {tag["name"] for tag in shown["tags"]} == {"landfall", "retail"}
    assert shown["catchup"] is False


def test_owner_tags_retries_and_time_outs_come_from_the_file(stack: RunningStack) -> None:
    shown = stack.api("GET", "/dags/late/details")
    assert shown["owners"] == ["night-shift"]
    assert {tag["name"] for tag in shown["tags"]} == {"landfall", "nightly"}
    tasks = {t["task_id"]: t for t in stack.api("GET", "/dags/late/tasks")["tasks"]}
    assert set(tasks) == {"wait_for_partition", "stage_partition", "load_partition"}
    assert {task["retries"] for task in tasks.values()} == {1}
    assert tasks["stage_partition"]["execution_timeout"]["seconds"] == 18
