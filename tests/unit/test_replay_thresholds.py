"""Thresholds of loads at numbers worked out by hand, and the presets of engines."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

from kvtrace.errors import UsageError
from kvtrace.replay.engine import simulate
from kvtrace.replay.engines import ENGINES, EnginePreset, find_engine, with_engine
from kvtrace.replay.scenario import Scenario, TierSpec
from kvtrace.replay.thresholds import (
    ENGINE_SETTINGS,
    advice,
    best_threshold,
    break_even_load,
    replayed_thresholds,
    setting_values,
)
from kvtrace.replay.topology import check_scenario
from tests.unit.replay_cases import Ask, dram_tier, links, make_scenario, make_trace, pool_tier

# A token takes 0.01 s to compute; to load 2/400 + 2/1000 = 0.007 s, 0.3005 s before.
SCENARIO = make_scenario(
    tiers=(pool_tier(lookup_s=0.1005, pull_latency_s=0.2),),
    links=links(pcie=1000.0, nic=400.0, pool=400.0),
)


def test_a_load_breaks_even_where_what_it_spares_exceeds_what_it_costs() -> None:
    # 0.003 s gained a token against 0.3005 s: 100 tokens gain 0.3 s, 101 are enough
    assert break_even_load(SCENARIO, SCENARIO.tiers[0], prompt_tokens=500) == 101
    assert break_even_load(SCENARIO, SCENARIO.tiers[0], prompt_tokens=102) == 101
    assert break_even_load(SCENARIO, SCENARIO.tiers[0], prompt_tokens=101) is None
    assert break_even_load(SCENARIO, SCENARIO.tiers[0], prompt_tokens=1) is None


def test_a_link_that_moves_nothing_never_pays() -> None:
    still = replace(SCENARIO, links=links(pcie=1000.0, nic=0.0, pool=400.0))
    assert break_even_load(still, still.tiers[0], prompt_tokens=500) is None


def test_overlaps_move_the_break_even() -> None:
    # Pipelined in chunks of 10 (20 B): 0.005 s a token, and 0.02 s for the first chunk over PCIe:
    # 0.005 n > 0.3005 + 0.02, so 65.
    piped = replace(SCENARIO, overlap="pipelined", load_chunk_tokens=10)
    assert break_even_load(piped, piped.tiers[0], prompt_tokens=500) == 65
    # Two layers, 1 000 tokens: (move + rest + max) / 2 + 0.1005 with move 0.2 + 0.007 n below rest
    # 10 - 0.01 n: 0.1005 + 0.1 + 10 + 0.0035 n - 0.01 n < 10, from 0.0065 n > 0.2005: 31.
    layered = replace(SCENARIO, overlap="layerwise", layers=2)
    assert break_even_load(layered, layered.tiers[0], prompt_tokens=1000) == 31


def test_one_threshold_for_all_lengths_is_the_largest() -> None:
    assert advice(SCENARIO, (150, 500)) == {"pool": 101}
    assert advice(SCENARIO, (50, 500)) == {"pool": None}


@pytest.mark.parametrize(
    ("tokens", "gained_s", "expected"),
    [
        ([10, 20, 30], [-5.0, 2.0, 3.0], 20),
        ([10, 20, 30], [-1.0, -1.0, 3.0], 30),
        ([10, 20, 30], [1.0, -1.0, 3.0], 10),
        ([10, 20, 20], [0.0, -4.0, 5.0], 10),
        ([10, 20], [-1.0, -1.0], None),
        ([], [], None),
    ],
)
def test_the_best_threshold_keeps_the_loads_that_together_gain_most(
    tokens: list[int], gained_s: list[float], expected: int | None
) -> None:
    assert best_threshold(np.array(tokens, dtype=np.int64), np.array(gained_s)) == expected


def test_a_replay_tells_its_threshold() -> None:
    # Two hits from the pool on the other instance: 10 tokens lose (0.3705 s for 0.1 s), 300 gain
    # (2.4005 s for 3 s).
    long = [f"a{index}" for index in range(30)]
    trace = make_trace(
        [
            Ask(0.0, ["s"]),
            Ask(100.0, ["s", "x"]),
            Ask(200.0, long),
            Ask(300.0, [*long, "y"]),
        ]
    )
    result = simulate(trace, replace(SCENARIO, instances=2, routing="round_robin"))
    (found,) = replayed_thresholds(result)
    assert (found.tier_id, found.loads, found.tokens, found.kept_loads) == ("pool", 2, 300, 1)
    assert found.gained_s == pytest.approx(3.0 - 2.4005)
    assert found.gained_without_s == pytest.approx(3.0 - 2.4005 + 0.1 - 0.3705)


def test_a_break_even_is_given_as_the_setting_of_each_engine() -> None:
    values = {setting.setting: value for setting, value in setting_values(101)}
    assert values["min_retrieve_tokens"] == 101
    assert len(values) == len(ENGINE_SETTINGS) == 5


def chain() -> Scenario:
    disk = replace(dram_tier(), tier_id="local_nvme")
    return make_scenario(
        hbm_capacity_bytes=1000.0,
        tiers=(dram_tier(), disk, pool_tier()),
        links=links(pcie=1000.0, nic=400.0, pool=400.0),
    )


@pytest.mark.parametrize("preset", ENGINES, ids=lambda preset: preset.engine_id)
def test_each_engine_can_be_replayed(preset: EnginePreset) -> None:
    scenario = with_engine(chain(), preset, layers=4)
    check_scenario(scenario)
    asks = [Ask(9.0 * i, [(i // 2 % 7, j) for j in range(40)], output=3) for i in range(40)]
    trace = make_trace(asks)
    timeline = simulate(trace, scenario).timeline
    hits = sum(timeline.hit_tokens.values(), start=np.zeros(40, dtype=np.int64))
    assert (hits + timeline.computed_tokens == trace.prompt_tokens).all()
    assert hits.sum() > 0
    assert preset.version
    assert preset.source


def test_presets_change_decisions_and_no_quantity() -> None:
    kept = {"tier_id", "scope", "capacity_bytes", "lookup_s", "read", "write"}
    names = {one.name for one in fields(TierSpec)}
    for preset in ENGINES:
        for changes in (preset.host, preset.disk, preset.store):
            assert set(changes) <= names - kept
        assert "links" not in preset.scenario


def test_the_tiers_of_a_chain_take_their_parts() -> None:
    scenario = with_engine(chain(), find_engine("Dynamo KVBM"))
    assert [tier.admission_uses for tier in scenario.tiers] == [1, 2, 1]
    assert with_engine(chain(), find_engine("sglang-hicache"), layers=80).layers == 80
    with pytest.raises(UsageError, match="vlm"):
        find_engine("vlm")
