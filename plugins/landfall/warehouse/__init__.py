"""Where the table lives: connect, attach, transact. Knows nothing of Airflow."""

from __future__ import annotations
