"""Rivals that could exist and were not replayed: the verdict says so, and is conditional."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvtrace.audit.build import build_audit
from kvtrace.audit.slo.fleets import Fleets, build_fleets
from kvtrace.audit.verdict.rivals import unreplayed_rivals
from tests.unit.audit_fakes import both_free, make_fleet, make_input, make_trace, standard_replays

FLEET = make_fleet()


def without(*names: str) -> Fleets:
    made = (*standard_replays(), both_free())
    left = [one for one in made if one.scenario.option_id not in names]
    return build_fleets(make_trace(), left)


def test_a_rival_that_costs_nothing_is_a_condition_with_its_bound() -> None:
    assert unreplayed_rivals(without(), FLEET) == ()
    assert unreplayed_rivals(
        without("dram_idle", "dram_idle_kv_routing"), FLEET, most_local_ratio=0.3
    ) == (
        "idle DRAM of the GPU nodes, which costs nothing and was not replayed, does not serve the "
        "same hits: at most 30.0 % of the prompt tokens, by the capacity curve",
    )
    both = "dram_idle_kv_routing"
    routing, dram = unreplayed_rivals(without("dram_idle", "kv_routing", both), FLEET)
    assert routing.startswith("routing that follows the cache")
    assert dram.startswith("idle DRAM")
    # Each alone was replayed, and both together were not.
    assert [one.partition(", which")[0] for one in unreplayed_rivals(without(both), FLEET)] == [
        "routing that follows the cache, with idle DRAM"
    ]


def test_what_cannot_exist_is_no_rival() -> None:
    one = replace(FLEET, instances=1)
    assert unreplayed_rivals(without("kv_routing"), one) == ()
    idle = FLEET.dram_idle_bytes_per_instance.given(0.0, source="fleet.toml")
    none = replace(FLEET, dram_idle_bytes_per_instance=idle)
    assert unreplayed_rivals(without("dram_idle"), none) == ()


@pytest.mark.parametrize(
    "left_out",
    [{"dram_idle", "dram_idle_kv_routing"}, {"kv_routing"}, {"dram_idle_kv_routing"}],
)
def test_a_verdict_without_a_rival_that_exists_is_conditional(
    left_out: set[str],
) -> None:
    inputs = make_input()
    replays, fewer = (
        tuple(one for one in made if one.scenario.option_id not in left_out)
        for made in (inputs.replays, inputs.fewer)
    )
    verdict = build_audit(replace(inputs, replays=replays, fewer=fewer)).verdict
    assert verdict.outcome != "pays"
    assert any("which costs nothing and was not replayed" in one for one in verdict.conditions)
