"""Which requests are shown one by one: the largest regret, then the longest TTFT of the others.

Regret: what a request lost by loading instead of recomputing what it loaded, at the same place in
the queue of the same option. It compares nothing with another replay, so that no queue of another
option is in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import numpy as np

from kvtrace.audit.drilldown.record import Drilldown, TracedRequest
from kvtrace.audit.fit.bins import prompt_buckets
from kvtrace.audit.logged import LoggedRequests
from kvtrace.audit.options.kinds import is_pool
from kvtrace.audit.slo.fleets import OBSERVED, TODAY
from kvtrace.replay.result import ReplayResult
from kvtrace.replay.summary import move_seconds
from kvtrace.schema.arrays import FloatArray, IntArray, RequestTrace

Kind = Literal["lost", "slow"]
Why = Literal["weighed", "pool", "deployed"]
SHOWN_LOST: Final = 20
SHOWN_SLOW: Final = 10


def build_drilldown(
    trace: RequestTrace | None,
    results: Sequence[ReplayResult],
    logged: LoggedRequests | None,
    *,
    weighed: str | None,
) -> Drilldown | None:
    """The requests of the weighed pool, else of the first pool, else of the system of today.

    Null without replays or requests.
    """
    chosen = _chosen(results, weighed)
    if trace is None or not trace.requests or chosen is None:
        return None
    result, why = chosen
    timeline = result.timeline
    regret_s = move_seconds(result) - timeline.recompute_hit_s
    is_loaded = _loaded(result) > 0
    losers = np.flatnonzero(is_loaded & (regret_s > 0))
    lost = losers[np.argsort(-regret_s[losers], kind="stable")][:SHOWN_LOST]
    others = np.setdiff1d(np.arange(trace.requests), lost)
    slow = others[np.argsort(-timeline.ttft_s[others], kind="stable")][:SHOWN_SLOW]
    buckets = prompt_buckets(trace.prompt_tokens)
    groups: tuple[tuple[Kind, IntArray], ...] = (("lost", lost), ("slow", slow))
    rows = [
        _row(kind, int(request), trace, result, regret_s, buckets, logged)
        for kind, members in groups
        for request in members
    ]
    return Drilldown(
        option=result.scenario.option_id,
        title=result.scenario.title,
        why_option=why,
        requests=trace.requests,
        lost=len(losers),
        rows=rows,
        measured_ttft=0 if logged is None else int(np.count_nonzero(~np.isnan(logged.ttft_s))),
    )


def _chosen(
    results: Sequence[ReplayResult], weighed: str | None
) -> tuple[ReplayResult, Why] | None:
    by_id = {result.scenario.option_id: result for result in results}
    if weighed in by_id:
        return by_id[weighed], "weighed"
    pools = [result for ident, result in by_id.items() if is_pool(ident)]
    carrying = [result for result in pools if not result.is_overloaded]
    if pools:
        return (carrying or pools)[0], "pool"
    today = next((by_id[ident] for ident in (OBSERVED, TODAY) if ident in by_id), None)
    return None if today is None else (today, "deployed")


def _loaded(result: ReplayResult) -> IntArray:
    """(requests,) tokens from below HBM."""
    none = np.zeros(len(result.timeline.ttft_s), dtype=np.int64)
    below = (tokens for tier, tokens in result.timeline.hit_tokens.items() if tier != "hbm")
    return sum(below, start=none)


def _row(
    kind: Kind,
    request: int,
    trace: RequestTrace,
    result: ReplayResult,
    regret_s: FloatArray,
    buckets: IntArray,
    logged: LoggedRequests | None,
) -> TracedRequest:
    timeline = result.timeline
    lost_s = float(regret_s[request]) if _loaded(result)[request] else 0.0
    file, line = (None, None) if logged is None else logged.place(request)
    return TracedRequest(
        kind=kind,
        request_rank=request,
        file=file,
        line=line,
        prompt_bucket=int(buckets[request]),
        prompt_tokens=int(trace.prompt_tokens[request]),
        hit_tokens=sum(int(tokens[request]) for tokens in timeline.hit_tokens.values()),
        moved_bytes=float(timeline.moved_bytes[request]),
        queue_s=float(timeline.queue_s[request]),
        lookup_s=float(timeline.lookup_s[request]),
        pull_s=float(timeline.pull_s[request]),
        load_s=float(timeline.load_s[request]),
        prefill_s=float(timeline.prefill_s[request]),
        ttft_s=float(timeline.ttft_s[request]),
        recompute_s=float(timeline.recompute_hit_s[request]),
        regret_s=lost_s,
        without_s=float(timeline.ttft_s[request]) - lost_s,
        measured_ttft_s=None if logged is None else _known(logged.ttft_s[request]),
        measured_queue_s=None if logged is None else _known(logged.queue_s[request]),
        measured_cached_tokens=None
        if logged is None or logged.cached_tokens[request] < 0
        else int(logged.cached_tokens[request]),
    )


def _known(seconds: float) -> float | None:
    return None if np.isnan(seconds) else float(seconds)
