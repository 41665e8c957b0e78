"""Declares one Airflow DAG for each dataset file. Wiring only: the library does the work."""

from __future__ import annotations

# Airflow reads a file as DAGs only if it finds the words "airflow" and "dag" in it.
from landfall.dag import RefusedDatasets, build_dag
from landfall.dag_maintenance import build_maintenance_dag
from landfall.dataset_files import read_datasets
from landfall.settings import load_settings

_datasets, _refused = read_datasets(load_settings().datasets_dir)

for _file in _datasets:
    globals()[_file.dataset.dataset] = build_dag(_file.dataset)
    if _file.dataset.lake.maintenance:
        globals()[f"{_file.dataset.dataset}_maintenance"] = build_maintenance_dag(_file.dataset)

if _refused:
    _refused_datasets = RefusedDatasets([error for _, error in _refused])
