"""Checks on what the logs say themselves: queues, trends, windows, block sizes, quality."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kvtrace.audit.checks import Evidence, Hit, measured
from kvtrace.audit.ranges import ratio
from kvtrace.audit.record import Quantity
from kvtrace.audit.thresholds import (
    BLOCK_LOSS,
    CAUSE_SHARE,
    DECODE_SHARE,
    HIT_RATIO_RISE,
    LENGTH_CORRELATION,
    MIN_REQUESTS,
    MIN_SPAN,
    QUEUE_CORRELATION,
    QUEUE_SHARE,
    TTFT_RISE,
)
from kvtrace.audit.view import Row, count, number, rows_of, summary_of
from kvtrace.units import NS_PER_S, format_seconds

_MS = 1e-3
_SUMMARY = "latency/summary"
_TREND = "latency/hit_and_ttft_over_time"
_FINE_BLOCK_TOKENS = 64
"""Engines hash blocks of 16 to 64 tokens; a trace with larger ones hides what lies between."""


def queueing_dominates(evidence: Evidence) -> Hit | None:
    """Measured TTFT is mostly queue, or goes with the queue and not with the length."""
    row = summary_of(evidence.queries, _SUMMARY)
    share = number(row, "queue_share_of_ttft")
    with_queue = number(row, "ttft_queue_correlation")
    with_length = number(row, "ttft_length_correlation")
    is_share = share is not None and share >= QUEUE_SHARE.value
    is_correlated = (
        with_queue is not None
        and with_length is not None
        and with_queue >= QUEUE_CORRELATION.value
        and abs(with_length) <= LENGTH_CORRELATION.value
    )
    if not (is_share or is_correlated):
        return None
    known = count(row, "queue_known_requests") or 0
    parts = [f"Queue, not length: {_queue_sentence(row, share)}"]
    if with_queue is not None and with_length is not None:
        parts.append(
            f"TTFT goes with the queue (r = {with_queue:.2f}) and with the prompt length by "
            f"r = {with_length:.2f}"
        )
    parts.append("A cache shortens prefill; the queue is shortened by capacity or by admission")
    return Hit(
        severity="critical" if share is not None and share >= 0.8 else "warning",
        confidence="high" if known >= MIN_REQUESTS.value else "medium",
        message=". ".join(parts),
        evidence=_known(
            measured("queue_share_of_ttft", share, "ratio", _SUMMARY),
            measured("queue_p50_ms", number(row, "queue_p50_ms"), "ms", _SUMMARY),
            measured("prefill_p50_ms", number(row, "prefill_p50_ms"), "ms", _SUMMARY),
            measured("ttft_p50_ms", number(row, "ttft_p50_ms"), "ms", _SUMMARY),
            measured("ttft_queue_correlation", with_queue, "correlation", _SUMMARY),
            measured("ttft_length_correlation", with_length, "correlation", _SUMMARY),
            measured("queue_known_requests", known, "requests", _SUMMARY),
        ),
    )


def _queue_sentence(row: Row, share: float | None) -> str:
    queue, prefill = number(row, "queue_p50_ms"), number(row, "prefill_p50_ms")
    known = count(row, "queue_known_requests") or 0
    sentence = "" if share is None else f"{100 * share:.0f} % of TTFT is queue"
    if queue is not None:
        joiner = "; " if sentence else ""
        sentence += f"{joiner}queue p50 {format_seconds(queue * _MS)}"
    if prefill is not None:
        sentence += f", scheduled to first token p50 {format_seconds(prefill * _MS)}"
    return f"{sentence} ({known:,} requests, measured)"


def high_hit_ratio_slow_ttft(evidence: Evidence) -> Hit | None:
    """Between the first and the last third the hit ratio rose and TTFT rose too."""
    rows = rows_of(evidence.queries, _TREND)
    early, late = _thirds(rows)
    column = _hit_column(early, late)
    if column is None:
        return None
    hit = (_mean(early, column), _mean(late, column))
    p50 = (_mean(early, "ttft_p50_ms"), _mean(late, "ttft_p50_ms"))
    p90 = (_mean(early, "ttft_p90_ms"), _mean(late, "ttft_p90_ms"))
    if not (_rose_by(hit, HIT_RATIO_RISE.value) and (_grew(p50) or _grew(p90))):
        return None
    shown = p50 if _grew(p50) else p90
    name = "p50" if _grew(p50) else "p90"
    queue = (_mean(early, "queue_p50_ms"), _mean(late, "queue_p50_ms"))
    length = (_mean(early, "mean_prompt_tokens"), _mean(late, "mean_prompt_tokens"))
    return Hit(
        severity="warning",
        confidence="high" if _requests(rows) >= MIN_REQUESTS.value else "medium",
        message=(
            f"A high hit ratio is not a fast service: from the first to the last third of the "
            f"window the hit ratio went from {_percent(hit[0])} to {_percent(hit[1])} "
            f"({column}), and TTFT {name} from {_ms(shown[0])} to {_ms(shown[1])} (measured; "
            f"means over the slices). "
            f"{_why_slower(shown, queue, length)}"
        ),
        evidence=_known(
            measured(f"{column}_first_third", hit[0], "ratio", _TREND),
            measured(f"{column}_last_third", hit[1], "ratio", _TREND),
            measured(f"ttft_{name}_first_third_ms", shown[0], "ms", _TREND),
            measured(f"ttft_{name}_last_third_ms", shown[1], "ms", _TREND),
            measured("queue_p50_first_third_ms", queue[0], "ms", _TREND),
            measured("queue_p50_last_third_ms", queue[1], "ms", _TREND),
            measured("mean_prompt_tokens_first_third", length[0], "tokens", _TREND),
            measured("mean_prompt_tokens_last_third", length[1], "tokens", _TREND),
        ),
    )


Pair = tuple[float | None, float | None]


def _why_slower(ttft: Pair, queue: Pair, length: Pair) -> str:
    """The cause that the numbers name; several if they do, none if they do not."""
    causes = []
    grown = _difference(ttft)
    queued = _difference(queue)
    if grown and queued is not None and queued / grown >= CAUSE_SHARE.value:
        causes.append(
            f"the queue p50 grew by {_ms(queued)} of the {_ms(grown)} ({_ms(queue[0])} to "
            f"{_ms(queue[1])})"
        )
    if _grew(length):
        causes.append(
            f"prompts got longer ({length[0]:,.0f} to {length[1]:,.0f} tokens on average), so the "
            "same ratio leaves more tokens to compute and more bytes to move"
        )
    if causes:
        return "Why: " + "; ".join(causes)
    if queued is None:
        return "Why: the queue is not logged, so queue and moved bytes cannot be told apart"
    return (
        "Why: neither the queue nor the prompt length grew that much; what is left is the time to "
        "move hits into HBM, which these logs do not show per request"
    )


def _thirds(rows: Sequence[Row]) -> tuple[Sequence[Row], Sequence[Row]]:
    """First and last third of the slices that have TTFT; at least two slices each."""
    known = [row for row in rows if number(row, "ttft_p50_ms") is not None]
    size = len(known) // 3
    return (known[:size], known[-size:]) if size >= 2 else ((), ())


def _hit_column(early: Sequence[Row], late: Sequence[Row]) -> str | None:
    """The observed hit ratio that both thirds know: engine counters, or per request."""
    for column in ("cached_ratio_tokens", "engine_prefix_hit_ratio"):
        if _mean(early, column) is not None and _mean(late, column) is not None:
            return column
    return None


def _mean(rows: Sequence[Row], column: str) -> float | None:
    """Mean of the slices that know it, weighted by their requests."""
    known = [
        (value, number(row, "requests") or 0.0)
        for row in rows
        if (value := number(row, column)) is not None
    ]
    return ratio(
        math.fsum(value * weight for value, weight in known),
        math.fsum(weight for _, weight in known),
    )


def _requests(rows: Sequence[Row]) -> int:
    return sum(count(row, "requests") or 0 for row in rows)


def _difference(pair: Pair) -> float | None:
    return None if pair[0] is None or pair[1] is None else pair[1] - pair[0]


def _rose_by(pair: Pair, step: float) -> bool:
    difference = _difference(pair)
    return difference is not None and difference >= step


def _grew(pair: Pair) -> bool:
    growth = ratio(pair[1], pair[0])
    return growth is not None and growth >= TTFT_RISE.value


def _percent(value: float | None) -> str:
    return "unknown" if value is None else f"{100 * value:.1f} %"


def _ms(value: float | None) -> str:
    return "unknown" if value is None else format_seconds(value * _MS)


def _known(*quantities: Quantity) -> tuple[Quantity, ...]:
    return tuple(quantity for quantity in quantities if quantity.value is not None)


def window_too_short(evidence: Evidence) -> Hit | None:
    """Fewer requests or less time than a verdict needs."""
    data = evidence.data
    is_short = data.span_s is not None and data.span_s < MIN_SPAN.value
    if not is_short and data.requests >= MIN_REQUESTS.value:
        return None
    span = "an unknown time" if data.span_s is None else format_seconds(data.span_s)
    return Hit(
        severity="warning",
        confidence="high",
        message=(
            f"{data.requests:,} requests over {span}: reuse between requests further apart is not "
            "seen, and the load need not be that of a busy hour. Reuse is a lower bound here"
        ),
        evidence=_known(
            measured("span_s", data.span_s, "s", "data"),
            measured("requests", data.requests, "requests", "data"),
        ),
    )


def reuse_unknown(evidence: Evidence) -> Hit | None:
    """No block identity: reuse is null."""
    if evidence.reuse.reusable_ratio_tokens is not None or evidence.data.evidence_grade == "A":
        return None
    return Hit(
        severity="warning",
        confidence="high",
        message=f"{evidence.reuse.unknown_reason}. Evidence grade {evidence.data.evidence_grade}",
        evidence=(measured("evidence_grade", evidence.data.evidence_grade, "grade", "data"),),
    )


def clock_coarse(evidence: Evidence) -> Hit | None:
    """The clock's step is longer than the mean time between arrivals."""
    wanted = {s.source_id for s in evidence.data.sources if s.role == "headline"}
    steps = [
        entry.clock_resolution_ns
        for entry in evidence.data.files
        if entry.source_id in wanted and entry.clock_resolution_ns is not None
    ]
    gap_s = ratio(evidence.data.span_s, max(evidence.data.requests - 1, 0))
    if not steps or gap_s is None or max(steps) / NS_PER_S <= gap_s:
        return None
    step_s = max(steps) / NS_PER_S
    return Hit(
        severity="info",
        confidence="high",
        message=(
            f"Arrivals are known to {format_seconds(step_s)}, and requests come every "
            f"{format_seconds(gap_s)}: the order inside one step, and so queues and short reuse "
            "gaps, are not known from this clock"
        ),
        evidence=(
            measured("clock_resolution_s", step_s, "s", "data"),
            measured("mean_arrival_gap_s", gap_s, "s", "data"),
        ),
    )


