"""Runs [dag, date, conf] one after the other, in one process, as `airflow dags test` does."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime

from airflow.dag_processing.dagbag import DagBag

runs = json.loads(sys.argv[1])
bag = DagBag(sys.argv[2])
ended = []
for dag_id, date, conf in runs:
    logical_date = datetime.fromisoformat(date).replace(tzinfo=UTC) if date else None
    run = bag.dags[dag_id].test(logical_date=logical_date, run_conf=conf)
    ended.append(
        {
            "dag_id": dag_id,
            "run_id": run.run_id,
            "state": str(run.state),
            "tasks": {ti.task_id: str(ti.state) for ti in run.get_task_instances()},
        }
    )
print("RESULT " + json.dumps(ended))
