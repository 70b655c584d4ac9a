"""Reuse facts on traces small enough to work out by hand."""

from __future__ import annotations

import pytest

from kvtrace.errors import ModelError
from kvtrace.reuse.facts import build_reuse
from kvtrace.schema.facts import REUSE
from kvtrace.schema.tables import BLOCKS
from tests.traces import Traced, blocks_frame, domain, requests_frame, tables

Fact = dict[str, object]


def facts(requests: list[Traced], *columns: str) -> list[tuple[object, ...]]:
    """The named columns of the reuse table, in its order."""
    return list(tables(requests)["reuse"].select(columns).iter_rows())


def test_first_request_has_nothing_to_reuse() -> None:
    made = tables([Traced([7, 8])])["reuse"]
    assert made.to_dicts() == [
        {
            "request_key": 0,
            "cache_domain": 0,
            "arrival_rank": 0,
            "position": 0,
            "atom": 0,
            "block_count": 2,
            "token_count": 8,
            "is_reusable": False,
            "previous_request_key": None,
            "reuse_gap_ns": None,
            "first_request_key": 0,
            "distance_blocks": None,
            "distance_tokens": None,
        }
    ]


def test_columns_are_exactly_those_of_the_schema() -> None:
    made = tables([Traced([1]), Traced([1])])["reuse"]
    assert made.schema == REUSE.polars_schema()


def test_distance_counts_what_was_touched_since() -> None:
    # A = blocks 1 2 3, then B = 4 5. Stack before the third request, most recent first: 4 5 1 2 3.
    # The third request holds 1 2: two blocks (8 tokens) lie above block 1, so d = 3 (9 tokens).
    made = facts(
        [Traced([1, 2, 3]), Traced([4, 5]), Traced([1, 2])],
        "request_key", "atom", "block_count", "is_reusable", "distance_blocks", "distance_tokens",
    )  # fmt: skip
    assert made[-1] == (2, 0, 2, True, 3, 9)
    assert made[:-1] == [
        (0, 0, 2, False, None, None),
        (0, 1, 1, False, None, None),
        (1, 2, 2, False, None, None),
    ]


def test_partial_block_weighs_its_tokens_in_the_token_distance() -> None:
    # Request 1 holds blocks 4 5, the last with 1 token: 4 + 1 = 5 tokens above block 1.
    made = facts(
        [Traced([1, 2]), Traced([4, 5], tail_tokens=1), Traced([1, 2])],
        "token_count", "distance_blocks", "distance_tokens",
    )  # fmt: skip
    assert made == [(8, None, None), (5, None, None), (8, 3, 6)]


def test_nothing_after_the_first_new_block_is_reusable() -> None:
    # Ids that are no tree: 9 is new, so 2 behind it cannot be reused though it is known.
    made = facts([Traced([1, 2]), Traced([1, 9, 2])], "position", "is_reusable", "distance_blocks")
    assert made[2:] == [(0, True, 1), (1, False, None), (2, False, None)]


def test_something_deep_in_front_delays_what_follows() -> None:
    # Stack before request 1: 1 2 3. It asks 3 (d = 3), then 1 and 2 (d = 1 and 2), which count only
    # once 3 is there: running maximum 3, block by block.
    made = facts([Traced([1, 2, 3]), Traced([3, 1, 2])], "block_count", "distance_blocks")
    assert made == [(1, None), (1, None), (1, None), (1, 3), (1, 3), (1, 3)]


def test_block_twice_in_one_request_is_looked_up_before_the_request() -> None:
    made = facts(
        [Traced([1, 1, 2]), Traced([1, 1, 2])], "position", "is_reusable", "distance_blocks"
    )
    # Stack before request 1: 1 2. Both lookups of 1 hit at C = 1, block 2 needs C = 2.
    assert made == [
        (0, False, None),
        (1, False, None),
        (2, False, None),
        (0, True, 1),
        (1, True, 1),
        (2, True, 2),
    ]


def test_gap_and_previous_holder_are_of_the_last_earlier_request() -> None:
    made = facts(
        [
            Traced([1], columns={"arrived_at_ns": 10}),
            Traced([1], columns={"arrived_at_ns": 15}),
            Traced([1], columns={"arrived_at_ns": 35}),
        ],
        "previous_request_key", "reuse_gap_ns", "first_request_key", "arrival_rank",
    )  # fmt: skip
    assert made == [(None, None, 0, 0), (0, 5, 0, 1), (1, 20, 0, 2)]


def test_facts_follow_arrival_not_file_order() -> None:
    made = facts(
        [
            Traced([1, 2], columns={"arrived_at_ns": 20}),
            Traced([1], columns={"arrived_at_ns": 10}),
        ],
        "request_key", "arrival_rank", "atom", "is_reusable",
    )  # fmt: skip
    assert made == [(0, 1, 0, True), (0, 1, 1, False), (1, 0, 0, False)]


def test_gap_is_unknown_without_a_clock() -> None:
    made = facts([Traced([1]), Traced([1])], "previous_request_key", "reuse_gap_ns")
    assert made == [(None, None), (0, None)]


def test_only_ok_headline_requests_have_facts() -> None:
    made = facts(
        [
            Traced([1], columns={"status": "error"}),
            Traced([1], columns={"is_headline": False}),
            Traced([1]),
        ],
        "request_key", "is_reusable",
    )  # fmt: skip
    assert made == [(2, False)]


def test_domains_share_nothing_and_number_atoms_apart() -> None:
    made = facts(
        [Traced([1, 2]), Traced([1, 2], cache_domain=1), Traced([1, 2], cache_domain=1)],
        "cache_domain", "arrival_rank", "atom", "is_reusable", "distance_blocks",
    )  # fmt: skip
    assert made == [(0, 0, 0, False, None), (1, 0, 0, False, None), (1, 1, 0, True, 1)]


def test_prompt_length_bounds_the_tokens_of_its_blocks() -> None:
    # Two blocks of 4, but the prompt is said to have 5 tokens: 4 + 1.
    made = facts([Traced([1, 2], columns={"prompt_tokens": 5}), Traced([1])], "token_count")
    assert made == [(4,), (1,), (4,)]


def test_no_blocks_give_an_empty_table() -> None:
    reuse = build_reuse(requests_frame([{}]), BLOCKS.empty(), [])
    assert reuse.is_empty()
    assert reuse.schema == REUSE.polars_schema()


def test_domain_without_a_block_size_is_refused() -> None:
    blocks = blocks_frame([Traced([1], cache_domain=3)], [0])
    with pytest.raises(ModelError, match="cache domain 3 has blocks but no block size"):
        build_reuse(requests_frame([{}]), blocks, [domain(0)])
