"""Dataset -> DAG: three tasks, one direction; two where files are registered as they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import Any

from airflow.providers.standard.operators.python import PythonOperator
from airflow.sdk import DAG, Asset, CronDataIntervalTimetable

from landfall.dataset import Dataset, LoadMode
from landfall.errors import ConfigError
from landfall.operators import StagePartition, WaitForPartition
from landfall.templates import MACRO, Templates, conf_macro, partition_templates

_PRESETS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
}


def build_dag(dataset: Dataset) -> DAG:
    """The DAG of one dataset. Its tasks find all else by the Airflow connections it names."""
    run = dataset.run
    templates = partition_templates(dataset)
    with DAG(
        dag_id=dataset.dataset,
        description=dataset.description or None,
        schedule=_timetable(dataset.schedule),
        start_date=datetime(*dataset.start_date.timetuple()[:3], tzinfo=UTC),
        catchup=run.catchup,
        is_paused_upon_creation=run.paused,
        max_active_runs=_active_runs(dataset),
        tags={"landfall", *dataset.tags},
        user_defined_macros={MACRO: conf_macro(dataset)},
        doc_md=_doc(dataset),
        default_args={
            "owner": dataset.owner,
            "retries": run.retries,
            "retry_delay": timedelta(minutes=run.retry_minutes),
            "retry_exponential_backoff": True,
            "on_failure_callback": _on_failure(run.on_failure) if run.on_failure else None,
        },
    ) as dag:
        wait = WaitForPartition(task_id="wait_for_partition", dataset=dataset, partition=templates)
        if dataset.load.mode is LoadMode.REGISTER:
            wait >> _register(dataset, templates)
        else:
            _stage_and_load(dataset, templates, wait)
    return dag


def _stage_and_load(dataset: Dataset, templates: Templates, wait: WaitForPartition) -> None:
    run = dataset.run
    stage = StagePartition(
        task_id="stage_partition",
        dataset=dataset,
        partition=templates,
        execution_timeout=timedelta(minutes=run.timeout_minutes),
    )
    load = PythonOperator(
        task_id="load_partition",
        python_callable=_loader(dataset),
        op_kwargs={
            "partition": templates,
            "manifest_uri": "{{ ti.xcom_pull(task_ids='stage_partition') }}",
        },
        inlets=[Asset(name=dataset.source.uri, uri=dataset.source.uri)],
        outlets=[table_asset(dataset)],
        execution_timeout=timedelta(minutes=run.timeout_minutes),
    )
    wait >> stage >> load


def _register(dataset: Dataset, templates: Templates) -> PythonOperator:
    return PythonOperator(
        task_id="register_files",
        python_callable=_registrar(dataset),
        op_kwargs={"partition": templates},
        inlets=[Asset(name=dataset.source.uri, uri=dataset.source.uri)],
        outlets=[table_asset(dataset)],
        execution_timeout=timedelta(minutes=dataset.run.timeout_minutes),
        # Nothing landed for this run's own partition: files of others may have come late.
        trigger_rule="none_failed",
    )


def _active_runs(dataset: Dataset) -> int:
    """Runs of one watermark would read the same files at once, so one at a time unless asked."""
    run = dataset.run
    if dataset.upsert is not None and "max_active_runs" not in run.model_fields_set:
        return 1
    return run.max_active_runs


class RefusedDatasets(DAG):
    """Becomes an import error in Airflow: dataset files that are wrong, beside all that are right.

    Airflow validates the DAGs of a file one by one, so the others are not taken down by this one.
    """

    def __init__(self, errors: Sequence[ConfigError]) -> None:
        super().__init__(dag_id="landfall_refused_datasets", schedule=None)
        self._errors = errors

    def validate(self) -> None:
        raise ConfigError("\n".join(str(error) for error in self._errors))


def table_asset(dataset: Dataset) -> Asset:
    """The table, for DAGs that wait for it: `schedule=[Asset("retail.main.transactions", …)]`."""
    destination = dataset.load.destination
    return Asset(name=destination, uri=f"landfall://warehouse/{destination.replace('.', '/')}")


def _timetable(schedule: str | None) -> CronDataIntervalTimetable | None:
    # A plain cron string has trigger semantics: `ds` would be the day that is starting.
    if schedule is None:
        return None
    return CronDataIntervalTimetable(_PRESETS.get(schedule, schedule), timezone="UTC")


def _loader(dataset: Dataset) -> Callable[..., dict[str, Any]]:
    def load_partition(partition: Any, manifest_uri: str, **context: Any) -> dict[str, Any]:
        from landfall.load_task import load_partition as load

        return load(dataset, table_asset(dataset), partition, manifest_uri, context)

    return load_partition


def _on_failure(path: str) -> Callable[[Any], None]:
    def on_failure(context: Any) -> None:
        # Imported when it is needed: the scheduler parses this file again and again.
        module, _, name = path.rpartition(".")
        getattr(import_module(module), name)(context)

    return on_failure


def _registrar(dataset: Dataset) -> Callable[..., dict[str, Any]]:
    def register_files(partition: Any, **context: Any) -> dict[str, Any]:
        from landfall.register_task import register_files as register

        return register(dataset, table_asset(dataset), partition, context)

    return register_files


def _doc(dataset: Dataset) -> str:
    source, load, contract = dataset.source, dataset.load, dataset.contract
    empty = "allowed" if contract.allow_empty else "an error"
    keys = "/".join(f"{key}={value}" for key, value in source.partition.items()) or "(all)"
    lines = [
        dataset.description,
        "",
        "| | |",
        "|---|---|",
        f"| source | `{source.uri}` |",
        f"| partition | `{keys}` |",
        f"| filter | `{dataset.transform.filter or 'none'}` |",
        f"| destination | `{load.destination}` ({load.mode.value}) |",
        f"| schedule | `{dataset.schedule or 'when triggered'}` (UTC) |",
        *_upsert_doc(dataset),
        f"| contract | new columns: {contract.on_schema_change.value}; no row left: {empty} |",
    ]
    return "\n".join(lines)


def _upsert_doc(dataset: Dataset) -> list[str]:
    mark = dataset.upsert
    if mark is None:
        return []
    key = ", ".join(dataset.load.key)
    return [f"| key | `{key}` |", f"| watermark | `{mark.column}`, overlap {mark.overlap} |"]
