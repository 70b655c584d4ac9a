"""Capacities that a person types become whole blocks."""

from __future__ import annotations

import pytest

from kvtrace.errors import UsageError
from kvtrace.reuse.capacities import parse_capacities, round_capacities


def test_blocks_bytes_and_shares_become_blocks_in_order_once() -> None:
    # 10 % of 2 000 is 200; 1 MiB of 4 096-byte blocks is 256.
    found = parse_capacities("1MiB, 10%,200,50", distinct_blocks=2000, block_bytes=4096.0)
    assert found == (50, 200, 256)


def test_a_share_below_one_block_is_one_block() -> None:
    assert parse_capacities("0.1%", distinct_blocks=10, block_bytes=None) == (1,)


@pytest.mark.parametrize("text", ["", ",", "ten", "0", "-5", "1.5", "101%", "0%", "nan", "inf"])
def test_what_is_no_capacity_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_capacities(text, distinct_blocks=10, block_bytes=1.0)
    assert caught.value.code == "KVT-U040"


@pytest.mark.parametrize(("text", "code"), [("10G", "KVT-U002"), ("10GiB", "KVT-U041")])
def test_bytes_need_a_clear_unit_and_a_known_block(text: str, code: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_capacities(text, distinct_blocks=10, block_bytes=None)
    assert caught.value.code == code


def test_bytes_below_one_block_are_refused() -> None:
    with pytest.raises(UsageError):
        parse_capacities("1kB", distinct_blocks=10, block_bytes=2000.0)


def test_round_capacities_lie_between_the_bounds() -> None:
    assert round_capacities(3, 100) == (5, 10, 20, 50)
    assert round_capacities(1, 1) == ()
