from __future__ import annotations

import io
from datetime import datetime

import pyarrow.parquet as pq

from landfall.taxi import MONTH, STRAYS, TWICE, parquet, trips


def test_the_same_trips_come_at_every_call() -> None:
    assert parquet(trips(days=2, trips_a_day=50)) == parquet(trips(days=2, trips_a_day=50))


def test_trips_have_the_columns_of_the_yellow_cab_files() -> None:
    table = pq.read_table(io.BytesIO(parquet(trips(days=1, trips_a_day=20))))
    assert table.column_names[:4] == [
        "VendorID",
        "tpep_pickup_datetime",
        "tpep_dropoff_datetime",
        "passenger_count",
    ]
    assert (table.num_columns, table.num_rows) == (19, 20 + STRAYS + TWICE)
    assert str(table.schema.field("tpep_pickup_datetime").type) == "timestamp[us]"


def test_every_day_has_its_trips_and_a_few_stray_and_double() -> None:
    rows = trips(days=3, trips_a_day=40)
    different = {tuple(row.values()) for row in rows}
    assert len(rows) - len(different) == TWICE
    early = {row for row in different if row[1] < MONTH}
    assert len(early) == STRAYS
    assert max(row[1] for row in different) < datetime(2022, 11, 4)
