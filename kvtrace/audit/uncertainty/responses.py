"""From replays to the response at one point, and to what drawing sessions again does to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from kvtrace.audit.bounds import hit_tokens_per_request
from kvtrace.audit.slo.check import AS_TODAY, check_slo
from kvtrace.audit.slo.ends import Claim, RunKey
from kvtrace.audit.uncertainty.design import Response, SessionShifts
from kvtrace.audit.uncertainty.margins import check_of_draw, kept_margin, missed_margin
from kvtrace.audit.uncertainty.sessions import Units, draw, drawn_requests, resampled_sums
from kvtrace.cost.slo_target import SloTarget
from kvtrace.replay.result import ReplayResult
from kvtrace.replay.summary import gpu_seconds, move_seconds
from kvtrace.schema.arrays import FloatArray, RequestTrace

MARGIN_DRAWS: Final = 200
"""Draws for which the SLO is judged again, at most …"""
DRAWN_REQUESTS: Final = 2_000_000
"""… and so many requests in all; at least 40 draws."""
_FEWEST_DRAWS: Final = 40


@dataclass(frozen=True, slots=True)
class PointRuns:
    """Replays at one point of the inputs."""

    reference: ReplayResult | None
    """Today's option on the stated fleet; null: nothing without a pool carries the load."""
    pool: ReplayResult
    """The weighed option on the stated fleet."""
    rival: ReplayResult
    """The best option without a pool, on the stated fleet."""
    runs: Mapping[RunKey, ReplayResult]
    """Those of the claim."""
    slack_s: Mapping[str, float]
    """By option, the uncertainty of its lookup."""
    target: SloTarget = AS_TODAY

    def of_claim(self, claim: Claim | None) -> Sequence[tuple[ReplayResult, float]]:
        """Each run of the claim with its slack, the pool's first."""
        keys = () if claim is None else claim.runs
        return [(self.runs[key], self.slack_s.get(key.option_id, 0.0)) for key in keys]


def response_of(trace: RequestTrace, runs: PointRuns, claim: Claim | None) -> Response:
    """What the replays at one point say."""
    checks = [
        check_slo(trace, result, runs.reference or result, slack_s=slack, target=runs.target)
        for result, slack in runs.of_claim(claim)
    ]
    margins = [kept_margin(one) if not i else missed_margin(one) for i, one in enumerate(checks)]
    extra = hit_tokens_per_request(runs.pool).sum() - hit_tokens_per_request(runs.rival).sum()
    return Response(
        margins=tuple(margins),
        freed_s=gpu_seconds(runs.rival) - gpu_seconds(runs.pool),
        extra_hit_tokens=float(extra),
        move_over_recompute=_median_move(runs.pool),
    )


def _median_move(result: ReplayResult) -> float | None:
    timeline = result.timeline
    priced = (timeline.moved_bytes > 0) & (timeline.recompute_hit_s > 0)
    if not priced.any():
        return None
    return float(np.median(move_seconds(result)[priced] / timeline.recompute_hit_s[priced]))


def freed_per_request(pool: ReplayResult, rival: ReplayResult) -> FloatArray:
    """(requests,) instance-seconds of prefill that the pool frees."""
    return np.asarray(rival.timeline.gpu_busy_s - pool.timeline.gpu_busy_s, dtype=np.float64)


def extra_per_request(pool: ReplayResult, rival: ReplayResult) -> FloatArray:
    """(requests,) hit tokens of the pool beyond those of the rival."""
    extra = hit_tokens_per_request(pool) - hit_tokens_per_request(rival)
    return np.asarray(extra, dtype=np.float64)


def session_shifts(
    trace: RequestTrace, runs: PointRuns, claim: Claim | None, units: Units, seed: int
) -> SessionShifts:
    """What other sessions of the same kind do to the response at the middle.

    Draws are in the order of the shift that decides: the pool's margin, else the freed time.
    """
    wanted = min(MARGIN_DRAWS, max(_FEWEST_DRAWS, DRAWN_REQUESTS // max(trace.requests, 1)))
    counts = draw(units, seed, wanted)
    freed = freed_per_request(runs.pool, runs.rival)
    extra = extra_per_request(runs.pool, runs.rival)
    margins = [_margins(trace, runs, claim, drawn_requests(units, row)) for row in counts]
    middle = response_of(trace, runs, claim).margins
    shifts = np.array(margins, dtype=np.float64).reshape(wanted, -1) - np.array(middle)
    factors = [_over(resampled_sums(one, units, counts), one.sum()) for one in (freed, extra)]
    order = np.argsort(shifts[:, 0] if claim is not None else factors[0], kind="stable")
    return SessionShifts(
        margins=shifts[order],
        freed=factors[0][order],
        extra=factors[1][order],
        unit=units.unit,
        units=units.count,
    )


def _over(sums: FloatArray, whole: float) -> FloatArray:
    return np.ones_like(sums) if whole == 0 else sums / whole


def _margins(
    trace: RequestTrace, runs: PointRuns, claim: Claim | None, requests: np.ndarray
) -> list[float]:
    margins = []
    for place, (result, slack) in enumerate(runs.of_claim(claim)):
        today = runs.reference or result
        check = check_of_draw(trace, result, today, requests, slack_s=slack, target=runs.target)
        margins.append(missed_margin(check) if place else kept_margin(check))
    return margins
