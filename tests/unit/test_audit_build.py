"""The whole audit on synthetic services whose answer is known."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kvtrace.audit.build import build_audit
from kvtrace.audit.inputs import AuditInput, SettingValue
from kvtrace.audit.record import AuditRecord, Option, Outcome
from kvtrace.audit.uncertainty.ranges import difference
from kvtrace.audit.uncertainty.sensitivity import prefill_factor
from kvtrace.cost.fleet import default_fleet
from kvtrace.errors import ModelError
from kvtrace.replay.result import ReplayResult
from kvtrace.schema.arrays import RequestTrace
from tests.unit.audit_fakes import (
    CONFIRMED,
    make_deployment,
    make_fleet,
    make_input,
    make_manifest,
    make_result,
    make_trace,
    prompt_buckets,
    query,
    reuse_queries,
    standard_replays,
)


def option(record: AuditRecord, ident: str) -> Option:
    return next(entry for entry in record.options if entry.id == ident)


def weak(grade: Any, **changes: Any) -> AuditInput:
    values: dict[str, Any] = {
        "manifest": make_manifest(grade),
        "queries": {"reuse/by_prompt_bucket": prompt_buckets()},
        "replays": (),
        "trace": None,
        "span_s": 3_600.0,
    }
    values.update(changes)
    return make_input(**values)


def is_not_routing(result: ReplayResult) -> bool:
    return result.scenario.option_id != "kv_routing"


def light_trace(requests: int = 2000) -> RequestTrace:
    """Ten tokens a prompt, one every 45 000 s."""
    trace = make_trace(requests=requests, span_s=9e7, shared_blocks=0)
    return replace(trace, prompt_tokens=np.full(requests, 10, dtype=np.int64))


HBM = {"hbm": 6996}
DRAM = {"hbm": 2000, "host_dram": 4996}
SCENARIOS: list[tuple[str, AuditInput, Outcome]] = [
    ("pays", make_input(), "pays"),
    (
        "no reuse",
        make_input(
            queries=reuse_queries(shared_blocks=0),
            trace=make_trace(shared_blocks=0),
            replays=(
                make_result("hbm_only", hits={"hbm": 0}),
                make_result("pool_dram_tcp", hits={"hbm": 0, "pool": 0}),
            ),
        ),
        "does_not_pay",
    ),
    (
        "reuse all in HBM",
        make_input(
            replays=(
                make_result("hbm_only", hits=HBM),
                make_result("dram_idle", hits={**HBM, "host_dram": 0}),
                make_result("pool_dram_tcp", hits={**HBM, "pool": 0}),
            )
        ),
        "does_not_pay",
    ),
    (
        "beyond HBM but within idle DRAM",
        make_input(
            replays=(
                make_result("hbm_only", hits={"hbm": 2000}),
                make_result("dram_idle", hits=DRAM, load_s=1.0),
                make_result("pool_dram_tcp", hits={"hbm": 2000, "pool": 4996}, pull_s=5.0),
            )
        ),
        "does_not_pay",
    ),
    (
        "pooled reuse on a slow network",
        make_input(
            replays=(
                *standard_replays()[:3],
                make_result("pool_dram_tcp", hits={"hbm": 2000, "pool": 4400}, pull_s=300.0),
            )
        ),
        "pays_only_if",
    ),
    (
        "prefill does not bind",
        # 40 times the span: 0.02 busy, 144 s x 2 000 / 3.6e6 s = 0.08 instances freed.
        make_input(
            replays=standard_replays(utilisation=0.02, span_s=3.6e6),
            trace=make_trace(span_s=3.6e6),
        ),
        "does_not_pay",
    ),
    ("lengths only", weak("L"), "cannot_tell"),
    ("aggregates only", weak("C", queries={}, span_s=None), "cannot_tell"),
    ("observed only", weak("B"), "cannot_tell"),
    ("lengths only, light load by a mean", weak("L", span_s=9e7), "cannot_tell"),
    # 10 tokens a prompt, 0.4 s each: a burst of 20 s holds one of them, 0.02 instances.
    (
        "lengths only, light load in its busiest minutes",
        weak(
            "L",
            trace=light_trace(),
            replays=(make_result("recompute", hits={"hbm": 0}),),
            span_s=9e7,
        ),
        "does_not_pay",
    ),
    (
        "lengths only, light load of a few requests",
        weak(
            "L",
            manifest=make_manifest("L", requests=999),
            trace=light_trace(999),
            replays=(make_result("recompute", hits={"hbm": 0}, requests=999),),
            span_s=9e7,
        ),
        "cannot_tell",
    ),
    (
        "lengths only, light load of a part of the data",
        weak(
            "L",
            manifest=make_manifest("L", requests=4000),
            trace=light_trace(),
            replays=(make_result("recompute", hits={"hbm": 0}),),
            span_s=9e7,
        ),
        "cannot_tell",
    ),
    (
        "window too short",
        make_input(trace=make_trace(span_s=600.0), replays=standard_replays(span_s=600.0)),
        "pays_only_if",
    ),
    (
        "a cheaper rival was not replayed",
        make_input(replays=tuple(r for r in standard_replays() if is_not_routing(r))),
        "pays_only_if",
    ),
    (
        "defaults unconfirmed",
        make_input(settings=(SettingValue("hardware", "H100-SXM5", "default", False),)),
        "pays_only_if",
    ),
]


@pytest.mark.parametrize(
    ("name", "inputs", "outcome"), SCENARIOS, ids=[entry[0] for entry in SCENARIOS]
)
def test_verdict_of_a_known_service(name: str, inputs: AuditInput, outcome: Outcome) -> None:
    verdict = build_audit(inputs).verdict
    assert (name, verdict.outcome) == (name, outcome)
    assert len(verdict.carrying_numbers) == 3
    for number in verdict.carrying_numbers:
        has_interval = number.low is not None and number.high is not None
        assert has_interval or number.interval_reason


def test_the_numbers_that_carry_pays() -> None:
    verdict = build_audit(make_input()).verdict
    extra, factor, money = verdict.carrying_numbers
    # 6 400 - 2 800 tokens for 2 000 requests; unlimited: 1 999 x 7 000 - 2 000 x 2 800.
    assert (extra.low, extra.value, extra.high) == (7_200_000, 7_200_000, 7_200_000)
    assert extra.source.endswith("an unlimited cache: 8,393,000")
    assert extra.interval_reason == "sizes are stated; one replay each"
    # 10 s of move against 0.04 s x 4 400 tokens = 176 s.
    assert factor.value == pytest.approx(10 / 176)
    # On seven instances the pool takes 234 s of HBM's 320 s on eight, the others more: so one
    # instance at 8 GPUs x 730 h x $3 = $17 520. Freed prefill alone: 0.04 x 3 600 x 2 000 / 90 000
    # = 3.2 instances at full use, 6.4 at half, times the prefill at the low GEMM efficiency; whole
    # ones alone are given back.
    slow = prefill_factor(make_deployment()).high
    cost = option(build_audit(make_input()), "pool_dram_rdma_direct").cost
    assert cost is not None
    assert isinstance(cost.value, float)
    assert cost.high is not None
    assert cost.low is not None
    assert money.value == pytest.approx(17_520 - cost.value)
    assert money.low == pytest.approx(17_520 - cost.high)
    assert money.high == pytest.approx(math.floor(6.4 * slow) * 17_520 - cost.low)
    assert verdict.option == "pool_dram_rdma_direct"
    assert verdict.rival == "Idle DRAM"


def test_option_figures_are_worked_out_from_the_timeline() -> None:
    record = build_audit(make_input())
    pool = option(record, "pool_dram_rdma_direct")
    assert pool.hit_ratio_tokens == pytest.approx(0.64)
    assert pool.hit_tokens_by_tier == {"hbm": 4_000_000, "pool": 8_800_000}
    assert pool.gpu_seconds_prefill == pytest.approx(144 * 2000 * 8)
    assert pool.gpu_seconds_saved == pytest.approx((400 - 144) * 2000 * 8)
    assert pool.hit_cost.hits == 2000
    assert pool.hit_cost.net_negative_hits == 0
    assert pool.hit_cost.ttft_gained_s == pytest.approx((176 - 10) * 2000)
    assert pool.extra_hit_tokens == 7_200_000
    assert pool.binds == "prefill"
    assert option(record, "hbm_only").usd_per_month == 0.0
    assert option(record, "hbm_only").extra_hit_tokens is None


def test_unknown_tpot_is_null_and_p99_needs_a_thousand_requests() -> None:
    full = option(build_audit(make_input()), "hbm_only")
    assert full.tpot_s.p50 is None
    assert full.ttft_s.p99 is not None
    few = make_input(
        trace=make_trace(requests=999),
        replays=(make_result("hbm_only", hits={"hbm": 2000}, requests=999),),
    )
    assert option(build_audit(few), "hbm_only").ttft_s.p99 is None


def test_a_slower_and_dearer_option_is_dominated() -> None:
    replays = (
        *standard_replays(),
        make_result("pool_dram_tcp", hits={"hbm": 2000, "pool": 4400}, pull_s=20.0, load_s=2.0),
    )
    record = build_audit(make_input(replays=replays))
    assert option(record, "pool_dram_tcp").is_dominated is True
    assert option(record, "pool_dram_rdma_direct").is_dominated is False
    assert option(record, "dram_idle").is_dominated is False


def test_a_busy_link_binds_before_prefill() -> None:
    replays = (
        *standard_replays()[:3],
        make_result(
            "pool_dram_tcp", hits={"hbm": 2000, "pool": 4400}, pull_s=9.0, link_utilisation=0.95
        ),
    )
    assert option(build_audit(make_input(replays=replays)), "pool_dram_tcp").binds == "link:nic"


@pytest.mark.parametrize(
    ("offered_load", "is_overloaded", "binds"),
    [(0.5, True, "prefill"), (0.9, True, "decode"), (0.9, False, "none")],
)
def test_an_option_that_does_not_carry_its_bursts_is_bound_by_what_takes_most_time(
    offered_load: float, is_overloaded: bool, binds: str
) -> None:
    # Prefill takes 0.4 of the instances' time: most of 0.5, less than half of 0.9.
    result = make_result(
        "hbm_only",
        hits={"hbm": 2000},
        utilisation=0.4,
        offered_load=offered_load,
        is_overloaded=is_overloaded,
    )
    record = build_audit(make_input(replays=(result,)))
    assert option(record, "hbm_only").binds == binds


def test_weak_grades_keep_reuse_null_and_say_why() -> None:
    record = build_audit(weak("L"))
    assert record.reuse.reusable_ratio_tokens is None
    assert record.reuse.reusable_tokens is None
    assert record.reuse.hit_curve == []
    assert "unknown, not zero" in (record.reuse.unknown_reason or "")
    assert record.verdict.next_measurement is not None
    assert record.verdict.next_measurement.hours > 0
    assert "reuse_unknown" in {finding.id for finding in record.findings}


def test_next_measurement_names_the_flag_of_the_engine() -> None:
    vllm = build_audit(weak("L", manifest=make_manifest("L", format_name="vllm_timing")))
    sglang = build_audit(weak("L", manifest=make_manifest("L", format_name="sglang_text")))
    assert vllm.verdict.next_measurement is not None
    assert sglang.verdict.next_measurement is not None
    assert "--enable-log-requests" in vllm.verdict.next_measurement.flag
    assert "--log-requests-level" in sglang.verdict.next_measurement.flag


def test_observed_hits_are_reported_beside_unknown_reuse() -> None:
    definitions = query(
        [
            {
                "definition": "cached_tokens_observed",
                "numerator": 6_000_000.0,
                "denominator": 20_000_000.0,
                "ratio": 0.3,
            }
        ]
    )
    record = build_audit(weak("B", queries={"reuse/definitions": definitions}))
    assert record.reuse.observed_hit_ratio_tokens == pytest.approx(0.3)
    assert record.reuse.reusable_ratio_tokens is None


def test_more_requests_in_the_replays_than_in_the_trace_is_an_error() -> None:
    with pytest.raises(ModelError, match="2,000 requests, the trace 10"):
        build_audit(make_input(trace=make_trace(requests=10)))


def test_a_dearer_pool_turns_pays_into_pays_only_if() -> None:
    fleet = make_fleet()
    dram = fleet.prices["dram_usd_per_gb"].given(700.0, source="fleet.toml")
    dear = replace(fleet, prices=fleet.prices.with_stated(dram))
    verdict = build_audit(make_input(fleet=dear)).verdict
    # 4 398 GB x $700 / 48 months = $64 138, inside the interval of the saving.
    assert verdict.outcome == "pays_only_if"
    assert any("GPU-hour" in condition for condition in verdict.conditions)


def test_salt_is_not_in_the_record_and_harmless_defaults_do_not_matter() -> None:
    record = build_audit(make_input(settings=CONFIRMED))
    assert "salt" not in record.reproduce.settings
    assert record.reproduce.settings["lang"] == "en"
    assert record.verdict.outcome == "pays"
    assert not {"salt", "lang"} & {assumption.id for assumption in record.assumptions}


def test_assumptions_carry_source_and_interval_or_reason() -> None:
    assumptions = build_audit(make_input()).assumptions
    assert {"llm", "prices.gpu_usd_per_hour", "prices.operations_fte_share"} <= {
        assumption.id for assumption in assumptions
    }
    for assumption in assumptions:
        assert assumption.source
        has_interval = assumption.low is not None or assumption.high is not None
        assert has_interval or assumption.interval_reason


def test_every_assumption_says_who_stands_behind_it() -> None:
    settings = (
        SettingValue("hardware", "H100-SXM5", "default", False),
        SettingValue("llm", "Meta-Llama-3.1-70B", "logs", True),
        SettingValue("tp", 8, "flag", True),
    )
    deployment = replace(make_deployment(), measured_kv_tokens=500_000)
    inputs = make_input(
        settings=settings, deployment=deployment, fleet=default_fleet(deployment, 8)
    )
    assumptions = {one.id: one for one in build_audit(inputs).assumptions}
    states = {ident: one.origin_state for ident, one in assumptions.items()}
    assert states["hardware"] == "estimated"
    assert states["llm"] == "logs"
    assert states["tp"] == "stated"
    assert states["instance.hbm_cache_bytes"] == "logs"
    assert states["fleet.pool_nodes"] == "estimated"
    assert states["gpus.H100-SXM5.bf16_flops"] == "public"
    assert states["efficiency.hbm_read"] == "fitted"
    for one in assumptions.values():
        assert one.is_confirmed == (one.origin_state != "estimated"), one.id
        assert (one.kind == "assumed") == (one.origin_state == "estimated"), one.id
    estimates = {ident for ident, one in assumptions.items() if not one.is_confirmed}
    assert {
        "fleet.pool_nodes",
        "fleet.pool_dram_bytes",
        "fleet.pool_nics_per_node",
        "prices.operations_fte_share",
        "fleet_busy_share",
        "moves.dram_idle_share",
    } <= estimates


def test_estimates_come_first_and_pool_and_money_before_the_rest() -> None:
    settings = (SettingValue("hardware", "H100-SXM5", "default", False), *CONFIRMED[:1])
    inputs = make_input(settings=settings, fleet=default_fleet(make_deployment(), 8))
    assumptions = build_audit(inputs).assumptions
    confirmed = [one.is_confirmed for one in assumptions]
    assert confirmed == sorted(confirmed)
    assert [one.id for one in assumptions[:3]] == [
        "fleet.pool_nodes",
        "fleet.pool_dram_bytes",
        "fleet.pool_nics_per_node",
    ]
    ids = [one.id for one in assumptions]
    assert ids.index("prices.operations_fte_share") < ids.index("hardware")
    assert ids.index("hardware") < ids.index("moves.dram_lookup_s")


def test_a_stated_pool_is_confirmed_and_no_longer_pool_size() -> None:
    fleet = default_fleet(make_deployment(), 8)
    inputs = make_input(fleet=make_fleet())
    assert inputs.unconfirmed == ()
    assert make_input(fleet=fleet).unconfirmed == ("pool size", "idle DRAM", "GPU contract")
    nodes = replace(fleet, pool_nodes=fleet.pool_nodes.given(2, source="fleet.toml"))
    assert "pool size" in make_input(fleet=nodes).unconfirmed  # its DRAM is still an estimate


def test_a_window_of_seconds_gives_no_money_a_month() -> None:
    short = weak("L", span_s=29.0)
    best = next(
        number
        for number in build_audit(short).verdict.carrying_numbers
        if number.id == "best_case_usd_per_month"
    )
    assert (best.value, best.low, best.high) == (None, None, None)
    assert "a window of 29.0 s" in best.interval_reason
    record = build_audit(
        make_input(trace=make_trace(span_s=600.0), replays=standard_replays(span_s=600.0))
    )
    money = record.verdict.carrying_numbers[2]
    assert (money.value, money.low, money.high) == (None, None, None)
    assert "does not stand for a month" in money.interval_reason
    assert {entry.saving for entry in record.options} == {None}
    assert {entry.usd_saved_per_month for entry in record.options} == {None}


def test_recomputing_has_no_hits_by_definition_and_no_pool_to_compare() -> None:
    replays = (make_result("recompute", hits={"hbm": 0}), *standard_replays())
    nothing = option(build_audit(make_input(replays=replays)), "recompute")
    assert (nothing.hit_ratio_tokens, nothing.hit_cost.hits) == (0.0, 0)  # it keeps no KV: exact
    assert nothing.extra_hit_tokens is None  # only pools are held against what needs none


def test_recomputing_saves_exactly_nothing() -> None:
    # Sums of 0.1 in another order differ by rounding; that is no saving.
    assert difference(0.1 + 0.2, 0.3) == 0.0
    assert difference(3.0, 2.5) == 0.5
    replays = (make_result("recompute", hits={"hbm": 0}), *standard_replays())
    assert option(build_audit(make_input(replays=replays)), "recompute").gpu_seconds_saved == 0.0


def test_latency_is_said_beside_the_verdict_on_money() -> None:
    # prefill 0.04 s a token: HBM 8 000, idle DRAM 7 200 + 1 s of load, pool 3 600 + 10 s of move.
    reasons = build_audit(make_input()).verdict.reasons
    (sentence,) = [reason for reason in reasons if "This verdict is about money" in reason]
    assert sentence.startswith(
        "TTFT p99 (modelled): 320.0 s with HBM only, 289.0 s with Idle DRAM, 154.0 s with Pool"
    )


def test_span_is_at_least_what_the_slices_cover_when_no_trace_says_it() -> None:
    slices = query([{"slice_start_ns": 10**9 * second, "requests": 5} for second in (0, 60, 120)])
    record = build_audit(weak("L", queries={"coverage/over_time": slices}, span_s=None))
    assert record.data.span_s == 120.0


def test_today_says_so_where_the_logs_show_a_tier_that_was_not_replayed() -> None:
    window = {
        "latency/hit_and_ttft_thirds": query([{"third": 0, "engine_external_hit_ratio": 0.3}])
    }
    verdict = build_audit(make_input(queries=reuse_queries() | window)).verdict
    assert any(
        "has a tier below HBM (its engine prints hits below HBM, 30.0 % of what HBM missed)" in r
        for r in verdict.reasons
    )
    assert not any("has a tier below HBM" in r for r in build_audit(make_input()).verdict.reasons)
