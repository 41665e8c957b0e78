"""The edge writer: takes records, makes batches durable in a buffer, ships them exactly once."""

from __future__ import annotations
