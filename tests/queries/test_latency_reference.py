"""The latency queries against numpy and scipy on random requests.

Quantiles and their intervals, the test of what the tail has, the split of its excess, and what a
cached token saves; each reference is the textbook computation, written without the query.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy import stats

from kvtrace.duckdb_session import Param, Session
from kvtrace.query.catalog import load_catalog
from kvtrace.schema.arrays import FloatArray
from tests.traces import Value, create_tables, requests_frame

MS = 1_000_000
CATALOG = load_catalog()
LEVELS = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
ENOUGH = {"p50": 6, "p90": 36, "p95": 72, "p99": 1000}
seeds = pytest.mark.parametrize("seed", range(3))
Rows = list[dict[str, Value]]


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Session(threads=1) as opened:
        yield opened


def run(
    session: Session, query: str, rows: Sequence[dict[str, Value]], **params: Param
) -> list[dict[str, Any]]:
    """The rows of a query over a dataset of these requests."""
    create_tables(session, {"requests": requests_frame(rows)})
    return CATALOG.run(session, query, params).frame.to_dicts()


def made(seed: int, count: int) -> Rows:
    """Requests with every time known, many ties, hits, and a load that rises and falls."""
    rng = np.random.default_rng(seed)
    prompts = rng.integers(64, 700, count)
    cached = np.minimum(prompts, rng.integers(0, 5, count) * rng.integers(0, 150, count))
    arrived = np.cumsum(rng.integers(0, 30, count))
    queue = rng.integers(0, 50, count) ** 2 // 10
    prefill = 5 + (prompts - cached) // 20 + rng.integers(0, 20, count)
    decode = rng.integers(0, 400, count)
    return [
        {
            "prompt_tokens": int(prompts[i]),
            "cached_tokens": int(cached[i]),
            "arrived_at_ns": int(arrived[i]) * MS,
            "queue_ns": int(queue[i]) * MS,
            "prefill_ns": int(prefill[i]) * MS,
            "ttft_ns": int(queue[i] + prefill[i]) * MS,
            "ttft_from": "arrival",
            "e2e_ns": int(queue[i] + prefill[i] + decode[i]) * MS,
        }
        for i in range(count)
    ]


def column(rows: Rows, name: str, scale: float = 1.0) -> FloatArray:
    """One column as floats."""
    return np.array([float(str(row[name])) for row in rows]) / scale


def interval_of(values: FloatArray, level: float) -> tuple[float, float]:
    """The order statistics that enclose a quantile with 95 %, ranks from the binomial law."""
    n = len(values)
    ordered = np.sort(values)
    total = stats.binom.cdf(np.arange(n + 1), n, level)
    low = int((total <= 0.025).sum())
    high = int((total < 0.975).sum()) + 1
    return float(ordered[low - 1]), float(ordered[high - 1])


@pytest.mark.parametrize("count", [5, 6, 35, 36, 71, 72, 367, 999, 1000, 1701])
def test_quantiles_and_their_intervals_equal_those_of_the_binomial_law(
    session: Session, count: int
) -> None:
    rows = made(count, count)
    (found,) = (r for r in run(session, "latency/quantiles", rows) if r["metric"] == "ttft")
    values = column(rows, "ttft_ns", MS)
    assert found["requests"] == count
    for name, level in LEVELS.items():
        mine = tuple(found[f"{name}{end}_ms"] for end in ("", "_low", "_high"))
        if count < ENOUGH[name]:
            assert mine == (None, None, None)
        else:
            assert mine[0] == pytest.approx(float(np.quantile(values, level)))
            assert mine[1:] == interval_of(values, level)


def test_a_quantile_is_given_as_soon_as_its_upper_rank_exists() -> None:
    # u - 1 is the smallest k with P(B <= k) >= 0.975; u <= n needs 1 - p^n >= 0.975.
    for name, level in LEVELS.items():
        first = next(n for n in range(1, 2000) if 1 - level**n >= 0.975)
        assert ENOUGH[name] == max(first, 1000 if name == "p99" else 0)


def share_bucket(row: dict[str, Value]) -> float:
    share = float(str(row["cached_tokens"])) / float(str(row["prompt_tokens"]))
    return (
        next(top for top in (0.0, 0.25, 0.5, 0.75, 1.0) if share < top or share == top == 0)
        if (share < 1)
        else 1.0
    )


@pytest.mark.parametrize(
    ("query", "name", "bucket_of"),
    [
        ("by_prompt", "prompt_bucket", lambda r: 2 ** (r["prompt_tokens"].bit_length() - 1)),
        (
            "by_kv_bytes",
            "kv_bytes_bucket",
            lambda r: 2 ** ((3 * r["prompt_tokens"]).bit_length() - 1),
        ),
        ("by_cached_share", "cached_share_to", share_bucket),
    ],
    ids=["prompt", "kv bytes", "cached share"],
)
def test_every_bucket_is_the_same_as_its_requests_alone(
    session: Session, query: str, name: str, bucket_of: Any
) -> None:
    rows = made(7, 800)
    params: dict[str, Param] = {"kv_bytes_per_token": 3.0} if name == "kv_bytes_bucket" else {}
    found = run(session, f"latency/quantiles_{query}", rows, **params)
    buckets = sorted({bucket_of(row) for row in rows})
    assert sorted({row[name] for row in found}) == buckets
    for bucket in buckets:
        mine = [
            {key: value for key, value in row.items() if key not in (name, "cached_share_from")}
            for row in found
            if row[name] == bucket
        ]
        alone = run(session, "latency/quantiles", [r for r in rows if bucket_of(r) == bucket])
        assert mine == [
            {key: value for key, value in row.items() if key != "left_out_requests"}
            for row in alone
        ]


def in_flight(rows: Rows) -> FloatArray:
    """By counting: arrivals strictly before, less those that ended by then."""
    arrived, ended = column(rows, "arrived_at_ns"), column(rows, "arrived_at_ns")
    ended = arrived + column(rows, "e2e_ns")
    return np.array([float(((arrived < at) & (ended > at)).sum()) for at in arrived])


def causes_of(rows: Rows) -> dict[str, FloatArray]:
    """What may have made a request slow."""
    return {
        "prompt_tokens": column(rows, "prompt_tokens"),
        "computed_tokens": column(rows, "prompt_tokens") - column(rows, "cached_tokens"),
        "cached_tokens": column(rows, "cached_tokens"),
        "queue_ms": column(rows, "queue_ns", MS),
        "in_flight": in_flight(rows),
    }


def placements(one: FloatArray, other: FloatArray) -> FloatArray:
    """Of each in one, the share of the other that is less, ties half."""
    less = (one[:, None] > other[None, :]).mean(axis=1)
    return np.asarray(less + 0.5 * (one[:, None] == other[None, :]).mean(axis=1))


@seeds
@pytest.mark.parametrize("quantile", [0.9, 0.5])
def test_the_tail_is_told_apart_as_by_mann_whitney_and_spearman(
    session: Session, seed: int, quantile: float
) -> None:
    rows = made(seed, 300)
    found = run(session, "latency/tail_causes", rows, tail_quantile=quantile)
    ttft = column(rows, "ttft_ns", MS)
    is_tail = ttft > np.quantile(ttft, quantile)
    causes = causes_of(rows)
    assert {row["cause"] for row in found} == set(causes)
    for row in found:
        tail, rest = causes[row["cause"]][is_tail], causes[row["cause"]][~is_tail]
        assert (row["requests"], row["tail_requests"]) == (300, len(tail))
        assert row["tail_from_ms"] == pytest.approx(float(np.quantile(ttft, quantile)))
        assert (row["tail_p50"], row["rest_p50"]) == (np.median(tail), np.median(rest))
        auc = float(stats.mannwhitneyu(tail, rest).statistic) / (len(tail) * len(rest))
        variance = placements(tail, rest).var(ddof=1) / len(tail)
        variance += placements(rest, tail).var(ddof=1) / len(rest)
        half = float(stats.norm.ppf(0.975) * np.sqrt(variance))
        assert row["auc"] == pytest.approx(auc)
        assert row["auc_low"] == pytest.approx(max(0.0, auc - half))
        assert row["auc_high"] == pytest.approx(min(1.0, auc + half))
        rank = float(stats.spearmanr(causes[row["cause"]], ttft).statistic)
        wide = float(stats.norm.ppf(0.975) * np.sqrt((1 + rank**2 / 2) / 297))
        assert row["spearman"] == pytest.approx(rank)
        assert row["spearman_low"] == pytest.approx(np.tanh(np.arctanh(rank) - wide))
        assert row["spearman_high"] == pytest.approx(np.tanh(np.arctanh(rank) + wide))


@seeds
def test_the_excess_of_the_tail_is_split_into_its_parts(session: Session, seed: int) -> None:
    rows = made(seed, 300)
    (found,) = run(session, "latency/tail_split", rows)
    ttft, queue = column(rows, "ttft_ns", MS), column(rows, "queue_ns", MS)
    is_tail = ttft > np.quantile(ttft, 0.9)

    def excess(values: FloatArray) -> float:
        return float(values[is_tail].mean() - values[~is_tail].mean())

    share = excess(queue) / excess(ttft)
    left = queue - share * ttft
    variance = left[is_tail].var(ddof=1) / is_tail.sum()
    variance += left[~is_tail].var(ddof=1) / (~is_tail).sum()
    half = float(stats.norm.ppf(0.975) * np.sqrt(variance) / excess(ttft))
    assert found["excess_ms"] == pytest.approx(excess(ttft))
    assert found["excess_queue_ms"] == pytest.approx(excess(queue))
    assert found["excess_prefill_ms"] == pytest.approx(excess(column(rows, "prefill_ns", MS)))
    assert found["excess_other_ms"] == 0.0
    assert found["queue_share"] == pytest.approx(share)
    assert found["queue_share_low"] == pytest.approx(share - half)
    assert found["queue_share_high"] == pytest.approx(share + half)


def regression(
    rows: Rows, outcome: FloatArray, load: FloatArray | None
) -> tuple[float, float, float]:
    """Saved ms for 1 000 cached tokens, its HC3 error and the half width, by one least squares."""
    buckets = np.array([int(str(row["prompt_tokens"])).bit_length() for row in rows])
    columns = []
    for bucket in sorted(set(buckets.tolist())):
        inside = (buckets == bucket).astype(np.float64)
        controls = [inside, inside * column(rows, "prompt_tokens")]
        columns += controls if load is None else [*controls, inside * load]
    design = np.column_stack([column(rows, "cached_tokens"), *columns])
    found = np.linalg.lstsq(design, outcome, rcond=None)[0]
    inverse = np.linalg.pinv(design.T @ design)
    leverage = np.einsum("ij,jk,ik->i", design, inverse, design)
    scaled = (outcome - design @ found) / (1 - leverage)
    covariance = inverse @ (design.T * scaled**2) @ design @ inverse
    error = 1000 * float(np.sqrt(covariance[0, 0]))
    freedom = len(rows) - np.linalg.matrix_rank(design)
    return -1000 * float(found[0]), error, error * float(stats.t.ppf(0.975, freedom))


@seeds
@pytest.mark.parametrize("has_load", [True, False])
def test_what_a_cached_token_saves_equals_one_least_squares_fit(
    session: Session, seed: int, has_load: bool
) -> None:
    rows = made(seed, 400)
    if not has_load:
        rows = [row | {"e2e_ns": None} for row in rows]
    found = run(session, "latency/ttft_by_cached_share", rows)
    outcomes = {"ttft": column(rows, "ttft_ns", MS), "after_queue": column(rows, "prefill_ns", MS)}
    loads = in_flight(rows) if has_load else None
    sizes = np.array([int(str(row["prompt_tokens"])) for row in rows])
    assert len({row["prompt_bucket"] for row in found}) == 5
    for row in found:
        first = row["prompt_bucket"] or 1
        keep = (sizes >= first) & (sizes < (2 * first if row["prompt_bucket"] else 10**9))
        some = [one for one, kept in zip(rows, keep, strict=True) if kept]
        saved, error, half = regression(
            some, outcomes[row["outcome"]][keep], None if loads is None else loads[keep]
        )
        assert row["requests"] == len(some)
        assert row["is_load_held"] is has_load
        assert row["saved_ms_per_1000_cached"] == pytest.approx(saved, rel=1e-7)
        assert row["saved_error_ms"] == pytest.approx(error, rel=1e-7)
        assert row["saved_low_ms"] == pytest.approx(saved - half, rel=1e-5, abs=1e-5)
        assert row["saved_high_ms"] == pytest.approx(saved + half, rel=1e-5, abs=1e-5)
        low, high = row["saved_low_ms"], row["saved_high_ms"]
        word = "sooner" if low > 0 else "later" if high < 0 else "cannot tell"
        assert row["with_hits"] == word


def test_the_reference_rows_have_ties_and_every_answer(session: Session) -> None:
    rows = made(0, 400)
    assert len(set(column(rows, "ttft_ns"))) < 300
    words = {r["with_hits"] for r in run(session, "latency/ttft_by_cached_share", rows)}
    assert words >= {"sooner", "cannot tell"}
    assert pl.Series(in_flight(rows)).n_unique() > 5
