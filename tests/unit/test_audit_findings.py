"""Findings: raised by their cause, with numbers, and silent below their threshold."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kvtrace.audit.build import build_audit
from kvtrace.audit.findings.registry import CHECKS
from kvtrace.audit.inputs import SettingValue
from kvtrace.audit.record import AuditRecord, Finding
from kvtrace.query.catalog import QueryResult
from tests.unit.audit_fakes import (
    make_deployment,
    make_input,
    make_manifest,
    make_result,
    make_trace,
    query,
    reuse_queries,
    standard_replays,
)

QUEUED = {
    "requests": 2000,
    "ttft_known_requests": 2000,
    "ttft_p50_ms": 60_300.0,
    "queue_known_requests": 2000,
    "queue_p50_ms": 60_000.0,
    "prefill_p50_ms": 220.0,
    "e2e_p50_ms": 70_000.0,
    "queue_share_of_ttft": 0.98,
    "ttft_length_correlation": 0.05,
    "ttft_queue_correlation": 0.99,
}


def with_queries(**queries: Any) -> AuditRecord:
    named = {name.replace("__", "/"): result for name, result in queries.items()}
    return build_audit(make_input(queries=reuse_queries() | named))


def with_replays(*replays: Any) -> AuditRecord:
    return build_audit(make_input(replays=replays))


def found(record: AuditRecord, ident: str) -> Finding | None:
    return next((finding for finding in record.findings if finding.id == ident), None)


def evidence(finding: Finding | None, ident: str) -> float | int | str | None:
    assert finding is not None
    return next(entry.value for entry in finding.evidence if entry.id == ident)


def latency(**changes: Any) -> AuditRecord:
    return with_queries(latency__summary=query([QUEUED | changes]))


def test_registry_is_complete_and_consistent() -> None:
    ids = [check.id for check in CHECKS]
    assert len(ids) == len(set(ids))
    for check in CHECKS:
        assert check.title
        assert check.question.endswith("?")
        assert check.action
        assert check.production_check
        assert check.action_kind in {"move_less", "faster", "nearer", "measure", "other"}
        assert check.threshold.source.startswith(("policy: ", "exact: "))


def test_a_healthy_service_has_no_finding_but_its_data_quirks() -> None:
    # Blocks of 100 hide at most 99 of 10 000 tokens (1 %); nothing else is wrong.
    assert [finding.id for finding in build_audit(make_input()).findings] == []


def test_queue_not_length_is_said_with_the_measured_numbers() -> None:
    finding = found(latency(), "queueing_dominates")
    assert finding is not None
    assert finding.severity == "critical"
    assert finding.confidence == "high"
    assert finding.message.startswith("Queue, not length: queue is 98 % of all TTFT (sum)")
    assert "60.0 s" in finding.message
    assert "220" in finding.message
    assert "measured" in finding.message
    assert evidence(finding, "queue_share_of_ttft") == 0.98
    units = {entry.id: entry.unit for entry in finding.evidence}
    assert units["ttft_queue_correlation"] == ""
    assert finding.table == "latency/summary"


def test_correlation_with_the_queue_alone_is_enough() -> None:
    finding = found(latency(queue_share_of_ttft=None), "queueing_dominates")
    assert finding is not None
    assert finding.severity == "warning"


def test_ttft_that_goes_with_the_length_is_not_a_queue_finding() -> None:
    record = latency(queue_share_of_ttft=0.3, ttft_length_correlation=0.8)
    assert found(record, "queueing_dominates") is None


def test_unknown_queue_gives_no_queue_finding() -> None:
    record = latency(
        queue_share_of_ttft=None, ttft_queue_correlation=None, ttft_length_correlation=None
    )
    assert found(record, "queueing_dominates") is None


def thirds(first: dict[str, Any], last: dict[str, Any], *, whole: dict[str, Any]) -> QueryResult:
    """The whole window and its thirds, the one between as the first."""
    rows = [whole, first, first, last]
    return query([{"third": third} | first | row for third, row in enumerate(rows)])


def trend(**last: Any) -> AuditRecord:
    """Three thirds of 900 requests, the last with `last`."""
    early = {
        "ttft_requests": 900,
        "ttft_p50_ms": 100.0,
        "ttft_p90_ms": 200.0,
        "queue_p50_ms": 10.0,
        "cached_ratio_tokens": 0.60,
        "engine_prefix_hit_ratio": None,
        "mean_prompt_tokens": 1000.0,
    }
    rows = thirds(early, early | last, whole={"requests": 2700})
    return with_queries(latency__hit_and_ttft_thirds=rows)


BETTER_HITS = {"cached_ratio_tokens": 0.9, "ttft_p50_ms": 400.0, "ttft_p90_ms": 900.0}


def test_hits_up_and_ttft_up_is_found_and_the_queue_is_named() -> None:
    finding = found(trend(**BETTER_HITS, queue_p50_ms=250.0), "high_hit_ratio_slow_ttft")
    assert finding is not None
    assert "from 60.0 % to 90.0 %" in finding.message
    # 240 of 300 ms
    assert "the queue p50 grew by 240 ms of the 300 ms" in finding.message
    assert "prompts got longer" not in finding.message
    assert evidence(finding, "hit_ratio_last_third") == pytest.approx(0.9)


def test_hits_made_of_longer_prompts_name_the_prompts() -> None:
    finding = found(trend(**BETTER_HITS, mean_prompt_tokens=3000.0), "high_hit_ratio_slow_ttft")
    assert finding is not None
    assert "prompts got longer (1,000 to 3,000 tokens" in finding.message
    assert "queue p50 grew" not in finding.message


def test_what_neither_queue_nor_length_explains_is_left_to_the_moves() -> None:
    finding = found(trend(**BETTER_HITS), "high_hit_ratio_slow_ttft")
    assert finding is not None
    assert "neither the queue nor the prompt length" in finding.message


def test_hits_below_hbm_are_added_to_those_in_hbm_and_their_bytes_are_named() -> None:
    early: dict[str, Any] = {"engine_external_hit_ratio": 0.05, "engine_combined_hit_ratio": 0.43}
    late: dict[str, Any] = {"engine_external_hit_ratio": 0.75, "engine_combined_hit_ratio": 0.85}
    both: dict[str, Any] = {
        "ttft_requests": 400,
        "ttft_p50_ms": 100.0,
        "ttft_p90_ms": None,
        "queue_p50_ms": 0.0,
        "engine_prefix_hit_ratio": 0.4,
        "mean_prompt_tokens": 1000.0,
    }
    rows = thirds(both | early, both | late | {"ttft_p50_ms": 300.0}, whole={"requests": 1200})
    record = with_queries(latency__hit_and_ttft_thirds=rows)
    finding = found(record, "high_hit_ratio_slow_ttft")
    # HBM alone stays at 0.40; with what is below it 0.43 becomes 0.4 + 0.6 x 0.75 = 0.85.
    assert evidence(finding, "hit_ratio_first_third") == pytest.approx(0.43)
    assert evidence(finding, "hit_ratio_last_third") == pytest.approx(0.85)
    assert finding is not None
    # 1 000 x 0.6 x 0.75 = 450 tokens at 327 680 bytes = 147.5 MB
    assert "about 450 tokens a request are moved" in finding.message
    assert "147.5 MB" in finding.message
    assert finding.confidence == "high"


def prefill_audit(p50_ms: float, *, external: float | None = None, **changes: Any) -> AuditRecord:
    """30 requests of 10 000 tokens with much reuse; recomputing one takes `full_s`."""
    rows = [
        {
            "prompt_bucket": 8192,
            "reuse_class": "high",
            "requests": 30,
            "mean_prompt_tokens": 10_000.0,
            "mean_reusable_tokens": 8_000.0,
            "prefill_p50_ms": p50_ms,
            "prefill_p90_ms": None,
        }
        | changes
    ]
    window = [
        {
            "third": 0,
            "requests": 30,
            "engine_prefix_hit_ratio": 0.4,
            "engine_external_hit_ratio": external,
        }
    ]
    settings = (SettingValue("llm", "Meta-Llama-3.1-70B", "logs", True),)
    queries = {
        "latency/prefill_by_reuse": query(rows),
        "latency/hit_and_ttft_thirds": query(window),
    }
    return build_audit(make_input(queries=reuse_queries() | queries, settings=settings))


FULL_MS = 1000 * make_deployment().prefill.prefill_s(10_000.0, 0.0)
MISSED_MS = 1000 * make_deployment().prefill.prefill_s(6_000.0, 4_000.0)


def test_hits_as_slow_as_recomputing_the_whole_prompt_are_found() -> None:
    record = prefill_audit(FULL_MS + 1)
    finding = found(record, "hits_not_faster_measured")
    assert finding is not None
    assert "recomputing the whole prompt: 30 requests of 8,192 to 16,384 tokens" in finding.message
    assert finding.table == "replay/measured_prefill"
    assert evidence(finding, "measured_over_recompute:8192") == pytest.approx(1 + 1 / FULL_MS)
    (row,) = record.tables["replay/measured_prefill"].rows
    assert row[:3] == [8192, "high", 30]


def test_hits_as_slow_as_recomputing_what_hbm_missed_are_found_with_less_confidence() -> None:
    assert MISSED_MS < FULL_MS
    finding = found(prefill_audit(MISSED_MS + 1, external=0.7), "hits_not_faster_measured")
    assert finding is not None
    assert finding.confidence == "low"
    assert "what HBM misses (60.0 % of a prompt" in finding.message


@pytest.mark.parametrize(
    "record",
    [
        prefill_audit(FULL_MS - 1),
        prefill_audit(MISSED_MS - 1, external=0.7),
        prefill_audit(MISSED_MS + 1, external=0.0),
        prefill_audit(FULL_MS + 1, requests=19),
        prefill_audit(FULL_MS + 1, reuse_class="low"),
    ],
    ids=["faster", "faster than HBM's misses", "nothing below HBM", "few", "little reuse"],
)
def test_hits_that_are_faster_or_too_few_to_tell_are_not_a_finding(record: AuditRecord) -> None:
    assert found(record, "hits_not_faster_measured") is None


def test_prefill_is_not_compared_with_a_model_of_another_service() -> None:
    settings = (SettingValue("hardware", "H100-SXM5", "default", False),)
    rows = [
        {
            "prompt_bucket": 8192,
            "reuse_class": "high",
            "requests": 30,
            "mean_prompt_tokens": 10_000.0,
            "prefill_p50_ms": 2 * FULL_MS,
        }
    ]
    queries = reuse_queries() | {"latency/prefill_by_reuse": query(rows)}
    record = build_audit(make_input(queries=queries, settings=settings))
    assert found(record, "hits_not_faster_measured") is None
    assert "replay/measured_prefill" not in record.tables


def test_without_a_logged_queue_no_cause_is_claimed() -> None:
    first: dict[str, Any] = {
        "ttft_requests": 200,
        "ttft_p50_ms": 100.0,
        "ttft_p90_ms": None,
        "queue_p50_ms": None,
        "cached_ratio_tokens": None,
        "engine_prefix_hit_ratio": 0.5,
        "mean_prompt_tokens": 1000.0,
    }
    last = first | {"ttft_p50_ms": 300.0, "engine_prefix_hit_ratio": 0.8}
    rows = thirds(first, last, whole={"requests": 600})
    record = with_queries(latency__hit_and_ttft_thirds=rows)
    finding = found(record, "high_hit_ratio_slow_ttft")
    assert finding is not None
    assert "the queue is not logged" in finding.message
    assert finding.confidence == "medium"  # 600 requests


@pytest.mark.parametrize(
    "last",
    [
        {"cached_ratio_tokens": 0.9, "ttft_p50_ms": 110.0, "ttft_p90_ms": 210.0},
        {"cached_ratio_tokens": 0.61, "ttft_p50_ms": 400.0, "ttft_p90_ms": 900.0},
    ],
)
def test_one_of_the_two_rises_is_not_a_finding(last: dict[str, float]) -> None:
    assert found(trend(**last), "high_hit_ratio_slow_ttft") is None


def test_medians_of_few_requests_are_no_trend() -> None:
    assert found(trend(**BETTER_HITS, ttft_requests=20), "high_hit_ratio_slow_ttft") is not None
    assert found(trend(**BETTER_HITS, ttft_requests=19), "high_hit_ratio_slow_ttft") is None


def test_reuse_that_exists_is_not_a_hit_ratio() -> None:
    first = {
        "ttft_requests": 300,
        "ttft_p50_ms": 100.0,
        "ttft_p90_ms": 100.0,
        "reusable_ratio_tokens": 0.1,
        "cached_ratio_tokens": None,
    }
    last = first | {"ttft_p50_ms": 700.0, "reusable_ratio_tokens": 0.8}
    record = with_queries(latency__hit_and_ttft_thirds=thirds(first, last, whole={"requests": 900}))
    assert found(record, "high_hit_ratio_slow_ttft") is None


def pool(option_id: str = "pool_dram_tcp", **changes: Any) -> Any:
    return make_result(option_id, hits={"hbm": 2000, "pool": 4400}, **changes)


def test_hits_slower_than_recomputing_are_net_negative() -> None:
    # 400 s of move against 4 400 x 0.04 = 176 s: all 2 000 hits lose 224 s each; at the fast end of
    # TCP, 9.5 instead of 4.7 GB/s, 196 s are left.
    record = with_replays(*standard_replays()[:3], pool(pull_s=400.0))
    finding = found(record, "net_negative_hits")
    assert finding is not None
    assert finding.severity == "critical"
    assert "2,000 of 2,000 loaded hits (100 %)" in finding.message
    assert "modelled" in finding.message
    assert evidence(finding, "net_negative_share:pool_dram_tcp") == 1.0


def test_hits_that_lose_time_at_the_middle_of_the_constants_only_cannot_be_told() -> None:
    # 300 s of move against 176 s, but 147 s at the fast end of TCP.
    record = with_replays(*standard_replays()[:3], pool(pull_s=300.0))
    finding = found(record, "net_negative_hits")
    assert finding is not None
    assert (finding.severity, finding.confidence) == ("info", "low")
    assert finding.message.startswith("Cannot tell: at the fast end of the path's constants")
    assert "2,000 of 2,000 loaded hits (100 %)" in finding.message
    assert "0 to 2,000 over the range of the path's constants" in finding.message
    assert "is open" in finding.title


def test_moves_dominate_when_they_take_longer_than_prefill() -> None:
    # 160 s of move beside 0.04 x 3 600 = 144 s of prefill: 160 / 304 = 53 %; no hit is negative.
    record = with_replays(*standard_replays()[:3], pool(pull_s=160.0))
    finding = found(record, "moves_dominate")
    assert finding is not None
    assert "53 %" in finding.message
    assert found(record, "net_negative_hits") is None


def test_host_bounce_is_named_when_it_makes_moves_longer() -> None:
    # 36 s of move beside 144 s of prefill: 20 % of TTFT, and 1.5 times 24 s.
    direct = pool("pool_dram_rdma_direct", pull_s=24.0)
    bounce = pool("pool_dram_rdma_bounce", pull_s=24.0, load_s=12.0)
    finding = found(with_replays(*standard_replays()[:3], direct, bounce), "host_bounce_dominates")
    assert finding is not None
    assert "1.50 times" in finding.message
    assert "20 % of TTFT" in finding.message
    small = pool("pool_dram_rdma_bounce", pull_s=24.0, load_s=6.0)
    record = with_replays(*standard_replays()[:3], direct, small)
    assert found(record, "host_bounce_dominates") is None


def test_a_host_bounce_of_moves_that_do_not_matter_is_not_named() -> None:
    # 12 s of move beside 144 s of prefill: 7.7 % of TTFT.
    direct = pool("pool_dram_rdma_direct", pull_s=8.0)
    bounce = pool("pool_dram_rdma_bounce", pull_s=8.0, load_s=4.0)
    record = with_replays(*standard_replays()[:3], direct, bounce)
    assert found(record, "host_bounce_dominates") is None


def test_net_negative_hits_on_one_path_of_two_are_a_warning() -> None:
    fast = pool("pool_dram_rdma_direct", pull_s=8.0)
    record = with_replays(*standard_replays()[:3], pool(pull_s=400.0), fast)
    finding = found(record, "net_negative_hits")
    assert finding is not None
    assert finding.severity == "warning"


def test_hits_that_end_at_hbm() -> None:
    # 6 996 x 2 000 of 7 000 x 1 999 reusable tokens.
    record = with_replays(
        make_result("hbm_only", hits={"hbm": 6900}),
        make_result("pool_dram_tcp", hits={"hbm": 6900, "pool": 50}),
    )
    assert found(record, "hits_end_at_hbm") is not None
    assert found(record, "working_set_fits_dram") is None
    little = found(record, "pool_adds_little")
    assert evidence(little, "extra_hit_tokens") == 100_000


def test_a_working_set_within_idle_dram() -> None:
    record = with_replays(
        make_result("hbm_only", hits={"hbm": 2000}),
        make_result("dram_idle", hits={"hbm": 2000, "host_dram": 4900}, load_s=1.0),
        pool(pull_s=1.0),
    )
    finding = found(record, "working_set_fits_dram")
    assert finding is not None
    assert "931.3 GiB an instance" in finding.message
    assert found(record, "hits_end_at_hbm") is None


def test_modelled_findings_are_low_confidence_with_unconfirmed_defaults() -> None:
    record = build_audit(
        make_input(
            replays=(*standard_replays()[:3], pool(pull_s=400.0)),
            settings=(SettingValue("llm", "x", "default", False),),
        )
    )
    finding = found(record, "net_negative_hits")
    assert finding is not None
    assert finding.confidence == "low"


def test_short_window_and_few_requests() -> None:
    record = build_audit(
        make_input(trace=make_trace(span_s=600.0), replays=standard_replays(span_s=600.0))
    )
    finding = found(record, "window_too_short")
    assert evidence(finding, "span_s") == 600.0
    assert found(build_audit(make_input()), "window_too_short") is None


def test_clock_coarser_than_arrivals() -> None:
    manifest = make_manifest()
    manifest.files[0].clock_resolution_ns = 60 * 10**9
    finding = found(build_audit(make_input(manifest=manifest)), "clock_coarse")
    # 90 000 s over 1 999 gaps is 45.02 s
    assert evidence(finding, "mean_arrival_gap_s") == pytest.approx(45.0225, abs=1e-3)


def test_large_blocks_may_hide_reuse() -> None:
    manifest = make_manifest()
    manifest.totals.block_size_tokens = 512
    finding = found(build_audit(make_input(manifest=manifest)), "block_size_hides_reuse")
    assert evidence(finding, "hidden_tokens_at_most") == 511 * 2000
    assert finding is not None
    assert "(5.1 %)" in finding.message


def test_small_blocks_hide_nothing_worth_saying() -> None:
    manifest = make_manifest()
    manifest.totals.block_size_tokens = 16
    assert found(build_audit(make_input(manifest=manifest)), "block_size_hides_reuse") is None


def test_decode_dominates_by_amdahl() -> None:
    record = latency(ttft_p50_ms=500.0, e2e_p50_ms=10_000.0, queue_share_of_ttft=0.1)
    finding = found(record, "decode_dominates")
    assert finding is not None
    assert "about 5 %" in finding.message
    assert found(latency(ttft_p50_ms=2_000.0, e2e_p50_ms=10_000.0), "decode_dominates") is None


def test_rows_of_quality_queries_are_violations() -> None:
    rows = query([{"request_key": 1}, {"request_key": 2}])
    empty = replace(rows, frame=rows.frame.clear())
    record = with_queries(quality__ttft_above_e2e=rows, quality__negative_values=empty)
    finding = found(record, "quality_violations")
    assert finding is not None
    assert "quality/ttft_above_e2e (2 rows)" in finding.message
    assert "negative_values" not in finding.message
    assert finding.table == "quality/ttft_above_e2e"


def test_critical_findings_come_first() -> None:
    record = build_audit(
        make_input(
            queries=reuse_queries() | {"latency/summary": query([QUEUED])},
            trace=make_trace(span_s=600.0),
            replays=standard_replays(span_s=600.0),
        )
    )
    severities = [finding.severity for finding in record.findings]
    assert severities == sorted(severities, key=["critical", "warning", "info"].index)
    assert severities[0] == "critical"
