"""LMCache agent traces: texts become keys and counts, and nothing else of them is left."""

from __future__ import annotations

from kvtrace.ingest.formats.lmcache_agent import FORMATS
from kvtrace.ingest.prompts import PromptHasher
from kvtrace.ingest.registry import all_formats
from tests.formats.reading import DATA, read_bytes, sniffed

AGENT = FORMATS[0]
GOOD = (DATA / "lmcache_agent" / "good.jsonl").read_bytes()
DAMAGED = (DATA / "lmcache_agent" / "damaged.jsonl").read_bytes()


def test_calls_have_keys_and_estimated_lengths() -> None:
    reading = read_bytes(AGENT, GOOD, prompt_hasher=PromptHasher(b"key"))
    first, second, third = reading.requests
    # 86, 87 and 128 bytes at 4 a token; 64 bytes a block
    assert [row.prompt_tokens for row in reading.requests] == [22, 22, 32]
    assert [len(row.block_keys or []) for row in reading.requests] == [2, 2, 2]
    # 27, 0 and 5 bytes; an empty output may be a call of a tool
    assert [row.output_tokens for row in reading.requests] == [7, None, 2]
    assert [row.flags for row in reading.requests] == [("tokens_estimated",)] * 3
    assert first.arrived_at_ns == 1_760_428_436_442_742_000
    assert [row.session_id for row in reading.requests] == ["s1", "s2", "s1"]
    heads = {(row.block_keys or [0])[0] for row in (first, second, third)}
    assert len(heads) == 1
    tails = {(row.block_keys or [0, 0])[1] for row in (first, second, third)}
    assert len(tails) == 3
    context = reading.context
    assert (context.clock, context.block_scope) == ("utc", "global")
    assert reading.note_codes == {"block_keys_from_bytes"}


def test_nothing_of_the_texts_is_in_rows_or_context() -> None:
    reading = read_bytes(AGENT, GOOD, prompt_hasher=PromptHasher(b"key"))
    told = f"{reading.rows} {reading.context.notes} {reading.context.engine_facts}"
    assert "agent. Fix" not in told
    assert "parser" not in told


def test_damaged_calls_are_rejected() -> None:
    reading = read_bytes(AGENT, DAMAGED, prompt_hasher=PromptHasher(b"key"))
    assert reading.rejected == [
        (1, "invalid_field"),
        (2, "invalid_field"),
        (5, "invalid_json"),
    ]
    assert [row.arrived_at_ns for row in reading.requests] == [1_760_428_436_442_742_000, None]
    assert reading.requests[1].flags == ("time_not_an_epoch", "tokens_estimated")


def test_it_is_recognised() -> None:
    assert sniffed(all_formats(), GOOD) == "lmcache_agent"
    assert sniffed(all_formats(), DAMAGED) == "lmcache_agent"
