"""Single requests and fits of the model, as a record holds them."""

from __future__ import annotations

import msgspec

from kvtrace.audit.drilldown.record import Drilldown, TracedRequest
from kvtrace.audit.fit.record import Fit, FitBucket, Says


def make_request(**changes: object) -> TracedRequest:
    """One that lost a second by loading: 4 s of TTFT."""
    lost = TracedRequest(
        kind="lost",
        request_rank=41,
        file="logs/a<b>.jsonl",
        line=1_234,
        prompt_bucket=4_096,
        prompt_tokens=5_000,
        hit_tokens=4_000,
        moved_bytes=2e9,
        queue_s=1.0,
        lookup_s=0.0,
        pull_s=2.0,
        load_s=0.5,
        prefill_s=0.5,
        ttft_s=4.0,
        recompute_s=1.5,
        regret_s=1.0,
        without_s=3.0,
        measured_ttft_s=3.9,
    )
    return msgspec.structs.replace(lost, **changes)


def make_drilldown(*rows: TracedRequest, lost: int = 300) -> Drilldown:
    """The requests given; without any, one that lost and a slow one of no log."""
    slow = make_request(
        kind="slow",
        request_rank=7,
        prompt_bucket=512,
        file=None,
        line=None,
        ttft_s=8.0,
        without_s=8.0,
        regret_s=0.0,
        prefill_s=4.5,
        measured_ttft_s=None,
    )
    return Drilldown(
        option="pool",
        title="Pool",
        why_option="weighed",
        requests=9_000,
        lost=lost,
        rows=list(rows or (make_request(), slow)),
    )


def make_fit(says: Says = "too_fast", **changes: object) -> Fit:
    """TTFT at half of what was observed, in one bucket."""
    bucket = FitBucket(
        prompt_bucket=1_024,
        requests=800,
        predicted_p50_s=0.5,
        predicted_p90_s=0.9,
        observed_p50_s=1.0,
        observed_p90_s=2.0,
        ratio_p50=0.5,
    )
    fit = Fit(
        what="ttft",
        option="hbm_only",
        title="HBM only",
        requests=800,
        of_requests=1_000,
        ratio_p50=0.5,
        ratio_p10=0.4,
        ratio_p90=0.7,
        says=says,
        tolerance=0.1,
        buckets=[bucket],
    )
    return msgspec.structs.replace(fit, **changes)