def block_size_hides_reuse(evidence: Evidence) -> Hit | None:
    """Blocks so large that the reuse inside them may matter."""
    data = evidence.data
    size = data.block_size_tokens
    if size is None or size <= _FINE_BLOCK_TOKENS or not data.prompt_tokens:
        return None
    hidden = data.requests * (size - 1)
    share = min(hidden / data.prompt_tokens, 1.0)
    if share < BLOCK_LOSS.value:
        return None
    return Hit(
        severity="info",
        confidence="high",
        message=(
            f"Blocks of {size} tokens hide up to {size - 1} reusable tokens a request: at most "
            f"{hidden:,} of {data.prompt_tokens:,} prompt tokens ({100 * share:.1f} %). An engine "
            "with blocks of 16 may find more reuse than this trace shows"
        ),
        evidence=(
            measured("block_size_tokens", size, "tokens", "data"),
            measured("hidden_tokens_at_most", hidden, "tokens", "data"),
        ),
    )


def decode_dominates(evidence: Evidence) -> Hit | None:
    """Most of the median end-to-end time comes after the first token."""
    row = summary_of(evidence.queries, _SUMMARY)
    ttft, e2e = number(row, "ttft_p50_ms"), number(row, "e2e_p50_ms")
    part = ratio(ttft, e2e)
    if part is None or 1 - part < DECODE_SHARE.value:
        return None
    return Hit(
        severity="info",
        confidence="medium",
        message=(
            f"The median TTFT is {_ms(ttft)}, the median end-to-end time {_ms(e2e)} (measured): "
            f"without any TTFT a request would be shorter by about {100 * part:.0f} %. A pool "
            "shortens prefill only"
        ),
        evidence=(
            measured("ttft_p50_ms", ttft, "ms", _SUMMARY),
            measured("e2e_p50_ms", e2e, "ms", _SUMMARY),
        ),
    )


def quality_violations(evidence: Evidence) -> Hit | None:
    """Rows that break a rule of the data."""
    broken = {
        name: result.frame.height
        for name, result in sorted(evidence.queries.items())
        if name.startswith("quality/") and result.frame.height
    }
    if not broken:
        return None
    named = ", ".join(f"{name} ({rows:,} rows)" for name, rows in broken.items())
    return Hit(
        severity="warning",
        confidence="high",
        message=f"The data breaks its own rules: {named}",
        evidence=tuple(measured(name, rows, "rows", name) for name, rows in broken.items()),
        table=next(iter(broken)),
    )
