"""An SLO that a team states: a share of the requests within a limit."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kvtrace.audit.slo.figures import Figure
from kvtrace.audit.slo.limits import front_s, rank_of, stated_ttft_s
from kvtrace.cost.slo_target import SloTarget
from kvtrace.replay.result import ReplayResult
from kvtrace.schema.arrays import FloatArray, RequestTrace
from kvtrace.units import format_seconds


def stated_figures(
    trace: RequestTrace, result: ReplayResult, target: SloTarget
) -> Iterator[Figure]:
    """One figure for each limit that is stated: the request on which the share depends.

    TTFT and E2E are a client's: the engine's, and what stands in front of it.
    Formula: requests by time over limit; the one at place ceil(share · requests). It is within its
    limit exactly where the share of the requests is.
    """
    timeline, share = result.timeline, target.share
    ttft_limit_s, before_s = stated_ttft_s(trace, target), front_s(trace, target)
    if ttft_limit_s is not None:
        ttft_s = timeline.ttft_s + before_s
        yield from _at_share("TTFT", ttft_s, ttft_limit_s, share, trace, target)
    for name, seconds, limit_s in (
        ("TPOT", timeline.tpot_s, target.tpot_s),
        ("E2E", timeline.e2e_s + before_s, target.e2e_s),
    ):
        if limit_s is not None:
            every = np.full(len(seconds), limit_s, dtype=np.float64)
            yield from _at_share(name, seconds, every, share, trace, target)


def _at_share(
    name: str,
    seconds: FloatArray,
    limits_s: FloatArray,
    share: float,
    trace: RequestTrace,
    target: SloTarget,
) -> Iterator[Figure]:
    known = np.flatnonzero(~np.isnan(seconds))
    if not len(known):
        return
    stretch = seconds[known] / np.maximum(limits_s[known], 1e-9)
    order = known[np.argsort(stretch, kind="stable")]
    request = int(order[rank_of(share, len(order))])
    is_by_length = name == "TTFT" and target.ttft_s_per_token > 0
    of_prompt = f" (a prompt of {int(trace.prompt_tokens[request]):,} tokens)"
    yield Figure(
        f"{name} at {100 * share:g} % of the requests{of_prompt if is_by_length else ''}",
        float(seconds[request]),
        float(limits_s[request]),
        0.0,
        is_stated=True,
    )


def slo_text(target: SloTarget) -> str:
    """The SLO in words."""
    if not target.is_stated:
        return "no worse than today, per prompt bucket"
    limits = []
    if target.ttft_s is not None:
        more = (
            f" + {1e3 * target.ttft_s_per_token:g} ms a prompt token"
            if target.ttft_s_per_token
            else ""
        )
        limits.append(f"TTFT within {format_seconds(target.ttft_s)}{more}")
    if target.tpot_s is not None:
        limits.append(f"TPOT within {format_seconds(target.tpot_s)}")
    if target.e2e_s is not None:
        limits.append(f"E2E within {format_seconds(target.e2e_s)}")
    rest = [
        f"{name} no worse than today"
        for name, limit in (("TTFT", target.ttft_s), ("TPOT", target.tpot_s))
        if limit is None
    ]
    stated = f"{100 * target.share:g} % of the requests: {', '.join(limits)}"
    return "; ".join((stated, *rest, *_front_text(target)))


def _front_text(target: SloTarget) -> Iterator[str]:
    """What is added to the engine's times before they are held against a client's limit."""
    if not target.is_of_a_client or not (target.front_s or target.front_s_per_token):
        return
    yield (
        "these are a client's, so that modelled times hold what stands in front of the engine: "
        f"{1e3 * target.front_s:.1f} ms + {1e6 * target.front_s_per_token:.1f} µs a prompt token"
    )
