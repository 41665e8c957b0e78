"""A dataset's lake, maintained on a schedule of its own: merge, expire, clean up."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.providers.standard.operators.python import PythonOperator
from airflow.sdk import DAG

from landfall.dataset import Dataset


def build_maintenance_dag(dataset: Dataset) -> DAG:
    """`<dataset>.maintenance`: no dataset has a dot in its name, so no other DAG has this one."""
    run = dataset.run
    with DAG(
        dag_id=f"{dataset.dataset}.maintenance",
        description=f"Maintains the lake of {dataset.load.destination}",
        schedule=dataset.lake.maintenance,
        start_date=datetime(*dataset.start_date.timetuple()[:3], tzinfo=UTC),
        catchup=False,
        is_paused_upon_creation=run.paused,
        max_active_runs=1,
        tags={"landfall", "maintenance", *dataset.tags},
        default_args={
            "owner": dataset.owner,
            "retries": run.retries,
            "retry_delay": timedelta(minutes=run.retry_minutes),
            "execution_timeout": timedelta(minutes=run.timeout_minutes),
        },
    ) as dag:
        merge, expire, cleanup = (
            PythonOperator(task_id=action, python_callable=_maintainer(dataset, action))
            for action in ("merge", "expire", "cleanup")
        )
        merge >> expire >> cleanup
    return dag


def _maintainer(dataset: Dataset, action: str) -> Callable[..., dict[str, Any]]:
    def maintain() -> dict[str, Any]:
        from airflow.sdk.exceptions import AirflowException, AirflowFailException

        from landfall.errors import LandfallError
        from landfall.lake_commands import maintain_dataset
        from landfall.lake_upkeep import Action
        from landfall.settings import load_settings

        try:
            return maintain_dataset(dataset, Action(action), load_settings()).to_json()
        except LandfallError as error:
            kind = AirflowFailException if error.terminal else AirflowException
            raise kind(str(error)) from error

    return maintain
