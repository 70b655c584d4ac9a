"""The SLO of a comparison, by replays: no worse than today, unless a team states another.

No worse than today. TTFT: mean, p90 and p99 over all requests, and p90 and p99 of each prompt
bucket that has enough requests; TPOT: mean, p90 and p99. Each within its tolerance. What a team
states (`kvtrace.audit.slo.stated`) takes the place of the figures that it is about. An option that
cannot carry the load keeps no SLO.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from kvtrace.audit.slo.figures import Figure, SloCheck
from kvtrace.audit.slo.reference import (
    BUCKET_QUANTILES,
    Reference,
    bucket_tails,
    overall,
    reference_of,
)
from kvtrace.audit.slo.stated import stated_figures
from kvtrace.audit.thresholds import TAIL_TOLERANCE, TPOT_TOLERANCE
from kvtrace.cost.deployment import Deployment
from kvtrace.cost.evidence import Constant
from kvtrace.cost.slo_target import SloTarget
from kvtrace.replay.result import ReplayResult
from kvtrace.schema.arrays import RequestTrace

AS_TODAY: Final = SloTarget()
"""No worse than today."""


def check_slo(
    trace: RequestTrace,
    result: ReplayResult,
    reference: ReplayResult,
    *,
    slack_s: float = 0.0,
    target: SloTarget = AS_TODAY,
) -> SloCheck:
    """`result` against `reference`, both replays of `trace`.

    `slack_s`: uncertainty of the lookup, see `lookup_slack_s`.
    """
    today = reference_of(trace, reference)
    return check_against(trace, result, today, slack_s=slack_s, target=target)


def check_against(
    trace: RequestTrace,
    result: ReplayResult,
    today: Reference,
    *,
    slack_s: float = 0.0,
    target: SloTarget = AS_TODAY,
) -> SloCheck:
    """`result`, a replay of `trace`, against figures that may be of another load."""
    return SloCheck(
        title=result.scenario.title,
        reference_title=today.title,
        is_overloaded=result.is_overloaded,
        offered_load=result.offered_load,
        figures=(
            *_as_today(trace, result, today, slack_s, target),
            *stated_figures(trace, result, target),
        ),
    )


def lookup_slack_s(deployment: Deployment, option_id: str) -> float:
    """High less value of the lookup that each request of the option pays, in seconds.

    Nothing for a pool: what is not known about it must not count for it, only for its rivals.
    """
    is_tiered = option_id.startswith(("dram_", "local_"))
    return _above(deployment.hardware.dram_lookup_s) if is_tiered else 0.0


def _above(constant: Constant) -> float:
    return 0.0 if constant.high is None else constant.high - constant.value


def _as_today(
    trace: RequestTrace, result: ReplayResult, today: Reference, slack_s: float, target: SloTarget
) -> Iterator[Figure]:
    """The figures that nothing stated takes the place of."""
    timeline = result.timeline
    is_ttft, is_tpot = target.ttft_s is None, target.tpot_s is None
    if is_ttft:
        mine = overall(timeline.ttft_s)
        yield from _overall("TTFT", mine, today.ttft_s, TAIL_TOLERANCE.value, slack_s)
    if is_tpot:
        mine = overall(timeline.tpot_s)
        yield from _overall("TPOT", mine, today.tpot_s, TPOT_TOLERANCE.value, 0.0)
    if is_ttft:
        yield from _of_buckets(trace, result, today, slack_s)


def _overall(
    name: str, mine: Mapping[str, float], today: Mapping[str, float], share: float, slack_s: float
) -> Iterator[Figure]:
    for label, seconds in mine.items():
        if label in today:
            allowed_s = max(share * today[label], slack_s)
            yield Figure(f"{name} {label}", seconds, today[label], allowed_s)


def _of_buckets(
    trace: RequestTrace, result: ReplayResult, today: Reference, slack_s: float
) -> Iterator[Figure]:
    for bucket, mine in bucket_tails(trace, result.timeline.ttft_s).items():
        theirs = today.buckets.get(bucket)
        if theirs is None:
            continue
        for label, quantile in BUCKET_QUANTILES:
            reference_s = theirs.quantile_s[label]
            yield Figure(
                f"TTFT {label}",
                mine.quantile_s[label],
                reference_s,
                max(TAIL_TOLERANCE.value * reference_s, slack_s),
                bucket=bucket,
                is_judged=mine.is_judged(quantile) and theirs.is_judged(quantile),
            )
