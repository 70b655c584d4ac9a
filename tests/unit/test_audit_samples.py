"""What the audit says of the sample traces, whose story is known (sample_traces/README.md)."""

from __future__ import annotations

import pytest

from kvtrace.audit.record import AuditRecord, Finding
from tests.conftest import Analysed


@pytest.fixture(scope="module")
def record(samples: Analysed) -> AuditRecord:
    return samples.record


def finding(record: AuditRecord, ident: str) -> Finding:
    return next(one for one in record.findings if one.id == ident)


def test_pulls_over_a_slow_pool_are_found_in_the_measurement(record: AuditRecord) -> None:
    # 20 000-token prompts wait for their pulls longer than computing what HBM misses would take.
    slow = finding(record, "hits_not_faster_measured")
    assert "359 requests of 16,384 to 32,768 tokens: 1,878 ms (p50, measured)" in slow.message
    factor = next(e for e in slow.evidence if e.id == "measured_over_recompute:16384")
    assert isinstance(factor.value, float)
    assert 1.0 <= factor.value < 1.3


def test_hit_ratio_of_all_tiers_rises_with_ttft(record: AuditRecord) -> None:
    trend = finding(record, "high_hit_ratio_slow_ttft")
    first, last = (
        next(e.value for e in trend.evidence if e.id == f"hit_ratio_{third}_third")
        for third in ("first", "last")
    )
    # The story: 43 % in either before minute 35, 84 % after; means over windows of look-ups lag.
    assert first == pytest.approx(0.41, abs=0.03)
    assert last == pytest.approx(0.78, abs=0.03)


def test_no_option_hits_more_than_the_ceiling_of_its_window(record: AuditRecord) -> None:
    window = record.replay_window
    assert window is not None
    assert window.is_peak_hour
    assert window.reusable_ratio_tokens is not None
    ratios = [o.hit_ratio_tokens for o in record.options if o.hit_ratio_tokens is not None]
    assert max(ratios) <= window.reusable_ratio_tokens
    # The whole trace has a lower ceiling than its busy hour.
    assert record.reuse.reusable_ratio_tokens is not None
    assert record.reuse.reusable_ratio_tokens < max(ratios)


def test_the_verdict_shows_its_division(record: AuditRecord) -> None:
    # One instance stays however much prefill is freed: the estimate is below one of them.
    verdict = record.verdict
    assert verdict.outcome == "does_not_pay"
    division = "times the load of this trace, at the same reuse and pool size: $4,843 of cost"
    assert any(division in one for one in verdict.conditions)


def test_the_queue_of_the_tail_is_not_called_that_of_the_median(record: AuditRecord) -> None:
    # The median request does not wait; three fifths of all TTFT, summed, are queue.
    queue = finding(record, "queueing_dominates")
    assert queue.confidence == "medium"
    assert queue.severity == "warning"
    assert "queue is 61 % of all TTFT (sum); queue p50 0 ms" in queue.message
    assert "The queue hits the tail" in queue.message
