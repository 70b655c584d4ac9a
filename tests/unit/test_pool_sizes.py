"""Three sizes of a pool, each with its own name; one of them is recommended."""

from __future__ import annotations

import pytest

from kvtrace.audit.record import CurvePoint
from kvtrace.audit.sizing.pool_sizes import cache_that_adds, nearly_all_cache_bytes, pool_sizes
from tests.unit.audit_fakes import query

CURVE = [
    CurvePoint(
        capacity_blocks=blocks, capacity_bytes=None, hit_ratio_blocks=None, hit_ratio_tokens=ratio
    )
    for blocks, ratio in ((100, 0.2), (200, 0.4), (1_000, 0.5), (2_000, 0.5))
]
ROW = {
    "medium": "pool_dram",
    "best_bytes": 7_000.0,
    "smallest_that_adds_bytes": 3_000.0,
    "nearly_all_bytes": 0.0,
    "nearly_all_cache_bytes": 9_000.0,
}


def test_two_points_more_by_straight_lines() -> None:
    # 150 blocks hit 30 %; 32 % take 160. Behind 900 blocks (48.75 %) no two points are left.
    assert cache_that_adds(CURVE, 150) == pytest.approx(160)
    assert cache_that_adds(CURVE, 900) is None


def test_each_size_has_its_name_and_one_is_recommended() -> None:
    queries = {"sizing/pool_size": query([ROW, ROW | {"medium": "pool_ssd", "best_bytes": 8e3}])}
    numbers = {one.id: one for one in pool_sizes(queries)}
    assert {ident: one.value for ident, one in numbers.items()} == {
        "smallest_that_adds_bytes": 3_000.0,
        "recommended_bytes:pool_dram": 7_000.0,
        "recommended_bytes:pool_ssd": 8_000.0,
        "nearly_all_bytes": 0.0,
    }
    named = {one.id for one in numbers.values() if "recommended" in (one.title or "")}
    assert named == {"recommended_bytes:pool_dram", "recommended_bytes:pool_ssd"}
    assert nearly_all_cache_bytes(queries) == 9_000.0


def test_unknown_is_absent() -> None:
    assert list(pool_sizes({})) == []
    assert nearly_all_cache_bytes({}) is None
    unknown = dict.fromkeys(ROW) | {"medium": "pool_dram", "nearly_all_bytes": 5.0}
    found = [one.id for one in pool_sizes({"sizing/pool_size": query([unknown])})]
    assert found == ["nearly_all_bytes"]
