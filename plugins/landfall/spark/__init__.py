"""What the Spark job is made of. Imports pyspark and the standard library, nothing of Airflow."""

from __future__ import annotations
