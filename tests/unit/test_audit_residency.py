"""How soon a block must be reused to be worth its GB, worked out by hand; and its laws."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvtrace.audit.sizing.residency import Rule, break_even_s, residency_rules
from kvtrace.audit.sizing.tiers import tier_prices
from kvtrace.audit.sizing.worth import ReuseValue
from kvtrace.audit.uncertainty.ranges import Range
from kvtrace.cost.fleet import Fleet
from tests.unit.audit_fakes import make_deployment, make_fleet

WORTH = ReuseValue(Range.exact(1e-3), Range(1e-6, 2e-6, 4e-6), 1)
TOKEN_BYTES = 200_000.0


def rules_of(fleet: Fleet, worth: ReuseValue | None = WORTH) -> dict[str, Rule]:
    rules = residency_rules(tier_prices(make_deployment(), fleet), worth, TOKEN_BYTES)
    return {rule.price.tier: rule for rule in rules}


def with_price(fleet: Fleet, name: str, value: float) -> Fleet:
    stated = fleet.prices[name].given(value, source="test")
    return replace(fleet, prices=fleet.prices.with_stated(stated))


def test_a_hit_of_a_cent_pays_an_hour_of_memory_that_costs_a_cent_an_hour() -> None:
    found = break_even_s(Range(0.005, 0.01, 0.02), Range(0.01, 0.01, 0.04).scaled(1 / 3600))
    assert found.value == pytest.approx(3600.0)
    # Cheapest hit over dearest memory; dearest hit over cheapest memory.
    assert found.low == pytest.approx(3600.0 * 0.5 / 4)
    assert found.high == pytest.approx(3600.0 * 2)


def test_bought_dram_by_hand() -> None:
    # $12 a GB over 48 months and 0.5 W at $0.10 a kWh for 730 h: $0.2865 a GB-month, without
    # interest and cooling. A hit on a GB (5 000 tokens at $2e-6) is worth one cent: 0.01 / 0.2865
    # months of 2 628 000 s.
    fleet = make_fleet()
    for name, value in (
        ("dram_usd_per_gb", 12.0),
        ("amortisation_months", 48.0),
        ("dram_watts_per_gb", 0.5),
        ("meter_usd_per_kwh", 0.1),
        ("cooling_factor", 1.0),
        ("financing_rate_per_year", 0.0),
    ):
        fleet = with_price(fleet, name, value)
    rule = rules_of(fleet)["dram_bought"]
    assert rule.price.usd_per_gb_month is not None
    assert rule.price.usd_per_gb_month.value == pytest.approx(0.2865)
    assert rule.residency_s is not None
    assert rule.residency_s.value == pytest.approx(0.01 / 0.2865 * 2_628_000)


def test_hbm_costs_all_of_its_gpu() -> None:
    # $3.00 an hour over the GB of one GPU: a cent pays 12 s of a GB times its GB.
    rule = rules_of(make_fleet())["hbm"]
    gb = make_deployment().hardware.gpu.hbm_bytes.value / 1e9
    assert rule.residency_s is not None
    assert rule.residency_s.value == pytest.approx(12.0 * gb)


def test_idle_dram_keeps_without_end_and_costs_nothing() -> None:
    rule = rules_of(make_fleet())["dram_idle"]
    assert rule.price.is_free
    assert rule.residency_s is None
    assert rule.until_s == math.inf


def test_without_the_worth_of_a_token_no_rule_is_known() -> None:
    rules = rules_of(make_fleet(), None)
    assert rules["dram_bought"].until_s is None
    assert rules["dram_idle"].until_s == math.inf


def test_nearer_tiers_are_dearer_and_keep_for_less_time() -> None:
    rules = rules_of(make_fleet())
    order = [rules[tier].until_s for tier in ("hbm", "pool_dram", "dram_bought", "nvme")]
    assert all(until is not None for until in order)
    assert order == sorted(order, key=lambda until: until or 0.0)


@given(st.floats(1.0, 100.0), st.floats(1.01, 10.0))
def test_dearer_dram_shortens_residency(usd_per_gb: float, factor: float) -> None:
    cheap = rules_of(with_price(make_fleet(), "dram_usd_per_gb", usd_per_gb))
    dear = rules_of(with_price(make_fleet(), "dram_usd_per_gb", usd_per_gb * factor))
    for tier in ("dram_bought", "pool_dram"):
        before, after = cheap[tier].until_s, dear[tier].until_s
        assert before is not None
        assert after is not None
        assert after < before


@given(st.floats(1e-9, 1e-3), st.floats(0.1, 10.0))
def test_the_rent_up_to_the_break_even_is_what_the_hit_is_worth(worth: float, rent: float) -> None:
    until = break_even_s(Range.exact(worth), Range.exact(rent))
    assert until.value * rent == pytest.approx(worth)


def test_flash_of_a_pool_bears_its_nodes_and_ports_too() -> None:
    # Dearer than bare drives, cheaper than the same nodes full of DRAM.
    rules = rules_of(make_fleet())
    pooled, local = rules["pool_ssd"].price, rules["nvme"].price
    assert pooled.usd_per_gb_month is not None
    assert local.usd_per_gb_month is not None
    assert pooled.usd_per_gb_month.value > local.usd_per_gb_month.value
    pool = rules["pool_dram"].price.usd_per_gb_month
    assert pool is not None
    assert pooled.usd_per_gb_month.value < pool.value
