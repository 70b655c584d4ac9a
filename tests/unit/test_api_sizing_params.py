"""What the queries over sizes and scopes are given: prices, rules."""

from __future__ import annotations

import math

from kvtrace.api.sized import sized_params
from kvtrace.api.sizing_params import sizing_params
from kvtrace.audit.build import build_audit
from kvtrace.audit.sizing.worth import ReuseValue
from kvtrace.audit.uncertainty.ranges import Range
from tests.unit.audit_fakes import make_deployment, make_fleet, make_input

WORTH = ReuseValue(Range.exact(1e-3), Range(1e-6, 2e-6, 4e-6), 1)
SIZES = {"hbm_bytes": 3e12, "dram_bytes": 2e12, "pool_bytes": 4e12}


def test_the_larger_of_hbm_and_idle_dram_is_held_above_the_pool() -> None:
    # 73 000 s fit 36 times into 730 h.
    found = sizing_params(make_deployment(), make_fleet(), WORTH, 73_000.0, SIZES)
    assert found["held_bytes"] == 3e12
    assert found["classes_bytes"] == [3e12, 2e12, 4e12, None]
    assert found["windows_per_month"] == 36.0
    assert found["usd_per_reused_token"] == 2e-6
    tiers, until = found["tiers"], found["tiers_until_s"]
    assert isinstance(tiers, list)
    assert isinstance(until, list)
    assert until[tiers.index("dram_idle")] == math.inf
    classes = found["classes_until_s"]
    assert isinstance(classes, list)
    assert classes[2] == until[tiers.index("pool_dram")]


def test_what_nobody_knows_is_null() -> None:
    found = sizing_params(make_deployment(), make_fleet(), None, 60.0, {})
    assert found["usd_per_reused_token"] is None
    assert found["windows_per_month"] is None
    assert found["held_bytes"] == 0.0


def test_an_audit_gives_the_same_parameters_again() -> None:
    fresh = sizing_params(make_deployment(), make_fleet(), WORTH, 90_000.0, SIZES)
    again = sized_params(build_audit(make_input(reuse_value=WORTH)))
    names = ("usd_per_reused_token", "windows_per_month", "media", "media_usd_per_gb_month")
    for name in (*names, "tiers", "tiers_until_s", "link_limit"):
        assert again[name] == fresh[name], name


def test_an_audit_without_sizes_gives_none() -> None:
    record = build_audit(make_input())
    record.sizing = None
    assert sized_params(record) == {}
