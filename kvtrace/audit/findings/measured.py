"""Checks on what the logs say themselves: queues, trends, windows, block sizes, quality."""

from __future__ import annotations

from kvtrace.audit.data import dating_files
from kvtrace.audit.findings.check import Evidence, Hit, in_ms, known_only, measured
from kvtrace.audit.findings.limits import (
    BLOCK_LOSS,
    DECODE_SHARE,
    FINE_BLOCK,
    LENGTH_CORRELATION,
    QUEUE_CORRELATION,
    QUEUE_CRITICAL,
    QUEUE_MEDIAN_SHARE,
    QUEUE_SHARE,
)
from kvtrace.audit.record import Quantity
from kvtrace.audit.thresholds import MIN_REQUESTS, MIN_SPAN
from kvtrace.audit.uncertainty.ranges import ratio
from kvtrace.audit.view import Row, count, number, summary_of
from kvtrace.audit.words import counted
from kvtrace.units import NS_PER_S, format_seconds

_SUMMARY = "latency/summary"


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
    of_median = ratio(number(row, "queue_p50_ms"), number(row, "ttft_p50_ms"))
    is_tail = of_median is not None and of_median < QUEUE_MEDIAN_SHARE.value
    parts = [f"Queue, not length: {_queue_sentence(row, share)}"]
    if is_tail:
        parts.append(
            "The queue hits the tail: the median request waits "
            f"{in_ms(number(row, 'queue_p50_ms'))} of its {in_ms(number(row, 'ttft_p50_ms'))}"
        )
    if with_queue is not None and with_length is not None:
        parts.append(
            f"TTFT goes with the queue (r = {with_queue:.2f}) and with the prompt length by "
            f"r = {with_length:.2f}"
        )
    parts.append("A cache shortens prefill; the queue is shortened by capacity or by admission")
    return Hit(
        severity="critical"
        if share is not None and share >= QUEUE_CRITICAL.value and not is_tail
        else "warning",
        confidence="high" if known >= MIN_REQUESTS.value and not is_tail else "medium",
        message=". ".join(parts),
        evidence=known_only(
            measured("queue_share_of_ttft", share, "ratio", _SUMMARY),
            measured("queue_p50_ms", number(row, "queue_p50_ms"), "ms", _SUMMARY),
            measured("prefill_p50_ms", number(row, "prefill_p50_ms"), "ms", _SUMMARY),
            measured("ttft_p50_ms", number(row, "ttft_p50_ms"), "ms", _SUMMARY),
            measured("ttft_queue_correlation", with_queue, "", _SUMMARY),
            measured("ttft_length_correlation", with_length, "", _SUMMARY),
            measured("queue_known_requests", known, "requests", _SUMMARY),
        ),
    )


def _queue_sentence(row: Row, share: float | None) -> str:
    queue, prefill = number(row, "queue_p50_ms"), number(row, "prefill_p50_ms")
    known = count(row, "queue_known_requests") or 0
    sentence = "" if share is None else f"queue is {100 * share:.0f} % of all TTFT (sum)"
    if queue is not None:
        joiner = "; " if sentence else ""
        sentence += f"{joiner}queue p50 {in_ms(queue)}, p90 {in_ms(number(row, 'queue_p90_ms'))}"
    if prefill is not None:
        sentence += f", scheduled to first token p50 {in_ms(prefill)}"
    return f"{sentence} ({counted(known, 'request')}, measured)"


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
            f"{counted(data.requests, 'request')} over {span}: reuse between requests further "
            "apart is not seen, and the load need not be that of a busy hour. Reuse is a lower "
            "bound here"
        ),
        evidence=known_only(
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
    dating = dating_files(evidence.data.sources, evidence.data.files)
    steps = [e.clock_resolution_ns for e in dating if e.clock_resolution_ns is not None]
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
    if size is None or size <= FINE_BLOCK.value or not data.prompt_tokens:
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
            _hidden(hidden, data.prompt_tokens),
        ),
    )


def _hidden(hidden: int, prompt_tokens: int) -> Quantity:
    """A bound: nobody measured what lies inside a block."""
    return Quantity(
        id="hidden_tokens_at_most",
        title="reusable tokens that whole blocks may hide, at most",
        value=min(hidden, prompt_tokens),
        low=0,
        high=min(hidden, prompt_tokens),
        unit="tokens",
        source="bound: (block size - 1) tokens a request",
        kind="modelled",
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
            f"The median TTFT is {in_ms(ttft)}, the median end-to-end time {in_ms(e2e)} "
            f"(measured): without any TTFT a request would be shorter by about {100 * part:.0f} %. "
            "A pool shortens prefill only"
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
    named = ", ".join(f"{name} ({counted(rows, 'row')})" for name, rows in broken.items())
    return Hit(
        severity="warning",
        confidence="high",
        message=f"The data breaks its own rules: {named}",
        evidence=tuple(measured(name, rows, "rows", name) for name, rows in broken.items()),
        table=next(iter(broken)),
    )
