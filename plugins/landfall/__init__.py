"""Landfall: partitioned Parquet from S3 into MotherDuck, once."""

from __future__ import annotations

__version__ = "0.1.0"
