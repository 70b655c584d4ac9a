"""Rounds of a multi-turn run in an LRU of a known size."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from kvtrace.cost.validation import predict
from kvtrace.cost.validation.rounds import lru_hits
from tests.unit.cost_validation.cases import point

NOTE = "20 clients x 10 rounds x 4096 tokens, max-parallel 4, output 1, page 64, round barrier"
RUN = {"model": "Qwen3-8B", "gpu": "A100-SXM4-40GB", "tp": 1, "weight_dtype": "bf16",
       "engine": "SGLang", "note": NOTE}  # fmt: skip
HIT = {**RUN, "kind": "replay_hit", "unit": "ratio"}


def test_everything_but_the_new_turn_hits_where_all_fits() -> None:
    assert lru_hits(3, 4, 12.0) == pytest.approx((0, 1 / 2, 2 / 3, 3 / 4))


def test_nothing_hits_without_room() -> None:
    assert lru_hits(3, 3, 0.0) == (0.0, 0.0, 0.0)


def test_two_conversations_in_room_for_two_turns() -> None:
    # round 1: both have a turn; the first served needs two places and takes the other's, so that
    # only the first hits: half of its prompt, a quarter of the round's 4 turns. Round 2: the last
    # served has both places; it is first in half of the orders, and then 2 of 6 turns hit
    hits = lru_hits(2, 3, 2.0)
    assert hits[1] == pytest.approx(1 / 4)
    assert 0 < hits[2] < 1 / 3


def test_more_room_never_loses_hits() -> None:
    rows = [lru_hits(20, 8, float(room)) for room in (10, 40, 80, 120, 160)]
    for fewer, more in pairwise(rows):
        assert all(a <= b + 1e-9 for a, b in zip(fewer, more, strict=True))


def test_a_round_of_a_row_is_the_one_of_its_cached_tokens(tmp_path: Path) -> None:
    cells = {**HIT, "metric": "hit_rate_round_3", "path": "+ 80 GB Mooncake + SSD"}
    zero_first = predict(point(tmp_path, **cells, cached_tokens=3 * 4_096))
    one_first = predict(point(tmp_path, **cells, cached_tokens=2 * 4_096))
    assert zero_first.predicted == pytest.approx(3 / 4)
    assert one_first.predicted == pytest.approx(2 / 3)


@pytest.mark.parametrize("index", [4, 6, 8])
def test_tiers_below_hbm_serve_more(tmp_path: Path, index: int) -> None:
    found = []
    for path in ("HBM only", "HBM + host ratio 2", "+ 80 GB Mooncake", "+ 80 GB Mooncake + SSD"):
        cells = {**HIT, "metric": f"hit_rate_round_{index}", "path": path}
        one = predict(point(tmp_path, **cells, cached_tokens=index * 4_096))
        assert one.predicted is not None, one.reason
        found.append(one.predicted)
    assert found == sorted(found)
    assert found[0] < found[-1]


def test_mean_ttft_rises_where_hits_fail(tmp_path: Path) -> None:
    cells = {**RUN, "kind": "replay_ttft", "unit": "s"}
    near = predict(point(tmp_path, **cells, metric="avg_ttft_s_round_7", path="HBM only"))
    far = predict(
        point(tmp_path, **cells, metric="avg_ttft_s_round_7", path="+ 80 GB Mooncake + SSD")
    )
    assert near.predicted is not None
    assert far.predicted is not None
    assert near.predicted > 2 * far.predicted


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"note": "a week of traffic"}, "follows from the order of requests"),
        ({"metric": "hit_rate"}, "follows from the order of requests"),
        ({"metric": "hit_rate_round_12", "cached_tokens": 12 * 4_096}, "round 12 is not one"),
    ],
)
def test_a_row_that_describes_no_run_gets_a_reason(
    tmp_path: Path, cells: dict[str, object], reason: str
) -> None:
    row = {**HIT, "metric": "hit_rate_round_2", "path": "HBM only", **cells}
    assert reason in (predict(point(tmp_path, **row)).reason or "")
