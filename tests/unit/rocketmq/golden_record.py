"""A record and its items, as RocketMQ's own broker writes them."""

from __future__ import annotations

from sparkcache_rocketmq.testing import Message

GOLDEN = bytes.fromhex(
    "0000013b daa320a7 683c33dc 00000003 00000007 0000000000000064 0000000000000000"
    "00000000 0000018bcfe56864 7f00000100002a9f 0000018bcfe56c4c 0a01020300002a9f"
    "00000000 0000000000000000 000000c8"
    + "77" * 200
    + "06 546f70696341 0012 4b455953 01 6b313030 02 54414753 01 5430 02"
)
"""A record as RocketMQ's own encoder writes it, passed through its tiered store."""
GOLDEN_ITEMS = bytes.fromhex(
    "0000000000000000 0000013b 0000000000000a5c"
    "000000000000013b 0000013b 0000000000000a5d"
)
GOLDEN_MESSAGE = Message(
    b"w" * 200,
    tags="T0",
    keys="k100",
    flag=7,
    born_time_ms=0x18BCFE56864,
    store_time_ms=0x18BCFE56C4C,
)
