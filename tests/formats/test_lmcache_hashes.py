"""LMCache hash traces: full chunks only, chained over the prompt, and bytes a token."""

from __future__ import annotations

from kvtrace.ingest.formats.lmcache_hashes import FORMATS
from kvtrace.ingest.registry import all_formats
from tests.formats.reading import DATA, read_bytes, sniffed

LMCACHE = FORMATS[0]
GOOD = (DATA / "lmcache_hashes" / "good.jsonl").read_bytes()
DAMAGED = (DATA / "lmcache_hashes" / "damaged.jsonl").read_bytes()


def test_chunks_are_numbers_and_the_rest_of_a_prompt_has_none() -> None:
    reading = read_bytes(LMCACHE, GOOD)
    # 400 tokens in chunks of 128: 3 full chunks, 16 tokens in none.
    assert [row.block_keys for row in reading.requests] == [
        [2**64 - 1, 0xA2, 0xA3],
        [2**64 - 1, 0xB2],
        [2**64 - 1, 0xB2],
        [],
        [2**64 - 1],
    ]
    assert [row.prompt_tokens for row in reading.requests] == [400, 256, 256, 127, None]
    context = reading.context
    assert (context.found_block_size_tokens, context.partial_tail) == (128, "dropped")
    assert (context.block_ids, context.block_scope) == ("chained", "global")
    assert reading.note_codes == {"block_size_of_other_rows"}


def test_a_lookup_asked_again_is_no_request_but_the_same_id_later_is() -> None:
    reading = read_bytes(LMCACHE, GOOD)
    assert [row.request_id for row in reading.requests] == [
        "req-a",
        "req-b",
        "req-b",
        "req-short",
        "look-c",
    ]
    assert reading.ignored == {"repeated_lookup": 1}


def test_bytes_a_token_follow_from_dtype_and_shape() -> None:
    # 2 bytes x (2 x 4 x 128 x 64) elements = 131072 bytes a chunk of 128 tokens
    assert read_bytes(LMCACHE, GOOD).context.engine_facts == {"kv_bytes_per_token": 1_024}


def test_bytes_a_token_are_summed_over_layer_groups_and_unknown_for_unknown_dtypes() -> None:
    line = (
        b'{"timestamp": 1, "request_id": "r", "chunk_size": 16, "seq_len": 16,'
        b' "dtypes": %s, "shapes": [[2, 16, 8], [16, 4]], "chunk_hashes": ["0x1"]}\n'
    )
    # (2 x 16 x 8) x 2 + (16 x 4) x 1 = 576 bytes a chunk of 16 tokens
    facts = read_bytes(LMCACHE, line % b'["torch.float16", "uint8"]').context.engine_facts
    assert facts == {"kv_bytes_per_token": 36}
    assert read_bytes(LMCACHE, line % b'["float16", "mystery"]').context.engine_facts == {}


def test_clock_is_epoch_seconds() -> None:
    reading = read_bytes(LMCACHE, GOOD)
    assert reading.requests[0].arrived_at_ns == 1_780_000_000_250_000_000
    assert (reading.context.clock, reading.context.clock_resolution_ns) == ("utc", 10_000_000)


def test_long_hashes_are_keyed_and_damaged_records_rejected() -> None:
    reading = read_bytes(LMCACHE, DAMAGED, token_key=b"one")
    assert reading.rejected == [
        (2, "invalid_json"),
        (3, "invalid_json"),
        (4, "invalid_field"),
        (5, "invalid_field"),
        (6, "invalid_field"),
        (7, "invalid_field"),
        (8, "invalid_field"),
    ]
    first, again = (row.block_keys or [] for row in reading.requests)
    assert again == first[:1]
    assert first[0] != first[1]
    assert first[2] == 2**64 - 1
    assert all(0 <= key < 2**64 for key in first)
    other = read_bytes(LMCACHE, DAMAGED, token_key=b"two").requests[0].block_keys or []
    assert other[0] != first[0]


def test_a_chunk_size_that_no_row_states_is_assumed_and_said() -> None:
    reading = read_bytes(LMCACHE, DAMAGED)
    assert reading.context.found_block_size_tokens == 256
    assert "block_size_assumed" in reading.note_codes
    stated = read_bytes(LMCACHE, DAMAGED, block_size_tokens=512)
    assert stated.context.found_block_size_tokens == 512
    assert "block_size_assumed" not in stated.note_codes


def test_rows_of_another_chunk_size_lose_their_chunks() -> None:
    data = GOOD + GOOD.splitlines()[0].replace(b'"chunk_size": 128', b'"chunk_size": 64')
    reading = read_bytes(LMCACHE, data.replace(b"req-a", b"req-z"))
    assert reading.requests[-1].block_keys is None
    assert reading.requests[-1].flags == ("other_block_size",)
    assert "other_block_size" in reading.note_codes


def test_it_is_recognised() -> None:
    assert sniffed(all_formats(), GOOD) == "lmcache_hashes"
    assert sniffed(all_formats(), DAMAGED) == "lmcache_hashes"
