"""The demo's taxi trips: a month in the shape of New York's yellow cab files, the same each time.

As in the real files, a few pickups lie before the month, and a few trips are there twice.
"""

from __future__ import annotations

import io
import random
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

MONTH = datetime(2022, 11, 1)
DAYS = 30
TRIPS_A_DAY = 1_000
STRAYS = 12
TWICE = 25
NAME = "yellow_cab_nyc_2022_11.parquet"
# Trips at each hour of the day, out of a thousand.
_HOURS = (
    26,
    17,
    11,
    7,
    5,
    7,
    18,
    36,
    46,
    45,
    46,
    49,
    53,
    54,
    57,
    58,
    58,
    63,
    69,
    63,
    57,
    57,
    53,
    45,
)


@dataclass(frozen=True)
class LandedTrips:
    key: str
    rows: int
    bytes: int
    written: bool


def trips(*, days: int = DAYS, trips_a_day: int = TRIPS_A_DAY) -> list[dict[str, Any]]:
    """The month's rows, in no order of time, as in the real files."""
    # Not for secrets: the same data each time is the point.
    chance = random.Random("yellow_cab_nyc_2022_11")  # noqa: S311
    rows = [
        _trip(chance, MONTH + timedelta(days=day))
        for day in range(days)
        for _ in range(trips_a_day)
    ]
    rows += [_trip(chance, MONTH - timedelta(days=1)) for _ in range(STRAYS)]
    rows += chance.sample(rows, min(TWICE, len(rows)))
    chance.shuffle(rows)
    return rows


def parquet(rows: list[dict[str, Any]]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    target = io.BytesIO()
    table = pa.Table.from_pylist(rows, schema=_schema())
    pq.write_table(table, target, compression="zstd", row_group_size=10_000)
    return target.getvalue()


def land(client: Any, bucket: str, prefix: str) -> LandedTrips:
    """Puts the month below the prefix; what is there already is left as it is."""
    key = f"{prefix.strip('/')}/{NAME}"
    rows = trips()
    found = client.list_objects_v2(Bucket=bucket, Prefix=key).get("Contents", [])
    sizes = [item["Size"] for item in found if item["Key"] == key]
    if sizes:
        return LandedTrips(key, len(rows), sizes[0], written=False)
    body = parquet(rows)
    client.put_object(Bucket=bucket, Key=key, Body=body)
    return LandedTrips(key, len(rows), len(body), written=True)


def _schema() -> Any:
    import pyarrow as pa

    numbers = {"VendorID": pa.int64(), "PULocationID": pa.int64(), "DOLocationID": pa.int64()}
    names = (
        *("VendorID", "tpep_pickup_datetime", "tpep_dropoff_datetime", "passenger_count"),
        *("trip_distance", "RatecodeID", "store_and_fwd_flag", "PULocationID", "DOLocationID"),
        *("payment_type", "fare_amount", "extra", "mta_tax", "tip_amount", "tolls_amount"),
        *("improvement_surcharge", "total_amount", "congestion_surcharge", "airport_fee"),
    )
    kinds = {
        **numbers,
        "payment_type": pa.int64(),
        "store_and_fwd_flag": pa.string(),
        "tpep_pickup_datetime": pa.timestamp("us"),
        "tpep_dropoff_datetime": pa.timestamp("us"),
    }
    return pa.schema([(name, kinds.get(name, pa.float64())) for name in names])


def _trip(chance: random.Random, day: datetime) -> dict[str, Any]:
    hour = chance.choices(range(24), _HOURS)[0]
    pickup = day + timedelta(hours=hour, seconds=chance.randrange(3600))
    miles = round(min(chance.lognormvariate(0.6, 0.8), 60.0), 2)
    minutes = miles * chance.uniform(3.0, 7.5) + chance.uniform(1, 5)
    fare = round(2.5 + 2.5 * miles + 0.5 * minutes, 1)
    card = chance.random() < 0.78
    tip = round(fare * chance.choice((0, 0.1, 0.18, 0.2, 0.25)), 2) if card else 0.0
    airport = 1.25 if chance.random() < 0.08 else 0.0
    extra = 1.0 if hour >= 20 or hour < 6 else 2.5 if 16 <= hour < 20 else 0.0
    tolls = 6.55 if airport and chance.random() < 0.6 else 0.0
    return {
        "VendorID": chance.choice((1, 2, 2, 2)),
        "tpep_pickup_datetime": pickup,
        "tpep_dropoff_datetime": pickup + timedelta(seconds=round(minutes * 60)),
        "passenger_count": chance.choices((1.0, 2.0, 3.0, 4.0, None), (72, 15, 5, 4, 4))[0],
        "trip_distance": miles,
        "RatecodeID": 2.0 if tolls else 1.0,
        "store_and_fwd_flag": "N",
        "PULocationID": chance.randint(1, 263),
        "DOLocationID": chance.randint(1, 263),
        "payment_type": 1 if card else 2,
        "fare_amount": fare,
        "extra": extra,
        "mta_tax": 0.5,
        "tip_amount": tip,
        "tolls_amount": tolls,
        "improvement_surcharge": 0.3,
        "total_amount": round(fare + extra + 0.8 + tip + tolls + 2.5 + airport, 2),
        "congestion_surcharge": 2.5,
        "airport_fee": airport,
    }
