"""AIBrix workloads: several requests a line, block keys from their prompts."""

from __future__ import annotations

from kvtrace.ingest.formats.aibrix_trace import FORMATS
from kvtrace.ingest.prompts import PromptHasher
from kvtrace.ingest.registry import all_formats
from tests.formats.reading import DATA, read_bytes, sniffed

AIBRIX = FORMATS[0]
GOOD = (DATA / "aibrix_trace" / "good.jsonl").read_bytes()
DAMAGED = (DATA / "aibrix_trace" / "damaged.jsonl").read_bytes()


def test_requests_of_one_moment() -> None:
    hasher = PromptHasher(b"key", block_tokens=4)
    reading = read_bytes(AIBRIX, GOOD, prompt_hasher=hasher)
    rows = reading.requests
    # the last prompt has 25 bytes: ceil(25 / 4) = 7 tokens
    assert [row.prompt_tokens for row in rows] == [12, 11, 3, 7]
    assert [row.flags for row in rows] == [(), (), (), ("tokens_estimated",)]
    assert [row.output_tokens for row in rows] == [5, None, 7, None]
    assert [row.arrived_at_ns for row in rows] == [0, 0, 19_000_000_000, 20_000_000_000]
    assert [row.session_id for row in rows] == [None, None, "4", "4"]
    assert [row.llm for row in rows] == [None, None, "llm-a", None]
    # "The same beginning of a prompt, " is 32 bytes: two blocks of 16; 12 and 11 tokens make 3
    first, second = list(rows[0].block_keys or []), list(rows[1].block_keys or [])
    assert [a == b for a, b in zip(first, second, strict=True)] == [True, True, False]
    assert [row.block_keys is None for row in rows] == [False, False, True, False]
    assert reading.ignored == {"no_requests": 1}
    assert reading.note_codes == {"block_keys_from_bytes"}
    assert (reading.context.clock, reading.context.found_block_size_tokens) == ("relative", 4)


def test_prompts_are_not_read_without_a_key() -> None:
    rows = read_bytes(AIBRIX, GOOD).requests
    assert [row.prompt_tokens for row in rows] == [12, 11, 3, None]
    assert all(row.block_keys is None for row in rows)


def test_bytes_a_token_are_measured_on_the_first_prompts() -> None:
    line = b'{"timestamp": %d, "requests": [{"prompt_length": 100, "prompt": "%s"}]}\n'
    data = b"".join(line % (at, b"x" * 250) for at in range(8))
    reading = read_bytes(AIBRIX, data, prompt_hasher=PromptHasher(b"key", block_tokens=16))
    assert "2.50 bytes a token, measured on 8 prompts" in reading.context.notes[0].message
    assert {len(row.block_keys or []) for row in reading.requests} == {7}  # ceil(100 / 16)


def test_prompt_of_another_length_gives_no_blocks() -> None:
    data = b'{"timestamp": 0, "requests": [{"prompt_length": 4000, "prompt": "short"}]}\n'
    (row,) = read_bytes(AIBRIX, data, prompt_hasher=PromptHasher(b"key")).requests
    assert (row.block_keys, row.flags) == (None, ("prompt_text_mismatch",))


def test_damaged_lines_are_rejected() -> None:
    reading = read_bytes(AIBRIX, DAMAGED)
    assert reading.rejected == [
        (1, "invalid_field"),
        (2, "invalid_field"),
        (3, "invalid_field"),
        (4, "invalid_field"),
        (6, "invalid_json"),
    ]
    assert [row.prompt_tokens for row in reading.requests] == [3]


def test_it_is_recognised() -> None:
    assert sniffed(all_formats(), GOOD) == "aibrix_trace"
    assert sniffed(all_formats(), DAMAGED) == "aibrix_trace"
