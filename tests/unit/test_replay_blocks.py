"""Atoms and the caches over them, by hand."""

from __future__ import annotations

from kvtrace.replay.blocks import HbmCache, LruCache, build_atoms
from tests.unit.replay_cases import Ask, make_trace


def test_requests_are_cut_where_any_run_starts_or_ends() -> None:
    # a b c d | a b e: runs (0..3) and (0..1), (4); atoms ab = 0, cd = 1, e = 2
    table = build_atoms(make_trace([Ask(0, "abcd"), Ask(1, "abe")]))
    assert list(table.blocks) == [2, 2, 1]
    assert list(table.offset) == [0, 2, 4]
    assert list(table.atoms) == [0, 1, 0, 2]
    assert list(table.request_blocks) == [4, 3]


def test_a_trace_without_blocks_has_no_atoms() -> None:
    table = build_atoms(make_trace([Ask(0, prompt=5), Ask(1, prompt=7)]))
    assert [*map(list, (table.atoms, table.blocks, table.offset))] == [[], [], [0, 0, 0]]


def test_a_request_without_blocks_stands_between_others() -> None:
    table = build_atoms(make_trace([Ask(0, "ab"), Ask(1, prompt=3), Ask(2, "ab")]))
    assert list(table.offset) == [0, 1, 1, 2]
    assert list(table.request_blocks) == [2, 0, 2]


def test_the_tail_of_the_oldest_atom_goes_first() -> None:
    cache = LruCache(5, [3, 4])
    cache.touch([0, 1], 0, 1)
    cache.touch([0, 1], 1, 2)  # 3 + 4 blocks in 5: two blocks of atom 0's tail leave
    assert dict(cache.stored) == {0: 1, 1: 4}
    assert (cache.used, cache.evicted) == (5, 2)


def test_a_request_longer_than_the_cache_keeps_its_head() -> None:
    cache = LruCache(4, [3, 3])
    cache.touch([0, 1], 0, 2)
    assert dict(cache.stored) == {1: 1, 0: 3}


def test_a_cache_of_no_blocks_holds_nothing() -> None:
    cache = LruCache(0, [2])
    cache.touch([0], 0, 1)
    assert (dict(cache.stored), cache.used) == ({}, 0)
    assert cache.extend([0], 0, 0, 1) == (0, 0, 0)


def test_a_leading_run_continues_inside_an_atom() -> None:
    hbm = LruCache(2, [3, 2])
    hbm.touch([0], 0, 1)  # two of three blocks
    pool = LruCache(9, [3, 2])
    pool.touch([0, 1], 0, 2)
    run = hbm.extend([0, 1], 0, 0, 2)
    assert run == (0, 2, 2)
    assert pool.extend([0, 1], 0, 2, 2) == (2, 0, 3)


def test_a_tier_that_holds_less_of_an_atom_adds_nothing() -> None:
    pool = LruCache(1, [3])
    pool.touch([0], 0, 1)
    assert pool.extend([0], 0, 2, 1) == (0, 2, 0)


def test_renewed_atoms_outlive_others() -> None:
    cache = LruCache(4, [2, 2, 2])
    cache.touch([0, 1, 2], 0, 1)
    cache.touch([0, 1, 2], 1, 2)
    cache.renew([0, 2], 0, 2)  # atom 2 is not there and stays out
    cache.touch([0, 1, 2], 2, 3)
    assert dict(cache.stored) == {0: 2, 2: 2}


def test_missing_counts_blocks_and_says_whether_the_last_one_is_among_them() -> None:
    cache = LruCache(3, [2, 2])
    cache.touch([0, 1], 0, 2)
    assert cache.missing([0, 1], 0, 2) == (1, True)
    assert cache.missing([0, 1], 0, 1) == (0, False)
    assert cache.missing([1, 0], 0, 2) == (1, False)


def hbm(capacity_tokens: int = 60, weights: tuple[int, ...] = (2, 2, 2)) -> HbmCache:
    return HbmCache(capacity_tokens, 10, weights)


def test_pinned_blocks_are_not_evicted() -> None:
    cache = hbm()
    cache.fill([0], 0, 0, 1)
    cache.fill([1], 0, 0, 1)
    cache.let_go([1], 0, 1, 0)
    cache.reserve(40)  # 40 cached + 40 reserved in 60: atom 1 goes, atom 0 is held
    assert cache.stored == {0: 2}
    assert (cache.used, cache.pinned, cache.evicted) == (2, 2, 2)


def test_eviction_from_hbm_trims_the_tail_of_the_least_recent_atom() -> None:
    cache = hbm()
    for atom in (0, 1):
        cache.fill([atom], 0, 0, 1)
        cache.let_go([atom], 0, 1, 0)
    cache.reserve(25)  # 40 + 25 - 60 = 5 tokens too many: one block
    assert cache.stored == {0: 1, 1: 2}


def test_a_request_lets_go_of_its_tail_first() -> None:
    cache = hbm()
    cache.fill([0, 1, 2], 0, 0, 3)
    cache.let_go([0, 1, 2], 0, 3, 0)
    cache.reserve(20)
    assert cache.stored == {0: 2, 1: 2}


def test_an_atom_held_twice_stays_pinned_until_both_are_gone() -> None:
    cache = hbm()
    cache.fill([0], 0, 0, 1)
    cache.pin([0], 0, 1)
    cache.let_go([0], 0, 1, 0)
    assert cache.pinned == 2
    cache.let_go([0], 0, 1, 0)
    assert cache.pinned == 0


def test_room_is_what_neither_pins_nor_reservations_take() -> None:
    cache = hbm()
    cache.fill([0], 0, 0, 1)
    cache.let_go([0], 0, 1, 0)
    cache.reserve(20)
    assert cache.fits(20, [], 0, 0)  # free as it is
    assert cache.fits(40, [], 0, 0)  # atom 0 may go
    assert not cache.fits(41, [], 0, 0)
    assert not cache.fits(40, [0], 0, 1)  # atom 0 is wanted
    cache.pin([0], 0, 1)
    assert cache.fits(20, [0], 0, 1)  # pinned already: not counted twice
    assert not cache.fits(21, [0], 0, 1)


def test_a_partial_fill_holds_the_atom_it_ends_in() -> None:
    cache = hbm()
    cache.fill([0, 1], 0, 0, 1, 1)
    assert cache.stored == {0: 2, 1: 1}
    assert (cache.used, cache.pinned) == (3, 3)
    cache.fill([0, 1], 1, 2, 2)  # the rest of atom 1, which is held already
    assert (cache.stored[1], cache.pinned) == (2, 4)
    cache.let_go([0, 1], 0, 2, 0)
    assert cache.pinned == 0


def test_a_fill_takes_over_blocks_that_lie_there_unpinned() -> None:
    cache = hbm()
    cache.fill([0], 0, 0, 1)
    cache.let_go([0], 0, 1, 0)
    cache.fill([0], 0, 0, 1)
    assert (cache.used, cache.pinned) == (2, 2)
    cache.reserve(100)
    assert cache.stored == {0: 2}
