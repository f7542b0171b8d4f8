"""A shop: generates the orders of its topic, and defines jobs that read them."""

from __future__ import annotations

import json
import random
from itertools import count
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from sparkcache_pulsar.testing import Codec, Entry, Message, ledger_objects

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import Column, DataFrame

    from sparkcache_pulsar.testing import StoredObject

TOPIC = "persistent://shop/eu/orders"
WARM_UP = "persistent://shop/eu/warm-up"
BLOCK_BYTES = 8 << 20
MESSAGES_PER_ENTRY = 128

_FIRST_TIME_MS = 1_767_225_600_000
_COUNTRIES = ("AT", "BE", "DE", "ES", "FR", "IT", "NL", "PL", "PT", "SE")
_METHODS = ("card", "invoice", "transfer", "wallet")
_THINGS = ("lamp", "chair", "table", "shelf", "mirror", "carpet", "clock", "vase")
_LOOKS = ("oak", "steel", "glass", "linen", "white", "blue", "round", "folding")
_STREETS = ("Linden", "Station", "Mill", "Church", "Garden", "Harbour", "Castle")


def orders(seed: int) -> Iterator[Message]:
    """Yield orders without end, each about 1 KiB of JSON."""
    chance = random.Random(seed)
    for number in count():
        customer = chance.randrange(20_000)
        yield Message(
            json.dumps(_order(chance, number, customer)).encode(),
            key=f"customer-{customer}",
        )


def _order(chance: random.Random, number: int, customer: int) -> dict[str, Any]:
    country = _COUNTRIES[customer % len(_COUNTRIES)]
    abroad = chance.random() < 0.05
    lines: list[dict[str, Any]] = [
        {
            "sku": f"{chance.getrandbits(40):010x}",
            "title": f"{chance.choice(_LOOKS)} {chance.choice(_THINGS)}",
            "quantity": chance.randint(1, 4),
            "unit_cents": chance.randint(500, 40_000),
        }
        for _ in range(chance.randint(1, 5))
    ]
    total_cents = sum(line["quantity"] * line["unit_cents"] for line in lines)
    return {
        "order": f"{chance.getrandbits(128):032x}",
        "number": number,
        "customer": {
            "id": customer,
            "country": country,
            "mail": f"{chance.getrandbits(48):012x}@example.com",
        },
        "ship_to": {
            "street": f"{chance.choice(_STREETS)} Street {chance.randint(1, 300)}",
            "postcode": f"{chance.randrange(100_000):05}",
            "country": country,
        },
        "merchant": f"merchant-{chance.randrange(200):03}",
        "currency": "PLN" if country == "PL" else "EUR",
        "lines": lines,
        "total_cents": total_cents,
        "payment": {
            "method": chance.choice(_METHODS),
            "country": chance.choice(_COUNTRIES) if abroad else country,
            "attempts": 1 + (chance.random() < 0.1) + 2 * (chance.random() < 0.02),
            "token": f"{chance.getrandbits(512):0128x}",
        },
        "device": {
            "session": f"{chance.getrandbits(256):064x}",
            "ip": ".".join(str(chance.randrange(256)) for _ in range(4)),
        },
    }


def offloaded(
    topic: str, size_bytes: int, ledger_ids: range
) -> Iterator[tuple[StoredObject, int]]:
    """Yield the objects of a topic as a Pulsar broker offloads them.

    The objects have about `size_bytes` in all. Each one comes with the number of its
    messages, which is 0 for an index.
    """
    for ledger_id in ledger_ids:
        messages = orders(seed=ledger_id)
        entries: list[bytes] = []
        remaining_bytes = size_bytes // len(ledger_ids)
        while remaining_bytes > 0 or not entries:
            batch = tuple(next(messages) for _ in range(MESSAGES_PER_ENTRY))
            time_ms = _FIRST_TIME_MS + (ledger_id << 24) + len(entries) * 1000
            entry = Entry(batch, codec=Codec.LZ4, publish_time_ms=time_ms).encode()
            entries.append(entry)
            remaining_bytes -= len(entry)
        data, index = ledger_objects(
            topic, ledger_id, entries, max_block_bytes=BLOCK_BYTES
        )
        yield data, len(entries) * MESSAGES_PER_ENTRY
        yield index, 0


def fraud(orders: DataFrame) -> DataFrame:
    """Count the orders of each country that look like fraud."""
    order = _fields(
        orders,
        "customer struct<country: string>, payment struct<country: string, "
        "attempts: int>, total_cents long",
    )
    points = [
        (F.col("payment.country") != F.col("customer.country"), 50),
        (F.col("payment.attempts") > 2, 30),
        (F.col("total_cents") > 150_000, 20),
    ]
    score: Column = F.lit(0)
    for condition, weight in points:
        score = score + F.when(condition, weight).otherwise(0)
    return (
        order.select(F.col("customer.country").alias("country"), score.alias("score"))
        .groupBy("country")
        .agg(
            F.count("*").alias("orders"),
            F.sum(F.when(F.col("score") >= 50, 1).otherwise(0)).alias("suspicious"),
            F.sum("score").alias("score"),
        )
        .orderBy("country")
    )


def billing(orders: DataFrame) -> DataFrame:
    """Add up what each merchant is owed, by currency."""
    order = _fields(orders, "merchant string, currency string, total_cents long")
    return (
        order.groupBy("merchant", "currency")
        .agg(F.count("*").alias("orders"), F.sum("total_cents").alias("cents"))
        .orderBy("merchant", "currency")
    )


def features(orders: DataFrame) -> DataFrame:
    """Compute the features of groups of customers for a model."""
    order = _fields(
        orders,
        "customer struct<id: int>, lines array<struct<quantity: int, "
        "unit_cents: long>>, payment struct<method: string>",
    )
    return (
        order.groupBy((F.col("customer.id") % 100).alias("cohort"))
        .agg(
            F.count("*").alias("orders"),
            F.countDistinct("payment.method").alias("methods"),
            F.sum(F.size("lines")).alias("lines"),
            F.sum(F.expr("aggregate(lines.quantity, 0, (a, b) -> a + b)")).alias(
                "items"
            ),
            F.max(F.array_max("lines.unit_cents")).alias("dearest_cents"),
        )
        .orderBy("cohort")
    )


def archive(orders: DataFrame) -> DataFrame:
    """Extract the orders themselves, one row each, for a table."""
    order = _fields(
        orders,
        "order string, number long, customer struct<id: int, country: string>, "
        "merchant string, currency string, total_cents long",
    )
    return order.select(
        "order",
        "number",
        F.col("customer.id").alias("customer"),
        F.col("customer.country").alias("country"),
        "merchant",
        "currency",
        "total_cents",
    )


CONSUMERS = {"fraud": fraud, "billing": billing, "features": features}


def _fields(orders: DataFrame, schema: str) -> DataFrame:
    """Return fields of the JSON in `value` as columns."""
    text = F.col("value").cast("string")
    return orders.select(F.from_json(text, schema).alias("order")).select("order.*")
