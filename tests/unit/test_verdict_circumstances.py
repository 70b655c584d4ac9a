"""What stands around the numbers of a verdict, from the audit's inputs to its words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kvtrace.audit.build import build_audit
from kvtrace.audit.fleet.facts import FleetFacts, OnStated, OptionFacts
from kvtrace.audit.fleet.record import Binding, OptionNeed
from kvtrace.audit.record import Verdict
from kvtrace.audit.verdict.context import binding_today, dominant_conversation, small_pieces
from kvtrace.replay.scenario import LinkSpec
from tests.unit.audit_fakes import (
    make_deployment,
    make_input,
    make_result,
    make_trace,
    query,
    reuse_queries,
    standard_replays,
)
from tests.unit.finding_cases import asked


def largest(share: float) -> dict[str, Any]:
    row = {
        "conversations": 900,
        "reusable_tokens": 1_000_000,
        "largest_reusable_tokens": round(1_000_000 * share),
        "largest_share": share,
    }
    return reuse_queries() | {"sharing/largest_conversation": query([row])}


def test_a_conversation_that_brings_half_of_the_reuse_stands_between_a_pool_and_pays() -> None:
    assert build_audit(make_input(queries=largest(0.49))).verdict.outcome == "pays"
    verdict = build_audit(make_input(queries=largest(0.5))).verdict
    assert verdict.outcome == "pays_only_if"
    assert "one of 900 conversations brings 50 % of the reuse" in verdict.headline
    assert verdict.confidence == "low"
    assert verdict.confidence_reasons[0].startswith("one of 900 conversations")


def test_the_largest_conversation_is_found_in_the_blocks_where_no_log_names_one() -> None:
    # Ten tokens a block. One talk of eight turns reuses 1 + 2 … + 7 = 28 blocks, four others one.
    talk = [{"blocks": list(range(turn + 1)), "prompt_tokens": 10 * turn + 10} for turn in range(8)]
    others = [
        {"blocks": [100 * one + i for i in range(turn + 1)], "prompt_tokens": 10 * turn + 10}
        for one in range(1, 5)
        for turn in range(2)
    ]
    queries = asked(
        ["sharing/largest_conversation"],
        {"block_size_tokens": 10, "requests": talk + others},
    )
    said = dominant_conversation(queries)
    assert said is not None
    # 28 of 32 blocks.
    assert "one of 5 conversations brings 88 % of the reuse (280 of 320 tokens)" in said
    even = asked(["sharing/largest_conversation"], {"block_size_tokens": 10, "requests": others})
    assert dominant_conversation(even) is None


def facts(binding: Binding) -> FleetFacts:
    need = OptionNeed(
        option="hbm_only",
        load=1.0,
        instances=8,
        gpus=64,
        basis="surrogate",
        at_least=8,
        most=16,
    )
    option = OptionFacts(
        needs=(need,), binding=binding, on_stated=OnStated(2000, None), load_at_slo=None
    )
    return FleetFacts(
        is_searched=False,
        reference="hbm_only",
        requests=2000,
        uncached_tokens=None,
        options={"hbm_only": option},
    )


def bound(resource: str) -> Binding:
    return Binding(
        option="hbm_only",
        instances=7,
        is_missed=True,
        binds=resource,
        next="prefill",
        basis="relaxed",
        used={resource: 0.97},
        why="with it free the SLO is kept",
    )


@pytest.mark.parametrize(
    ("resource", "words"),
    [("decode", "decode bandwidth"), ("hbm_capacity", "HBM for KV"), ("prefill", None)],
)
def test_what_limits_the_fleet_beside_prefill_is_said(resource: str, words: str | None) -> None:
    said = binding_today(bound(resource)) or ""
    assert said.partition(" limits today's fleet, not prefill")[0] == (words or "")


def light(binding: Binding) -> Verdict:
    """A load for which no whole instance is freed: 0.08 of one."""
    inputs = make_input(
        replays=standard_replays(utilisation=0.02, span_s=3.6e6), trace=make_trace(span_s=3.6e6)
    )
    return build_audit(replace(inputs, fleet_facts=facts(binding))).verdict


def test_the_reason_that_no_instance_is_saved_names_what_binds() -> None:
    decode = light(bound("decode"))
    assert decode.outcome == "does_not_pay"
    assert any(one.startswith("Decode bandwidth limits today's fleet") for one in decode.reasons)
    prefill = light(bound("prefill"))
    assert not any("limits today's fleet" in one for one in prefill.reasons)


def on_pcie(chunk_bytes: float) -> Any:
    """A pool whose hits take 300 s, over PCIe in pieces of this size."""
    slow = make_result("pool_dram_tcp", hits={"hbm": 2000, "pool": 4400}, pull_s=300.0)
    links = {**slow.scenario.links, "pcie": LinkSpec("pcie", "instance", 1e9)}
    slow = replace(slow, scenario=replace(slow.scenario, links=links))
    deployment = make_deployment()
    chunk = deployment.hardware.chunk_bytes.given(chunk_bytes, source="hardware.toml")
    return make_input(
        replays=(*standard_replays()[:3], slow),
        deployment=replace(deployment, hardware=replace(deployment.hardware, chunk_bytes=chunk)),
    )


def test_a_path_that_is_slow_by_its_pieces_is_told_to_gather_them() -> None:
    small = build_audit(on_pcie(65_536)).verdict
    assert small.outcome == "pays_only_if"
    assert any("KV is gathered into larger pieces" in one for one in small.conditions)
    assert any("in pieces of 64 KiB, with which pcie5_x16 reaches 26 %" in r for r in small.reasons)
    large = build_audit(on_pcie(2_097_152)).verdict
    assert not any("pieces" in one for one in (*large.conditions, *large.reasons))


def test_pieces_are_judged_on_links_that_an_option_crosses_only() -> None:
    inputs = on_pcie(65_536)
    assert small_pieces(inputs.deployment, standard_replays()) is None
