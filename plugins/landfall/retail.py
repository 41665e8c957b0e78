"""The demo's landing: a day of sales of 50 stores in five regions, the same at every call.

One file is one batch of the edge: about 1,000 transactions, some voided, some sent twice.
"""

from __future__ import annotations

import io
import random
import uuid
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import cache
from typing import Any

REGIONS = ("MW", "NE", "NW", "SE", "SW")
STORES_PER_REGION = 10
SALES_PER_FILE = 1040
RESENT_PER_FILE = 12
FILES_PER_PARTITION = 4
BATCH_SECONDS = 10
OPEN_HOURS = 15
CENT = Decimal("0.01")

_PRODUCTS = (
    ("grocery", "milk 1 l", "1.29"),
    ("grocery", "rye bread", "3.49"),
    ("grocery", "free range eggs x10", "3.99"),
    ("grocery", "olive oil 750 ml", "9.79"),
    ("grocery", "basmati rice 1 kg", "4.19"),
    ("produce", "bananas 1 kg", "1.89"),
    ("produce", "tomatoes 500 g", "2.49"),
    ("produce", "avocado", "1.59"),
    ("household", "dish soap", "2.19"),
    ("household", "paper towels x6", "7.49"),
    ("household", "LED bulb E27", "4.99"),
    ("apparel", "cotton socks x3", "8.99"),
    ("apparel", "rain jacket", "59.00"),
    ("electronics", "USB-C cable", "12.50"),
    ("electronics", "headphones", "79.90"),
    ("electronics", "batteries AA x8", "9.49"),
    ("garden", "potting soil 20 l", "6.79"),
    ("garden", "pruning shears", "18.90"),
    ("toys", "wooden train", "24.95"),
    ("toys", "card game", "11.95"),
)
_PAYMENTS = ("card", "card", "card", "contactless", "contactless", "cash", "voucher")


@dataclass(frozen=True)
class Landed:
    """What `land` found and did: the files of all days, and how many of them it had to write."""

    files: int
    written: int
    bytes: int


@cache
def stores(region: str) -> tuple[str, ...]:
    first = REGIONS.index(region) * STORES_PER_REGION + 1
    return tuple(f"S{number:03d}" for number in range(first, first + STORES_PER_REGION))


def batch_name(day: date, number: int) -> str:
    """`batch_<unix>_<n>.parquet`: a day's batches follow each other once the stores have closed."""
    sent = _opening(day) + timedelta(hours=OPEN_HOURS, minutes=30)
    moment = sent + timedelta(seconds=BATCH_SECONDS * (number - 1))
    return f"batch_{int(moment.timestamp())}_{number:03d}.parquet"


