"""One rival of a pool: the verdict, its numbers, the money and the uncertainty are net of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvtrace.audit.build import build_audit
from kvtrace.audit.record import AuditRecord, CurvePoint
from kvtrace.audit.uncertainty.ranges import Range
from kvtrace.audit.verdict.cases import Rival
from kvtrace.audit.verdict.rivals import size_sentence
from kvtrace.audit.verdict.rules import decide
from kvtrace.cost.tco.need import Need
from kvtrace.replay.options.option import ReplayOption
from kvtrace.replay.result import ReplayResult
from kvtrace.replay.scenario import TierSpec
from tests.unit.audit_fakes import (
    REQUESTS,
    make_input,
    make_result,
    make_scenario,
    standard_fewer,
    standard_replays,
)
from tests.unit.test_audit_verdict import PAYS, pool


def bought_result(*, queue_s: float = 0.0, instances: int = 8) -> ReplayResult:
    return make_result(
        "dram_bought",
        title="Bought host DRAM",
        hits={"hbm": 2000, "host_dram": 4000},
        load_s=1.0,
        queue_s=queue_s,
        instances=instances,
    )


def audit_beside_bought_dram() -> AuditRecord:
    """10 GB of DRAM holds 6 000 tokens a request and does on seven what the pool does."""
    bought = ReplayOption(
        scenario=make_scenario("dram_bought", "Bought host DRAM"),
        family="local",
        need=Need(gpu_node_dram_bytes=1e10),
    )
    replays = (*standard_replays(), bought_result())
    fewer = (
        *standard_fewer(),
        bought_result(queue_s=80.0, instances=7),
    )
    return build_audit(make_input(replays=replays, fewer=fewer, options=(bought,)))


def test_verdict_money_and_uncertainty_weigh_the_same_rival() -> None:
    found = audit_beside_bought_dram()
    numbers = {one.id: one for one in found.verdict.carrying_numbers}
    beyond = numbers["reusable_tokens_beyond_local"]
    assert beyond.value == 400 * REQUESTS  # 6 400 a request beyond 6 000
    assert beyond.title.startswith("tokens that a pool adds beyond Bought host DRAM")
    assert found.verdict.rival == "Bought host DRAM"
    money = found.economics
    assert money is not None
    assert money.case is not None
    assert (money.case.rival, money.case.rival_title) == ("dram_bought", "Bought host DRAM")
    assert found.uncertainty is not None
    assert found.uncertainty.rival == "Bought host DRAM"
    net = numbers["value_minus_cost_usd_per_month"].value
    assert found.uncertainty.net_middle == pytest.approx(net)
    saving, extra = money.case.saving.value, money.case.extra_cost.value
    assert isinstance(saving, float)
    assert isinstance(extra, float)
    assert saving == 0.0  # on seven instances both keep the SLO
    assert net == pytest.approx(saving - extra)


def test_sentences_name_the_rival_that_the_hits_are_beyond() -> None:
    # 400 000 of 100 million tokens beyond a GPU that serves 20 million of 60 million reusable ones.
    gpu = Rival(
        option_id="bigger_gpu", title="Bigger GPU", hit_tokens=20_000_000, cost=Range.exact(1e5)
    )
    few = pool(extra_hit_tokens=400_000, rival=gpu)
    case = replace(PAYS, rival_title="HBM only", rival_hit_tokens=1, pools=few, is_pool_small=False)
    found = decide(case, [])
    said = " ".join((found.headline, *found.reasons, *found.conditions))
    assert found.headline == (
        "A pool pays only if it serves more: this one adds no hits to those of Bigger GPU"
    )
    assert "HBM only" not in said
    assert "Bigger GPU (modelled) serves 20,000,000 of 60,000,000 reusable tokens, 33.3 %" in said


@pytest.mark.parametrize(("held", "is_small"), [(8.3e11, True), (8.4e11, False)])
def test_a_pool_is_too_small_only_if_what_it_takes_is_larger(held: float, is_small: bool) -> None:
    # 16 tokens of 1 MB a block: the rival's 8 x 100 GB are 50 000 blocks; two points more take
    # 2 000 of the 10 000 up to the next point: 832 GB.
    curve = [
        CurvePoint(
            capacity_blocks=blocks,
            capacity_bytes=None,
            hit_ratio_blocks=None,
            hit_ratio_tokens=ratio,
        )
        for blocks, ratio in ((50_000, 0.3), (60_000, 0.4))
    ]
    tier = TierSpec("pool_dram", "shared", held, 0.0, (), ())
    small, said = size_sentence(
        make_scenario("pool_dram_tcp", "Pool", tier=tier),
        make_scenario("hbm_only", "HBM only"),
        curve,
        block_tokens=16,
        bytes_per_token=1e6,
    )
    assert small is is_small
    assert ("is too small" in said) is is_small
    assert "the smallest pool that adds hits has 774.9 GiB" in said  # 832e9 / 2**30
