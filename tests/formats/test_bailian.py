"""Qwen-Bailian traces: content ids are chained, sessions follow the parents."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvtrace.ingest.blocks.ids import chain_content_ids
from kvtrace.ingest.contract import RequestRow
from kvtrace.ingest.formats.bailian import FORMATS
from kvtrace.ingest.registry import all_formats
from tests.formats.reading import DATA, decoded, read_bytes, sniffed

BAILIAN = FORMATS[0]
GOOD = (DATA / "bailian" / "good.jsonl").read_bytes()
MALFORMED = (DATA / "bailian" / "malformed.jsonl").read_bytes()

content_ids = st.lists(st.integers(min_value=0, max_value=2**64 - 1), max_size=8)


def leading_hits(rows: list[RequestRow]) -> list[int]:
    """Blocks of each request's leading run that an earlier request held."""
    seen: set[int] = set()
    hits: list[int] = []
    for row in rows:
        keys = row.block_keys or []
        run = next((at for at, key in enumerate(keys) if key not in seen), len(keys))
        hits.append(run)
        seen.update(keys)
    return hits


def test_same_content_behind_another_prefix_is_another_key() -> None:
    rows = read_bytes(BAILIAN, GOOD).requests
    first, second, third = (row.block_keys or [] for row in rows[:3])
    assert first[0] == second[0] == third[0]
    assert first[1] == third[1]
    assert set(first[1:]) & set(second[1:]) == set()  # 7 8 9 against 7 9 8
    assert leading_hits(rows) == [0, 1, 2, 0, 0]


@given(content_ids, content_ids)
def test_keys_agree_exactly_as_far_as_the_prefixes_do(left: list[int], right: list[int]) -> None:
    common = next(
        (at for at, (a, b) in enumerate(zip(left, right, strict=False)) if a != b),
        min(len(left), len(right)),
    )
    left_keys, right_keys = chain_content_ids(left), chain_content_ids(right)
    assert left_keys[:common] == right_keys[:common]
    assert set(left_keys[common:]) & set(right_keys[common:]) == set()
    assert all(0 <= key < 2**64 for key in left_keys)


def test_session_is_the_root_of_the_parent_chain() -> None:
    rows = read_bytes(BAILIAN, GOOD).requests
    assert [row.session_id for row in rows] == ["10", "11", "10", "13", "13"]
    assert [row.parent_id for row in rows] == [None, None, "10", "99", "99"]
    assert rows[3].flags == ("parent_outside_sample",)


def test_turns_count_from_zero_and_times_stay_on_the_clock_of_the_trace() -> None:
    reading = read_bytes(BAILIAN, GOOD)
    assert [row.turn for row in reading.requests] == [0, 0, 1, 3, 4]
    assert [row.arrived_at_ns for row in reading.requests] == [
        5_250_000_000,
        5_662_000_000,
        61_114_000_000,
        62_000_000_000,
        63_000_000_000,
    ]
    assert reading.context.clock == "relative"
    assert reading.context.clock_resolution_ns == 1_000_000


def test_blocks_are_declared_as_chained_here() -> None:
    context = read_bytes(BAILIAN, GOOD).context
    assert context.block_ids == "content_chained"
    assert context.found_block_size_tokens == 16
    assert context.partial_tail == "counted"
    assert context.block_size_reason is not None
    assert "5 of 5" in context.block_size_reason


def test_bad_rows_are_rejected_and_odd_ones_kept_without_blocks() -> None:
    reading = read_bytes(BAILIAN, MALFORMED)
    assert reading.rejected == [
        (2, "invalid_field"),
        (3, "invalid_field"),
        (4, "invalid_json"),
        (5, "invalid_field"),
        (8, "invalid_field"),
        (9, "invalid_json"),
    ]
    assert [row.request_id for row in reading.requests] == ["1", "5", "6"]
    assert [row.block_keys is None for row in reading.requests] == [False, True, True]
    assert [row.flags for row in reading.requests[1:]] == [
        ("block_count_mismatch",),
        ("no_block_ids",),
    ]
    assert "block_size_mismatch" in reading.note_codes


def test_trace_without_ids_is_length_only() -> None:
    data = (
        b'{"chat_id": 6, "parent_chat_id": -1, "timestamp": 4, "input_length": 20,'
        b' "output_length": 2}\n'
    )
    assert read_bytes(BAILIAN, data).context.evidence_grade == "L"


def test_forced_block_size_is_used() -> None:
    data = (
        b'{"chat_id": 6, "parent_chat_id": -1, "timestamp": 4, "input_length": 40,'
        b' "output_length": 2, "hash_ids": [1, 2]}\n'
    )
    reading = read_bytes(BAILIAN, data, block_size_tokens=32)
    assert reading.requests[0].block_keys is not None
    assert reading.context.found_block_size_tokens == 32


def test_it_is_recognised_before_mooncake() -> None:
    assert sniffed(all_formats(), GOOD) == "bailian"
    assert sniffed(all_formats(), MALFORMED) == "bailian"


@pytest.mark.shared
def test_trace_a_excerpt(shared_dir: Path) -> None:
    path = shared_dir / "trace_excerpts" / "bailian_traceA_style.jsonl"
    reading = read_bytes(BAILIAN, decoded(path))
    rows = reading.requests
    assert len(rows) == 9
    assert sum(row.prompt_tokens or 0 for row in rows) == 5_299
    assert sum(row.output_tokens or 0 for row in rows) == 1_012
    assert leading_hits(rows) == [0, 6, 0, 32, 49, 0, 0, 62, 0]
    assert [row.session_id for row in rows] == ["0", "1", "2", "0", "0", "5", "6", "6", "8"]
    assert reading.rejected == []


@pytest.mark.shared
def test_mixed_file_is_left_to_the_majority(shared_dir: Path) -> None:
    data = decoded(shared_dir / "trace_excerpts" / "nasty" / "mixed_schema.jsonl")
    assert sniffed((BAILIAN,), data) is None