def batch(region: str, day: date, number: int) -> bytes:
    """One Parquet file; its bytes depend on region, day and number alone."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    # Not for secrets: the same data each time is the point.
    chance = random.Random(f"{day.isoformat()}/{region}/{number}")  # noqa: S311
    rows = [_sale(chance, region, day) for _ in range(SALES_PER_FILE)]
    rows += [_sent_again(chance, row) for row in chance.sample(rows, RESENT_PER_FILE)]
    rows.sort(key=lambda row: (row["event_at"], row["transaction_id"]))
    target = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema=_schema()), target, compression="zstd")
    return target.getvalue()


def _schema() -> Any:
    import pyarrow as pa

    return pa.schema(
        [
            ("transaction_id", pa.string()),
            ("store_id", pa.string()),
            ("store_region", pa.string()),
            ("register", pa.int16()),
            ("event_at", pa.timestamp("us", tz="UTC")),
            ("sku", pa.string()),
            ("product", pa.string()),
            ("category", pa.string()),
            ("quantity", pa.int32()),
            ("unit_price", pa.decimal128(10, 2)),
            ("discount", pa.decimal128(10, 2)),
            ("amount", pa.decimal128(12, 2)),
            ("payment_method", pa.string()),
            ("card_last4", pa.string()),
            ("customer_id", pa.string()),
            ("status", pa.string()),
            ("checksum", pa.string()),
        ]
    )


def _sale(chance: random.Random, region: str, day: date) -> dict[str, Any]:
    number = chance.randrange(len(_PRODUCTS))
    category, product, price = _PRODUCTS[number]
    unit_price = Decimal(price)
    quantity = chance.choices((1, 2, 3, 4, 6), (60, 22, 9, 6, 3))[0]
    discounted = chance.random() < 0.15
    full = unit_price * quantity
    discount = (full * Decimal(chance.choice(("0.05", "0.10", "0.20")))).quantize(CENT)
    discount = discount if discounted else Decimal("0.00")
    payment = chance.choice(_PAYMENTS)
    by_card = payment in ("card", "contactless")
    return {
        "transaction_id": str(uuid.UUID(int=chance.getrandbits(128), version=4)),
        "store_id": chance.choice(stores(region)),
        "store_region": region,
        "register": chance.randint(1, 8),
        "event_at": _opening(day)
        + timedelta(microseconds=chance.randrange(OPEN_HOURS * 3600 * 10**6)),
        "sku": f"{category[:3].upper()}-{1000 + number}",
        "product": product,
        "category": category,
        "quantity": quantity,
        "unit_price": unit_price,
        "discount": discount,
        "amount": full - discount,
        "payment_method": payment,
        "card_last4": f"{chance.randrange(10000):04d}" if by_card else None,
        "customer_id": f"C{chance.randrange(10**7):07d}" if chance.random() < 0.6 else None,
        "status": chance.choices(("completed", "returned", "void"), (94, 3, 3))[0],
        "checksum": f"{chance.getrandbits(256):064x}",  # of the register's receipt
    }


def _opening(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, 6, tzinfo=UTC)


def _sent_again(chance: random.Random, row: dict[str, Any]) -> dict[str, Any]:
    """A correction: the same transaction, later, so that only the later one may count."""
    return {
        **row,
        "event_at": row["event_at"] + timedelta(seconds=chance.randint(30, 900)),
        "status": "returned" if row["status"] == "completed" else row["status"],
        "checksum": f"{chance.getrandbits(256):064x}",
    }


def land(
    client: Any,
    bucket: str,
    prefix: str,
    days: Sequence[date],
    *,
    files_per_partition: int = FILES_PER_PARTITION,
    on_file: Callable[[], object] = lambda: None,
) -> Landed:
    """Puts the batches of these days below the prefix; what is there already is left as it is."""
    wanted = {
        f"{prefix.strip('/')}/region={region}/date={day.isoformat()}/{batch_name(day, number)}": (
            region,
            day,
            number,
        )
        for day in days
        for region in REGIONS
        for number in range(1, files_per_partition + 1)
    }
    present = _sizes(client, bucket, {key.rpartition("/")[0] for key in wanted})

    def put(key: str) -> int:
        body = batch(*wanted[key])
        client.put_object(Bucket=bucket, Key=key, Body=body)
        on_file()
        return len(body)

    missing = [key for key in wanted if key not in present]
    for _ in range(len(wanted) - len(missing)):
        on_file()
    with ThreadPoolExecutor(max_workers=4) as pool:
        written = list(pool.map(put, missing))
    kept = sum(size for key, size in present.items() if key in wanted)
    return Landed(files=len(wanted), written=len(written), bytes=sum(written) + kept)


def _sizes(client: Any, bucket: str, folders: Iterable[str]) -> dict[str, int]:
    """Sizes by key of what stands in these folders."""
    sizes: dict[str, int] = {}
    pages = client.get_paginator("list_objects_v2")
    for folder in sorted(folders):
        for page in pages.paginate(Bucket=bucket, Prefix=f"{folder}/"):
            sizes |= {item["Key"]: item["Size"] for item in page.get("Contents", [])}
    return sizes
