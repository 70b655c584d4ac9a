"""tair-kvcache traces: look-ups are requests, keys are apart by instance, writes are left out."""

from __future__ import annotations

from kvtrace.ingest.formats.tair_kvcache import FORMATS
from kvtrace.ingest.registry import all_formats
from tests.formats.reading import DATA, read_bytes, sniffed

TAIR = FORMATS[0]
GOOD = (DATA / "tair_kvcache" / "good.jsonl").read_bytes()
DAMAGED = (DATA / "tair_kvcache" / "damaged.jsonl").read_bytes()


def test_look_ups_are_requests() -> None:
    reading = read_bytes(TAIR, GOOD)
    rows = reading.requests
    assert [row.request_id for row in rows] == ["t1", "t2", "t3"]
    assert [row.tenant for row in rows] == ["i1", "i1", "i2"]
    assert [row.prompt_tokens for row in rows] == [33, 64, 48]
    assert [row.output_tokens for row in rows] == [20, 5, 6]
    assert rows[0].arrived_at_ns == 1_772_438_400_000_000_000
    first, second, third = (list(row.block_keys or []) for row in rows)
    assert first == [1, 2, 2**64 - 3]  # signed keys as unsigned ones
    assert second == [1, 2, 9, 10]
    assert not set(third) & set(second)  # the same keys of another instance
    assert len(set(third)) == 3
    assert reading.ignored == {"write": 1, "lookup_of_pieces": 1}
    context = reading.context
    assert (context.clock, context.block_scope) == ("utc", "file")
    # 33 tokens and 3 keys, 64 and 4, 48 and 3: ceil of 16 and no other size
    assert (context.found_block_size_tokens, context.partial_tail) == (16, "counted")


def test_relative_nanoseconds() -> None:
    data = b'{"instance_id": "", "timestamp_ns": 7, "keys": [], "input_len": -1, "output_len": 1}\n'
    reading = read_bytes(TAIR, data)
    (row,) = reading.requests
    assert (row.arrived_at_ns, row.prompt_tokens) == (7, None)
    assert reading.context.clock == "relative"


def test_damaged_lines_are_rejected() -> None:
    reading = read_bytes(TAIR, DAMAGED)
    # line 5 is a date among times since the start
    assert reading.rejected == [
        (2, "invalid_field"),
        (3, "invalid_field"),
        (4, "invalid_field"),
        (5, "invalid_field"),
        (6, "invalid_field"),
        (7, "invalid_json"),
    ]
    assert [row.arrived_at_ns for row in reading.requests] == [5_000]


def test_it_is_recognised() -> None:
    assert sniffed(all_formats(), GOOD) == "tair_kvcache"
    assert sniffed(all_formats(), DAMAGED) == "tair_kvcache"
