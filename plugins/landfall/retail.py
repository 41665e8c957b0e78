"""The sales of stores in five regions, the same at every call: some voided, some sent twice."""

from __future__ import annotations

import random
import uuid
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

REGIONS = ("MW", "NE", "NW", "SE", "SW")
STORES = 50
RECORDS_PER_DAY = 1000
RESENT_PER_DAY = 12
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


# The columns of a sale, with their Arrow types.
COLUMNS = {
    "transaction_id": "string",
    "store_id": "string",
    "store_region": "string",
    "register": "int16",
    "event_at": "timestamp[us, tz=UTC]",
    "sku": "string",
    "product": "string",
    "category": "string",
    "quantity": "int32",
    "unit_price": "decimal128(10, 2)",
    "discount": "decimal128(10, 2)",
    "amount": "decimal128(12, 2)",
    "payment_method": "string",
    "card_last4": "string",
    "customer_id": "string",
    "status": "string",
    "checksum": "string",
}


def stores(number: int = STORES) -> list[str]:
    """Their names; each belongs to a region, and the regions are of equal size."""
    return [f"S{one:03d}" for one in range(1, number + 1)]


def region_of(store: str) -> str:
    return REGIONS[int(store[1:]) % len(REGIONS)]


def store_day(store: str, day: date) -> list[dict[str, Any]]:
    """What a store sends on a day, in the order of time; depends on store and day alone."""
    # Not for secrets: the same data each time is the point.
    chance = random.Random(f"{day.isoformat()}/{store}")  # noqa: S311
    opening = datetime(day.year, day.month, day.day, 6, tzinfo=UTC)
    open_for = OPEN_HOURS * 3600 * 10**6
    sales = [
        sale(chance, store, opening + timedelta(microseconds=chance.randrange(open_for)))
        for _ in range(RECORDS_PER_DAY - RESENT_PER_DAY)
    ]
    sales += [_sent_again(chance, one) for one in chance.sample(sales, RESENT_PER_DAY)]
    return sorted(sales, key=lambda one: (one["event_at"], one["transaction_id"]))


def sale(chance: random.Random, store: str, event_at: datetime) -> dict[str, Any]:
    """One transaction."""
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
        "store_id": store,
        "store_region": region_of(store),
        "register": chance.randint(1, 8),
        "event_at": event_at,
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


def _sent_again(chance: random.Random, row: dict[str, Any]) -> dict[str, Any]:
    """A correction: the same transaction, later, so that only the later one may count."""
    return {
        **row,
        "event_at": row["event_at"] + timedelta(seconds=chance.randint(30, 900)),
        "status": "returned" if row["status"] == "completed" else row["status"],
        "checksum": f"{chance.getrandbits(256):064x}",
    }
