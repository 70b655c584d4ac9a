"""Dense ids and runs: worked out by hand."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest

from kvtrace.ingest.blocks.table import (
    DomainBlocks,
    DomainInput,
    DomainSpec,
    agrees_with_length,
    build_domain,
    dense_ranks,
    gathered,
)


def built(
    requests: list[tuple[int, int, list[int]]],
    *,
    partial_tail: Literal["counted", "dropped", "none"] = "counted",
) -> DomainBlocks:
    """Blocks of 10 tokens from (request_key, prompt_tokens, keys)."""
    spec = DomainSpec(3, 0, "file", 10, "given", partial_tail, "chained")
    return build_domain(
        spec,
        DomainInput(
            request_keys=np.array([key for key, _tokens, _keys in requests], dtype=np.int64),
            prompt_tokens=np.array([tokens for _key, tokens, _keys in requests], dtype=np.int64),
            counts=np.array([len(keys) for _key, _tokens, keys in requests], dtype=np.int64),
            keys=np.array([key for *_, keys in requests for key in keys], dtype=np.uint64),
        ),
    )


def test_chains_become_runs_that_never_cross_a_request() -> None:
    # ids: 70 → 0, 71 → 1, 72 → 2 | 70 → 0, 90 → 3 | 91 → 4
    tables = built([(5, 25, [70, 71, 72]), (4, 20, [70, 90]), (9, 7, [91])])
    assert tables.blocks.rows() == [
        (4, 3, 0, 0, 1, 0),
        (4, 3, 1, 3, 1, 0),
        (5, 3, 0, 0, 3, 5),
        (9, 3, 0, 4, 1, 7),
    ]
    assert tables.keys.rows() == [(3, 0, 70), (3, 1, 71), (3, 2, 72), (3, 3, 90), (3, 4, 91)]
    assert (tables.domain.block_refs, tables.domain.distinct_blocks) == (6, 5)


def test_tail_is_only_where_the_last_block_is_partial() -> None:
    assert built([(1, 20, [1, 2])]).blocks["tail_tokens"].to_list() == [0]
    assert built([(1, 11, [1, 2])]).blocks["tail_tokens"].to_list() == [1]
    assert built([(1, 29, [1, 2])], partial_tail="dropped").blocks["tail_tokens"].to_list() == [0]
    assert built([(1, -1, [1, 2])]).blocks["tail_tokens"].to_list() == [0]  # unknown length


def test_request_without_blocks_has_no_run() -> None:
    assert built([(1, 0, []), (2, 5, [8]), (3, 0, [])]).blocks["request_key"].to_list() == [2]
    assert built([(1, 0, [])]).domain.block_refs == 0


@pytest.mark.parametrize("base", [0, 2**63, 2**64 - 4])
def test_ranks_keep_all_64_bits(base: int) -> None:
    keys = np.array([base + 3, base + 1, base + 3, base + 2], dtype=np.uint64)
    ranks, distinct = dense_ranks(keys)
    assert ranks.tolist() == [0, 1, 0, 2]
    assert distinct.tolist() == [base + 3, base + 1, base + 2]


def test_table_and_sort_rank_alike() -> None:
    small = np.random.default_rng(7).integers(0, 500, 3000).astype(np.uint64)
    ranks, distinct = dense_ranks(small)
    shifted_ranks, shifted = dense_ranks(small + np.uint64(2**60))
    assert ranks.tolist() == shifted_ranks.tolist()
    assert distinct.tolist() == (shifted - np.uint64(2**60)).tolist()


def test_gathered_takes_slices_in_the_given_order() -> None:
    keys = np.arange(10, dtype=np.uint64)
    starts, counts = np.array([6, 0, 3]), np.array([2, 3, 0])
    assert gathered(keys, starts, counts).tolist() == [6, 7, 0, 1, 2]


def test_agreement_of_length_and_blocks() -> None:
    tokens, counts = np.array([20, 21, 21, 0, -1]), np.array([2, 2, 3, 0, 7])
    ceil = agrees_with_length(tokens, counts, block_size_tokens=10, partial_tail="counted")
    floor = agrees_with_length(tokens, counts, block_size_tokens=10, partial_tail="dropped")
    assert ceil.tolist() == [True, False, True, True, True]
    assert floor.tolist() == [True, True, False, True, True]
