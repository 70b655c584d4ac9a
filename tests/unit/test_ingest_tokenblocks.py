"""Token ids become chained, keyed block keys; equal keys mean equal prefixes."""

from __future__ import annotations

import pytest

from kvtrace.ingest.blocks.tokens import chain_token_blocks, parse_token_ids

KEY = b"k" * 32


def keys(ids: list[int], *, key: bytes = KEY, adapter: str | None = None) -> list[int]:
    found = chain_token_blocks(ids, key=key, block_tokens=16, adapter=adapter)
    assert found is not None
    return list(found)


def test_a_shared_prefix_gives_shared_leading_keys() -> None:
    first = keys([*range(32), 1, 2])
    second = keys([*range(32), 3, 4, 5])
    assert len(first) == len(second) == 3
    assert first[:2] == second[:2]
    assert first[2] != second[2]


def test_the_same_block_behind_another_prefix_has_another_key() -> None:
    block = list(range(16))
    assert keys([9] * 16 + block)[1] != keys([8] * 16 + block)[1]


def test_a_partial_block_matches_only_an_equal_partial_block() -> None:
    assert keys(list(range(20))) == keys(list(range(20)))
    assert keys(list(range(20)))[1] != keys(list(range(21)))[1]
    assert keys(list(range(20)))[1] != keys(list(range(32)))[1]


def test_keys_depend_on_the_run_and_the_adapter() -> None:
    ids = list(range(16))
    assert keys(ids) != keys(ids, key=b"other" * 4)
    assert keys(ids) != keys(ids, adapter="a")


def test_lists_as_printed() -> None:
    assert parse_token_ids("[1, 2, 30]") == [1, 2, 30]
    assert parse_token_ids("[]") == []
    assert list(keys([])) == []


@pytest.mark.parametrize(
    "listed", ["[1, 2", "1, 2]", "[1, -2]", "[1, 2.5]", "[1, '2']", "[1,, 2]", "[\udc80]", ""]
)
def test_what_is_no_whole_list_of_ids_is_refused(listed: str) -> None:
    assert parse_token_ids(listed) is None


def test_ids_that_no_vocabulary_has_give_no_keys() -> None:
    ids = parse_token_ids(f"[1, {2**32}]")
    assert ids == [1, 2**32]
    assert chain_token_blocks(ids, key=KEY, block_tokens=16) is None


def test_an_adapter_does_not_run_into_the_ids() -> None:
    ids = list(range(16))
    assert keys(ids, adapter="") == keys(ids)
    assert len({keys(ids, adapter=name)[0] for name in ("a", "b", "ab")}) == 3
