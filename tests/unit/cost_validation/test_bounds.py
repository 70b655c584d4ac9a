"""The published points: errors stay at what docs/model/validation.md states, or below."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvtrace.cost.validation import Score, Validation, validate

pytestmark = pytest.mark.shared


@pytest.fixture(scope="module")
def published(shared_dir: Path) -> Validation:
    """All published points."""
    return validate(shared_dir / "facts" / "validation_points.csv")


def _median(score: Score) -> float:
    assert score.median_error is not None
    return score.median_error


@pytest.mark.parametrize(
    ("group", "least", "median", "p90"),
    [
        ("prefill_ttft dense", 30, 0.10, 0.30),
        ("prefill_ttft experts", 12, 0.20, 0.40),
        ("prefill_composed dense", 17, 0.06, 0.15),
        ("decode dense", 12, 0.10, 0.20),
        ("decode experts", 10, 0.20, 0.40),
    ],
)
def test_compute(published: Validation, group: str, least: int, median: float, p90: float) -> None:
    score = published.groups[group]
    assert score.predicted == score.n >= least
    assert _median(score) <= median
    assert score.p90_error is not None
    assert score.p90_error <= p90


@pytest.mark.parametrize(
    ("kind", "least", "median"),
    [
        ("kv_size", 15, 0.01),
        ("kv_load", 33, 0.08),
        ("link_bw", 13, 0.03),
        ("link_chunk_bw", 23, 0.05),
        ("decode", 22, 0.12),
        ("replay_throughput", 8, 0.18),
    ],
)
def test_sizes_and_moves(published: Validation, kind: str, least: int, median: float) -> None:
    score = published.kinds[kind]
    assert score.predicted >= least
    assert _median(score) <= median


def test_every_kv_size_is_within_its_trust(published: Validation) -> None:
    score = published.kinds["kv_size"]
    assert score.within_tolerance == score.n


def test_hits_of_rounds_are_within_their_trust(published: Validation) -> None:
    score = published.kinds["replay_hit"]
    assert score.predicted >= 35
    assert score.within_tolerance >= 0.85 * score.predicted


@pytest.mark.parametrize(("kind", "least"), [("economics", 13), ("speedup", 7)])
def test_every_sign_is_right(published: Validation, kind: str, least: int) -> None:
    score = published.kinds[kind]
    assert score.signs_right == score.signs == score.n >= least


def test_every_point_has_a_value_or_a_reason(published: Validation) -> None:
    for one in published.predictions:
        assert (one.predicted is None) == bool(one.reason), one.point.id
