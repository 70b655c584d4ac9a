"""Dynamo's agentic Mooncake traces: the header states the block size, ids are local to a play."""

from __future__ import annotations

from kvtrace.ingest.formats.agentic_mooncake import FORMATS
from kvtrace.ingest.registry import all_formats
from tests.formats.reading import DATA, read_bytes, sniffed

AGENTIC = FORMATS[0]
GOOD = (DATA / "agentic_mooncake" / "good.jsonl").read_bytes()
DAMAGED = (DATA / "agentic_mooncake" / "damaged.jsonl").read_bytes()


def test_plays_are_apart() -> None:
    reading = read_bytes(AGENTIC, GOOD)
    first, second, other = reading.requests
    assert [row.prompt_tokens for row in reading.requests] == [130, 190, 128]
    assert [row.output_tokens for row in reading.requests] == [2, 3, 2]
    assert [row.session_id for row in reading.requests] == ["a/main", "a/main", "b/main"]
    assert [row.turn for row in reading.requests] == [0, 1, 0]
    assert [row.request_id for row in reading.requests] == ["a/root", "a/next", "b/root"]
    assert [row.e2e_ns for row in reading.requests] == [10_500_000, None, None]
    assert list(first.block_keys or [])[:2] == list(second.block_keys or [])[:2]
    assert not set(other.block_keys or []) & set(first.block_keys or [])
    context = reading.context
    assert (context.found_block_size_tokens, context.partial_tail) == (64, "counted")
    assert context.clock == "order"
    assert reading.note_codes == {"no_common_clock"}
    assert reading.ignored == {"header": 1}


def test_one_play_has_a_clock() -> None:
    reading = read_bytes(AGENTIC, b"".join(GOOD.splitlines(keepends=True)[:3]))
    assert [row.arrived_at_ns for row in reading.requests] == [0, 100_250_000]
    assert (reading.context.clock, reading.note_codes) == ("relative", set())


def test_damaged_lines_are_rejected() -> None:
    reading = read_bytes(AGENTIC, DAMAGED)
    assert reading.rejected == [
        (2, "invalid_field"),
        (3, "invalid_field"),
        (4, "invalid_field"),
        (5, "invalid_field"),
        (6, "invalid_field"),
        (8, "invalid_json"),
    ]
    assert [row.request_id for row in reading.requests] == ["a/5"]


def test_it_is_recognised_before_mooncake() -> None:
    assert sniffed(all_formats(), GOOD) == "agentic_mooncake"
    assert sniffed(all_formats(), DAMAGED) == "agentic_mooncake"
