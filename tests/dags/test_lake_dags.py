from __future__ import annotations

from typing import Any

from landfall.dag import build_dag
from landfall.dag_maintenance import build_maintenance_dag
from landfall.dataset import Dataset


def dataset(**lake: Any) -> Dataset:
    return Dataset.model_validate(
        {
            "dataset": "sales",
            "start_date": "2026-02-01",
            "source": {"uri": "s3://landing/sales", "partition": {"date": "{{ ds }}"}},
            "load": {"destination": "retail.main.sales", "mode": "register"},
            "lake": lake,
        }
    )


def test_registering_needs_no_spark_task() -> None:
    dag = build_dag(dataset())
    assert {task.task_id: task.downstream_task_ids for task in dag.tasks} == {
        "wait_for_partition": {"register_files"},
        "register_files": set(),
    }


def test_late_files_are_registered_although_nothing_landed_for_the_run_itself() -> None:
    task = build_dag(dataset()).get_task("register_files")
    assert task.trigger_rule == "none_failed"


def test_maintenance_has_a_dag_of_its_own() -> None:
    dag = build_maintenance_dag(dataset(maintenance="0 3 * * 0"))
    assert dag.dag_id == "sales.maintenance"
    assert [task.task_id for task in dag.topological_sort()] == ["merge", "expire", "cleanup"]
