"""Three sizes of a pool, worked out by hand from one curve; each with its own name."""

from __future__ import annotations

import pytest

from kvtrace.audit.inputs import ResultOfQuery
from kvtrace.audit.record import CurvePoint
from kvtrace.audit.sizing.pool_sizes import cache_of_nearly_all, cache_that_adds, pool_sizes
from tests.unit.audit_fakes import query

BLOCK = 1_000.0
CURVE = [
    CurvePoint(
        capacity_blocks=blocks,
        capacity_bytes=blocks * BLOCK,
        hit_ratio_blocks=None,
        hit_ratio_tokens=ratio,
    )
    for blocks, ratio in ((100, 0.2), (200, 0.4), (1_000, 0.5), (2_000, 0.5))
]


def sized(held_blocks: float, best: float | None = 7_000.0) -> dict[str, ResultOfQuery]:
    row = {"medium": "pool_dram", "held_bytes": held_blocks * BLOCK, "best_bytes": best}
    return {"sizing/pool_size": query([row])}


def test_two_points_more_and_two_points_less_by_straight_lines() -> None:
    # 150 blocks hit 30 %; 32 % take 160. 50 % at most; 48 % take 200 + 0.8 x 800.
    assert cache_that_adds(CURVE, 150) == pytest.approx(160)
    assert cache_of_nearly_all(CURVE) == pytest.approx(840)
    assert cache_that_adds(CURVE, 900) is None
    assert cache_of_nearly_all([]) is None


def test_sizes_stand_behind_what_is_held_and_one_is_recommended() -> None:
    numbers = {one.id: one for one in pool_sizes(sized(150), CURVE).quantities()}
    assert numbers["smallest_that_adds_bytes"].value == pytest.approx(10 * BLOCK)
    assert numbers["recommended_bytes:pool_dram"].value == 7_000.0
    assert numbers["nearly_all_bytes"].value == pytest.approx(690 * BLOCK)
    named = [one.id for one in numbers.values() if "recommended" in (one.title or "")]
    assert named == ["recommended_bytes:pool_dram"]


def test_what_hbm_and_idle_dram_keep_needs_no_pool() -> None:
    found = pool_sizes(sized(900), CURVE)
    assert (found.smallest_that_adds, found.nearly_all) == (None, 0.0)


def test_unknown_is_absent() -> None:
    assert list(pool_sizes({}, CURVE).quantities()) == []
    found = pool_sizes(sized(150, best=None), [])
    assert list(found.quantities()) == []
