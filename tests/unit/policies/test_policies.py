"""Each policy on a trace that can be followed by hand."""

from __future__ import annotations

import numpy as np
import pytest

from kvtrace.reuse.policies.blocks import flat_trace
from kvtrace.reuse.policies.bounds import find_intervals, find_optimum, unlimited
from kvtrace.reuse.policies.run import PolicyName, serve
from kvtrace.reuse.policies.table import Plan, build_policy_hits
from tests.unit.policies.small import traced


def hits(policy: PolicyName, keys: str, capacity: int) -> str:
    """Which of the keys, asked for one by one, are hits."""
    ids = np.asarray([list(dict.fromkeys(keys)).index(key) for key in keys], dtype=np.int64)
    (served,) = serve(flat_trace(ids), policy, [capacity], mode="python")
    return "".join("x" if hit else "." for hit in served.hit_blocks.tolist())


@pytest.mark.parametrize(
    ("policy", "found"),
    [
        # a, b, a with room for 2; c pushes out b, or a under FIFO, which came first. Then b pushes
        # out a under LRU, c under LFU, since a was used twice. ARC has seen b leave: its target
        # for what was used once grows to 1, so a, the only one used twice, goes.
        ("lru", "..x..."),
        ("leaf_lru", "..x..."),
        ("fifo", "..x.x."),
        ("flat_fifo", "..x.x."),
        ("lfu", "..x..x"),
        ("arc", "..x..."),
    ],
)
def test_textbook_policies_on_single_keys(policy: PolicyName, found: str) -> None:
    assert hits(policy, "abacba", 2) == found


def test_the_victim_is_never_in_front_of_a_cached_block() -> None:
    # Room for 3. FIFO would drop 1, the oldest, at the third request; but 2 stands on it and is
    # asked for again. So 2 goes, then 3 takes the place and 1 is still there.
    trace = traced([[1], [1, 2], [9], [8], [1, 2]])
    (fifo,) = serve(trace, "fifo", [3], mode="python")
    (flat,) = serve(trace, "flat_fifo", [3], mode="python")
    assert fifo.hit_blocks.tolist() == [0, 1, 0, 0, 1]
    assert flat.hit_blocks.tolist() == [0, 1, 0, 0, 0]


def test_leaf_lru_evicts_a_whole_radix_node() -> None:
    # [1, 2, 3] is one node of 3 blocks; block 9 needs one place, and the node goes whole.
    trace = traced([[1, 2, 3], [9], [1, 2, 3]])
    (by_node,) = serve(trace, "leaf_lru", [3], mode="python")
    (by_block,) = serve(trace, "lru", [3], mode="python")
    assert by_node.hit_blocks.tolist() == [0, 0, 0]
    assert by_block.hit_blocks.tolist() == [0, 0, 2]


def test_length_aware_gives_up_what_lies_deep() -> None:
    # All used once: of [1, 2, 3] the deepest goes although [7] is older.
    trace = traced([[7], [1, 2, 3], [8], [7], [1, 2, 3]])
    (deep,) = serve(trace, "length_aware", [4], mode="python")
    assert deep.hit_blocks.tolist() == [0, 0, 0, 1, 2]


def test_time_to_live_counts_from_the_last_use_and_includes_its_end() -> None:
    trace = traced([[1], [1], [1]], arrived=[0, 5, 11])
    (served,) = serve(trace, "ttl", [9], ttl_ns=5, mode="python")
    assert served.hit_blocks.tolist() == [0, 1, 0]


def test_second_use_writes_what_was_asked_for_before() -> None:
    # 1 is written by the second request, so the third finds it; 2 and 3 are never written.
    trace = traced([[1, 2], [1, 3], [1]])
    for policy in ("lru", "fifo", "lfu", "arc", "s3_fifo", "length_aware"):
        (served,) = serve(trace, policy, [9], admission="second_use", mode="python")
        assert served.hit_blocks.tolist() == [0, 0, 1]
        assert served.stored_blocks.tolist() == [0, 1, 1]


def test_a_partial_block_takes_its_tokens_of_room() -> None:
    # Blocks of 4 tokens. [1] has 1 token, [2] has 3: both fit into 4 tokens, not into one place.
    trace = traced([[1], [2], [1], [2]], tails=[1, 3, 1, 3])
    (by_tokens,) = serve(trace, "lru", [1], weight="tokens", mode="python")
    (by_blocks,) = serve(trace, "lru", [1], mode="python")
    assert by_tokens.hit_blocks.tolist() == [0, 0, 1, 1]
    assert by_blocks.hit_blocks.tolist() == [0, 0, 0, 0]


def test_the_optimum_knows_what_comes_back() -> None:
    # Room for 1: of 1 and 2 only 1 comes back, after 2 went by. LRU keeps 2 for nothing.
    found = find_intervals(traced([[1], [2], [1]]))
    optimum = find_optimum(found, 1, "blocks", mode="python")
    assert (optimum.low.tolist(), optimum.high.blocks) == ([0, 0, 1], 1)
    assert unlimited(found).tokens == 4


def test_rows_keep_the_order_of_the_bounds_and_say_what_was_written() -> None:
    trace = traced([[1, 2], [3, 4], [1, 2], [3, 4]])
    frame = build_policy_hits([(0, trace)], Plan((2, 4), ("fifo",)), mode="python")
    rows = {(row["capacity_blocks"], row["policy"]): row for row in frame.iter_rows(named=True)}
    # Room for 2: LRU serves none; keeping [1, 2] serves 2 of 8 blocks. Room for 4: all 4.
    at_two = ["lru", "strict_optimum_low", "strict_optimum_high", "relaxed_optimum", "unlimited"]
    assert [rows[2, policy]["hit_blocks"] for policy in at_two] == [0, 2, 2, 2, 4]
    assert [rows[4, policy]["hit_tokens"] for policy in at_two] == [16, 16, 16, 16, 16]
    assert (rows[2, "lru"]["writes_blocks"], rows[4, "fifo"]["writes_blocks"]) == (8, 4)
    assert rows[2, "unlimited"]["requests_with_hit"] == 2
    assert rows[2, "relaxed_optimum"]["writes_blocks"] is None


def test_no_requests_give_no_hits() -> None:
    trace = traced([[]])
    frame = build_policy_hits([(0, trace)], Plan((1,), ("arc", "s3_fifo", "lfu")), mode="python")
    assert frame["hit_blocks"].sum() == 0
