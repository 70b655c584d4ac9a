"""Who goes on from whom: by the logs' ids, else by the full-block rule."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from kvtrace.errors import ModelError
from kvtrace.reuse.continuations import build_continuations
from kvtrace.reuse.parents import ROOT_BRANCHES, conversations_of, follow, latest_before
from kvtrace.reuse.trace import build_trace, order_requests
from kvtrace.schema.facts import CONTINUATIONS
from tests.traces import Traced, Value, blocks_frame, domain, requests_frame, tables


def turns(*requests: Traced) -> pl.DataFrame:
    return tables(requests)["continuations"]


def parents(*requests: Traced) -> list[int | None]:
    return turns(*requests)["parent_request_key"].to_list()


def test_a_follow_up_holds_all_full_blocks_and_never_the_partial_one() -> None:
    # 10 tokens (2 full blocks of 4, 2 in a partial one), then 21: blocks 0 1 and four new ones.
    frame = turns(
        Traced([0, 1, 90], tail_tokens=2, columns={"arrived_at_ns": 5}),
        Traced([0, 1, 2, 3, 4, 91], tail_tokens=1, columns={"arrived_at_ns": 12}),
    )
    assert frame.row(1, named=True) == {
        "request_key": 1,
        "cache_domain": 0,
        "conversation": 0,
        "turn": 1,
        "known_from": "blocks",
        "parent_request_key": 0,
        "block_parent_request_key": 0,
        "repeat_of_request_key": None,
        "full_blocks": 5,
        "block_size_tokens": 4,
        "parent_full_blocks": 2,
        "shared_blocks": 2,
        "shared_tokens": 8,
        "gap_ns": 7,
    }
    opening = frame.row(0, named=True)
    assert (opening["turn"], opening["parent_request_key"], opening["gap_ns"]) == (0, None, None)


def test_requests_that_only_share_a_system_prompt_are_no_conversation() -> None:
    # Blocks 0 1 are the system prompt. The second prompt is nothing but it, yet no parent: block 1
    # was made inside the longer first prompt.
    assert parents(
        Traced([0, 1, 2, 3]),
        Traced([0, 1, 80], tail_tokens=1),
        Traced([0, 1, 4, 5]),
        Traced([0, 1, 81], tail_tokens=2),
    ) == [None, None, None, None]


def test_a_template_that_opens_the_trace_is_no_parent_once_many_go_on_from_it() -> None:
    opening = Traced([0])
    few = [Traced([0, 10 + i]) for i in range(ROOT_BRANCHES)]
    many = [*few, Traced([0, 10 + ROOT_BRANCHES])]
    assert parents(opening, *few) == [None, *[0] * ROOT_BRANCHES]
    assert parents(opening, *many) == [None] * (ROOT_BRANCHES + 2)


def test_partial_blocks_behind_a_template_are_branches_too() -> None:
    questions = [
        Traced([0, 10 + i], tail_tokens=1 + i % 3, columns={"prompt_tokens": 5 + i % 3})
        for i in range(ROOT_BRANCHES + 1)
    ]
    assert parents(*questions, Traced([0, 90, 91]))[-1] is None


def test_the_deepest_parent_wins_then_the_latest() -> None:
    # The regenerated first turn (request 2) is later, but request 1 is contained too and longer.
    assert parents(
        Traced([0, 90], tail_tokens=1),
        Traced([0, 1, 2, 91], tail_tokens=1),
        Traced([0, 90], tail_tokens=1),
        Traced([0, 1, 2, 3, 4]),
    ) == [None, 0, None, 1]
    # Two equal prompts: the later one is the parent.
    assert parents(Traced([0, 1]), Traced([0, 1]), Traced([0, 1, 2])) == [None, None, 1]


def test_an_equal_prompt_is_a_repeat_and_a_longer_one_inside_the_block_a_follow_up() -> None:
    frame = turns(
        Traced([0, 90], tail_tokens=1),
        Traced([0, 90], tail_tokens=1),
        Traced([0, 91], tail_tokens=3),
        Traced([0, 92], tail_tokens=2),
    )
    assert frame["repeat_of_request_key"].to_list() == [None, 0, None, None]
    # Request 3 (6 tokens) cannot go on from request 2 (7 tokens); the latest shorter one is 1.
    assert frame["parent_request_key"].to_list() == [None, None, 1, 1]
    assert frame["conversation"].to_list() == [0, 1, 1, 1]


def test_chains_number_turns_and_conversations() -> None:
    frame = turns(
        Traced([0, 1]), Traced([5, 6]), Traced([0, 1, 2]), Traced([5, 6, 7]), Traced([0, 1, 2, 3])
    )
    assert frame["conversation"].to_list() == [0, 1, 0, 1, 0]
    assert frame["turn"].to_list() == [0, 0, 1, 1, 2]


def test_ids_of_the_log_win_over_blocks() -> None:
    # Request 2 names request 0 (id 7) as its parent; request 3 has a session of its own, so that
    # it opens a conversation although its blocks go on from request 1; request 4 follows in it,
    # sharing 1 block with request 3 though none of it is a whole prompt.
    frame = turns(
        Traced([0, 1], columns={"request_id_key": 7}),
        Traced([0, 1, 2]),
        Traced([0, 1, 2, 3], columns={"parent_key": 7}),
        Traced([0, 1, 2, 4], columns={"session_key": 2**63}),
        Traced([0, 50], columns={"session_key": 2**63}),
        Traced([60], columns={"parent_key": 8}),
    )
    assert frame["known_from"].to_list() == [
        "blocks", "blocks", "parent_key", "session_key", "session_key", "blocks",
    ]  # fmt: skip
    assert frame["parent_request_key"].to_list() == [None, 0, 0, None, 3, None]
    assert frame["block_parent_request_key"].to_list() == [None, 0, 1, 1, None, None]
    assert frame["shared_blocks"].to_list() == [None, 2, 2, None, 1, None]
    assert frame["conversation"].to_list() == [0, 0, 0, 1, 1, 2]


def test_inside_a_session_blocks_choose_the_branch() -> None:
    session: dict[str, Value] = {"session_key": 1}
    assert parents(
        Traced([0, 1], columns=session),
        Traced([8, 9], columns=session),
        Traced([0, 1, 2], columns=session),
        Traced([30], columns=session),
    ) == [None, 0, 0, 2]


def test_parents_are_of_the_same_cache_domain() -> None:
    frame = turns(
        Traced([0, 1], cache_domain=0, columns={"session_key": 1, "request_id_key": 5}),
        Traced([0, 1, 2], cache_domain=1, columns={"session_key": 1, "parent_key": 5}),
    )
    assert frame["parent_request_key"].to_list() == [None, None]
    assert frame["conversation"].to_list() == [0, 0]
    assert frame["known_from"].to_list() == ["session_key", "session_key"]


def test_a_request_below_one_block_is_a_turn_without_blocks() -> None:
    frame = turns(Traced(columns={"prompt_tokens": 3}), Traced([0]), Traced([0, 1]))
    assert frame["full_blocks"].to_list() == [0, 1, 2]
    assert frame["parent_request_key"].to_list() == [None, None, 1]


def test_a_failed_request_is_no_turn() -> None:
    assert parents(Traced([0], columns={"status": "error"}), Traced([0, 1])) == [None]


def test_arrival_decides_who_is_earlier_not_the_row() -> None:
    assert parents(
        Traced([0, 1, 2], columns={"arrived_at_ns": 9}),
        Traced([0, 1], columns={"arrived_at_ns": 3}),
    ) == [1, None]


def test_without_blocks_there_are_no_rows() -> None:
    assert turns(Traced(columns={"prompt_tokens": 10})).equals(CONTINUATIONS.empty())
    assert turns().equals(CONTINUATIONS.empty())


def test_a_domain_without_a_block_size_is_refused() -> None:
    frame, blocks = requests_frame([{}]), blocks_frame([Traced([1])], [0])
    with pytest.raises(ModelError, match="cache domain 0"):
        build_continuations(order_requests(frame, blocks), [])


def test_a_trace_gives_the_same_conversations_as_the_table() -> None:
    made = tables(
        [
            Traced([0, 1, 90], tail_tokens=2),
            Traced([0, 1, 2, 91], tail_tokens=3),
            Traced([5, 6], columns={"session_key": 4}),
            Traced([0, 7], columns={"session_key": 4}),
        ]
    )
    talks = conversations_of(build_trace(made["requests"], made["blocks"], domain()))
    assert talks.parent.tolist() == [-1, 0, -1, 2]
    assert talks.turn.tolist() == made["continuations"]["turn"].to_list() == [0, 1, 0, 1]
    assert talks.conversation.tolist() == [0, 0, 1, 1]


def test_a_trace_without_blocks_has_conversations_of_one_request() -> None:
    lengths = requests_frame([{"prompt_tokens": 5}, {"prompt_tokens": 6}])
    trace = build_trace(lengths, blocks_frame([], []), domain())
    assert conversations_of(trace).conversation.tolist() == [0, 1]


def test_the_latest_request_before_one() -> None:
    group = np.array([4, -1, 4, 2, 4])
    asked = np.array([4, 4, 2, 9, -1])
    assert latest_before(group, asked, np.array([2, 0, 4, 4, 4])).tolist() == [0, -1, 3, -1, -1]
    none = np.zeros(0, dtype=np.int64)
    assert latest_before(none, none, none).tolist() == []


def test_following_a_long_chain() -> None:
    talks = follow(np.arange(-1, 999))
    assert talks.turn.tolist() == list(range(1000))
    assert set(talks.conversation.tolist()) == {0}
