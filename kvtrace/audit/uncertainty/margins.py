"""How far a replay is from keeping the SLO, or from missing it clearly, as one number."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from kvtrace.audit.slo.check import check_slo
from kvtrace.audit.slo.figures import Figure, SloCheck
from kvtrace.audit.thresholds import CLEAR_MISS
from kvtrace.cost.slo_target import SloTarget
from kvtrace.replay.result import ReplayResult
from kvtrace.schema.arrays import IntArray, RequestTrace

OVERLOADED: Final = math.log(100.0)
"""Stands for a replay whose queue grows without end: times then mean nothing."""


def kept_margin(check: SloCheck) -> float:
    """At most zero where the SLO is kept: log of the worst judged figure over what is allowed."""
    if check.is_overloaded:
        return OVERLOADED
    ratios = [_log(figure.mine_s, _allowed_s(figure)) for figure in _judged(check)]
    return max(ratios, default=OVERLOADED)


def missed_margin(check: SloCheck) -> float:
    """Above zero where the SLO is clearly missed: beyond what is allowed and beyond a tenth."""
    if check.is_overloaded:
        return OVERLOADED
    ratios = [
        min(
            _log(figure.mine_s, _allowed_s(figure)),
            _log(figure.mine_s, CLEAR_MISS.value * figure.reference_s),
        )
        for figure in _judged(check)
    ]
    return max(ratios, default=-OVERLOADED)


def _judged(check: SloCheck) -> Iterator[Figure]:
    return (figure for figure in check.figures if figure.is_judged)


def _allowed_s(figure: Figure) -> float:
    return figure.reference_s + figure.allowed_s


def _log(seconds: float, limit_s: float) -> float:
    """Log of the ratio; bounded, for a time or a limit may be zero."""
    if seconds <= 0 or limit_s <= 0:
        return -OVERLOADED if seconds <= limit_s else OVERLOADED
    return min(max(math.log(seconds / limit_s), -OVERLOADED), OVERLOADED)


def check_of_draw(
    trace: RequestTrace,
    result: ReplayResult,
    reference: ReplayResult,
    requests: IntArray,
    *,
    slack_s: float,
    target: SloTarget,
) -> SloCheck:
    """The same check over drawn requests; queues stay as they were replayed."""
    drawn = replace(trace, prompt_tokens=trace.prompt_tokens[requests])
    mine, today = _taken(result, requests), _taken(reference, requests)
    return check_slo(drawn, mine, today, slack_s=slack_s, target=target)


def _taken(result: ReplayResult, requests: IntArray) -> ReplayResult:
    timeline = result.timeline
    return replace(
        result,
        timeline=replace(
            timeline,
            ttft_s=timeline.ttft_s[requests],
            tpot_s=timeline.tpot_s[requests],
            e2e_s=timeline.e2e_s[requests],
        ),
    )
