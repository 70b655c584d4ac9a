"""The what-if formulas: the base is the audit, and what moves moves as the parts say."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import date

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvtrace.audit.money.bills import Bills
from kvtrace.audit.money.gpu_worth import gpu_worth
from kvtrace.audit.record import AuditRecord
from kvtrace.audit.what_if.bill import build_money
from kvtrace.audit.what_if.formulas import (
    curve_ratio,
    evaluate,
    extra_cost,
    hours_share,
    read_setting,
    work_gpu_s,
)
from kvtrace.audit.what_if.record import WhatIf, WhatIfModel, WhatIfMoney
from kvtrace.cost.fleet import Fleet
from kvtrace.cost.tco.build import build_bill
from kvtrace.cost.tco.need import Need, pool_of_fleet
from kvtrace.units import GB
from tests.unit.audit_fakes import make_fleet, make_input, make_result
from tests.what_if_cases import CURVE, POOL, what_if_record


@pytest.fixture(scope="module")
def record() -> AuditRecord:
    return what_if_record()


@pytest.fixture(scope="module")
def part(record: AuditRecord) -> WhatIf:
    assert record.what_if is not None
    return record.what_if


@pytest.fixture(scope="module")
def model(part: WhatIf) -> WhatIfModel:
    return part.model


def place_of(model: WhatIfModel, slider: str, value: float) -> dict[str, int]:
    one = next(one for one in model.sliders if one.id == slider)
    return {slider: next(i for i, v in enumerate(one.values) if math.isclose(v, value))}


def test_the_base_is_the_audit_in_hits_instances_and_money(
    record: AuditRecord, part: WhatIf
) -> None:
    base = part.base
    pool = next(one for one in record.options if one.id == POOL)
    assert base.hit_ratio == pool.hit_ratio_tokens
    assert base.rival_hit_ratio == pytest.approx(0.28)
    # 3 600 tokens x 0.04 s x 2 000 requests / 90 000 s / 0.7: 4.57 instances of freed prefill,
    # of which replays on seven instances show one.
    assert base.freed_instances == pytest.approx(3600 * 0.04 * 2000 / 90_000 / 0.7)
    assert base.whole_instances == 1
    assert record.economics is not None
    assert record.economics.case is not None
    assert base.saving_usd == pytest.approx(record.economics.case.saving.value)
    assert base.cost_usd == pytest.approx(record.economics.case.extra_cost.value)
    gpu = record.economics.case.gpu_usd_per_hour.value
    assert base.break_even_gpu_usd == pytest.approx(gpu)
    assert base.break_even_dram_usd == pytest.approx(record.economics.case.dram_usd_per_gb.value)


def test_links_of_the_base_are_those_of_the_ledger(record: AuditRecord, part: WhatIf) -> None:
    pool = next(one for one in record.options if one.id == POOL)
    assert [use.link_id for use in part.base.links] == [link.link_id for link in pool.links]
    for use, link in zip(part.base.links, pool.links, strict=True):
        assert use.utilisation == pytest.approx(link.utilisation)
        assert use.usable_bytes_per_s == link.usable_bytes_per_s
    # Each bucket's move is the replay's mean: 8 s of pull, 2 s of load.
    assert [move.move_s for move in part.base.moves] == pytest.approx([10.0])
    assert [move.recompute_s for move in part.base.moves] == pytest.approx([176.0])


def test_what_the_formulas_do_not_meet_is_told(part: WhatIf) -> None:
    checks = {one.id: one for one in part.checks}
    # The fake replay has a path of its own: the ledger's move of the median hit is another.
    assert checks["move"].here != pytest.approx(checks["move"].audit)
    assert checks["cost"].here == pytest.approx(checks["cost"].audit)
    assert checks["instances"].here == checks["instances"].audit == 1


def test_ports_twice_as_fast_halve_the_pull_and_leave_the_load(model: WhatIfModel) -> None:
    base = evaluate(model)
    fast = evaluate(model, place_of(model, "link_speed", 800e9))
    pool, own, pcie = 172593107383.4832, 4e10, 3e11
    assert base.path_bytes_per_s == pytest.approx(1 / (1 / own + 1 / pcie) / 8)
    assert fast.path_bytes_per_s == pytest.approx(1 / (1 / (2 * own) + 1 / pcie) / 8)
    # What is needed does not follow the link.
    assert fast.needed_bytes_per_s == base.needed_bytes_per_s
    rates = {use.link_id: use.usable_bytes_per_s for use in fast.links}
    assert rates["pool_nic_rdma"] == pytest.approx(2 * pool)
    assert rates["pcie"] == pcie
    assert base.break_even_tokens is not None
    assert fast.break_even_tokens is not None
    assert fast.break_even_tokens < base.break_even_tokens


def test_half_the_bytes_of_a_token_move_in_half_the_time(model: WhatIfModel) -> None:
    base = evaluate(model)
    narrow = evaluate(model, place_of(model, "kv_dtype", model.sliders[2].values[0] / 2))
    assert narrow.kv_bytes == (base.kv_bytes or 0) / 2
    assert narrow.needed_bytes_per_s == pytest.approx((base.needed_bytes_per_s or 0) / 2)
    assert narrow.recompute_s == base.recompute_s


def test_hits_of_a_smaller_pool_follow_the_curve(model: WhatIfModel) -> None:
    size = 4 * 2**40
    base = curve_ratio(model, size)
    # Between 4e12 (0.6) and 8e12 (0.7), straight in the logarithm.
    assert base == pytest.approx(0.6 + 0.1 * math.log2(size / 4e12))
    half = evaluate(model, place_of(model, "pool_size", size / 2))
    expected = 0.64 * curve_ratio(model, size / 2) / base
    assert half.hit_ratio == pytest.approx(expected)
    # One node of the two, with half of the ports.
    ports = next(use for use in half.links if use.link_id == "pool_nic_rdma")
    assert ports.usable_bytes_per_s == pytest.approx(172593107383.4832 / 2)
    # HBM serves 20 % whatever the pool: a tiny one adds nothing.
    tiny = evaluate(model, place_of(model, "pool_size", size / 256))
    assert tiny.hit_ratio == pytest.approx(0.2)


def test_the_curve_is_straight_below_and_level_above(model: WhatIfModel) -> None:
    assert curve_ratio(model, 5e10) == pytest.approx(CURVE[0][1] / 2)
    assert curve_ratio(model, 1e15) == CURVE[-1][1]


def test_four_times_the_load_is_four_times_the_work_on_a_fleet_of_32(model: WhatIfModel) -> None:
    no_curve = msgspec.structs.replace(model, curve_bytes=[], curve_ratio=[])
    base, more = evaluate(no_curve), evaluate(no_curve, place_of(model, "load", 4.0))
    assert more.freed_instances == pytest.approx(4 * (base.freed_instances or 0))
    assert more.whole_instances == 6  # 1.5 x 4
    uses = {use.link_id: use.utilisation for use in more.links}
    before = {use.link_id: use.utilisation for use in base.links}
    assert uses["pcie"] == pytest.approx(before["pcie"])  # on four times as many nodes
    assert uses["pool_nic_rdma"] == pytest.approx(4 * before["pool_nic_rdma"])


def test_a_full_link_has_no_move(model: WhatIfModel) -> None:
    links = [
        msgspec.structs.replace(link, bytes_read=link.bytes_read * 2e3) for link in model.links
    ]
    busy = evaluate(msgspec.structs.replace(model, links=links))
    assert max(use.utilisation for use in busy.links) > 1
    assert [move.move_s for move in busy.moves] == [None]


def test_the_parts_are_the_bill_at_other_sizes_prices_and_ports(model: WhatIfModel) -> None:
    """The page's cost is the bill that would be written for that pool, not an estimate."""
    fleet, money, stated = model.fleet, model.money, make_fleet()
    assert fleet is not None
    assert money is not None
    need = pool_of_fleet(stated)
    for parts, price, bits in ((0.5, 14.0, 400e9), (2.0, 28.0, 400e9), (1.0, 7.0, 800e9),
                               (4.0, 56.0, 100e9)):  # fmt: skip
        at = read_setting(model, place_of(model, "link_speed", bits))
        at = at._replace(pool_bytes=need.pool_dram_bytes * parts, dram_usd=price)
        whole = math.ceil(need.pool_nodes * parts)
        other = replace(
            need,
            pool_nodes=float(whole),
            pool_dram_bytes=need.pool_dram_bytes * parts,
            pool_ports=need.pool_ports / need.pool_nodes * whole,
            port_bytes_per_s=bits / 8,
        )
        dear = stated.prices["dram_usd_per_gb"].given(price, source="test")
        priced = replace(stated, prices=stated.prices.with_stated(dear))
        expected = build_bill(other, priced).usd_per_month.value
        assert extra_cost(money, fleet, at)[0] == pytest.approx(expected, rel=1e-9)


def parts_of(fleet: Fleet, need: Need, rival: Need | None = None) -> WhatIfMoney:
    bills = Bills(fleet, needs={"pool": need, "rival": rival or Need()})
    found = build_money(bills, gpu_worth(fleet), "pool", "rival")
    assert found is not None
    return found


def test_a_rented_pool_keeps_its_size_and_its_whole_bill() -> None:
    fleet = make_fleet()
    rented = replace(
        fleet, pool_purchase=fleet.pool_purchase.given("rented", kind="given", source="test")
    )
    parts = parts_of(rented, pool_of_fleet(rented))
    assert parts.node_bytes == 0
    whole = build_bill(pool_of_fleet(rented), rented).usd_per_month.value
    assert parts.pool_usd == pytest.approx(whole)
    assert whole > 0


def test_a_rival_that_buys_dram_follows_its_price() -> None:
    fleet = make_fleet()
    rival = Need(gpu_node_dram_bytes=1000 * GB)
    parts = parts_of(fleet, pool_of_fleet(fleet), rival)
    at_14 = build_bill(rival, fleet).usd_per_month.value
    assert parts.rival_usd + 14.0 * parts.rival_usd_per_dram_usd == pytest.approx(at_14)
    assert parts.rival_usd_per_dram_usd > 0


def test_gpus_that_are_paid_anyway_are_worth_nothing() -> None:
    fleet = make_fleet()
    kind = fleet.contract.kind.given("reserved", kind="given", source="test")
    reserved = replace(fleet, contract=replace(fleet.contract, kind=kind, until=date(2030, 1, 1)))
    part = what_if_record(fleet=reserved).what_if
    assert part is not None
    assert part.base.saving_usd in (0.0, None)
    slider = next(one for one in part.model.sliders if one.id == "gpu_price")
    assert slider.fixed_reason == "no_worth"


def test_without_a_pool_only_the_move_can_be_changed() -> None:
    replays = (make_result("hbm_only", title="HBM only", hits={"hbm": 2000}),)
    part = what_if_record(replays=replays, fewer=(), ends=(), options=()).what_if
    assert part is not None
    fixed = {one.id: one.fixed_reason for one in part.model.sliders}
    assert fixed == {
        "link_speed": None,
        "pool_size": "no_pool",
        "kv_dtype": None,
        "load": "no_pool",
        "gpu_price": "no_money",
        "dram_price": "no_money",
    }
    assert part.base.needed_bytes_per_s is not None
    assert part.base.net_usd is None
    assert part.base.hit_ratio is None
    # The plain path is the ledger's own: the page meets it.
    checks = {one.id: one for one in part.checks}
    assert checks["needed"].here == pytest.approx(checks["needed"].audit)
    assert checks["move"].here == pytest.approx(checks["move"].audit)
    here, audit = checks["tokens"].here, checks["tokens"].audit
    assert here is not None
    assert here == pytest.approx(audit, rel=0.02, abs=1)


def test_a_short_log_has_hits_and_no_money() -> None:
    part = what_if_record(span_s=600.0).what_if
    assert part is not None
    assert part.model.money is None
    assert part.base.freed_instances is not None
    assert part.base.cost_usd is None
    reasons = {one.id: one.fixed_reason for one in part.model.sliders}
    assert reasons["pool_size"] == reasons["dram_price"] == "no_money"


def test_without_a_curve_hits_stay_as_replayed() -> None:
    queries = make_input().queries
    part = what_if_record(queries={k: v for k, v in queries.items() if "curve" not in k}).what_if
    assert part is not None
    size = next(one for one in part.model.sliders if one.id == "pool_size")
    assert size.fixed_reason == "no_curve"
    loaded = evaluate(part.model, place_of(part.model, "load", 4.0))
    assert loaded.hit_ratio == part.base.hit_ratio


def test_sliders_rise_and_hold_the_base_exactly(record: AuditRecord, model: WhatIfModel) -> None:
    for slider in model.sliders:
        assert 0 <= slider.base < len(slider.values)
        rising = sorted(slider.values, reverse=slider.id == "kv_dtype")
        assert slider.values == rising
        assert len(set(slider.values)) == len(slider.values)
    gpu = next(one for one in model.sliders if one.id == "gpu_price")
    assert gpu.values[gpu.base] == 3.0
    dtype = next(one for one in model.sliders if one.id == "kv_dtype")
    assert dtype.names[dtype.base] == record.kv.kv_dtype


def test_work_is_straight_between_replays_and_never_below_nothing(model: WhatIfModel) -> None:
    fleet = model.fleet
    assert fleet is not None
    a, b = fleet.work_hit_tokens[-2:]
    u, v = fleet.work_gpu_s[-2:]
    assert work_gpu_s(fleet, (a + b) / 2) == pytest.approx((u + v) / 2)
    assert work_gpu_s(fleet, 1e12) == 0.0


def test_hours_off_the_peak_give_less_back() -> None:
    # Of 4 instances 2 serve the other hour, and one less at the peak still takes 2 there.
    assert hours_share([1.0, 0.5], 1.0, 4) == 0.5
    assert hours_share([], 1.0, 4) == 1.0


positions = st.integers(0, 100)


@given(st.lists(positions, min_size=6, max_size=6))
@settings(max_examples=60, deadline=None)
def test_laws_of_the_sliders(model: WhatIfModel, drawn: list[int]) -> None:
    at = {
        slider.id: place % len(slider.values)
        for slider, place in zip(model.sliders, drawn, strict=True)
    }
    here = evaluate(model, at)

    def next_of(ident: str) -> dict[str, int]:
        slider = next(one for one in model.sliders if one.id == ident)
        return {**at, ident: min(at[ident] + 1, len(slider.values) - 1)}

    faster = evaluate(model, next_of("link_speed"))
    assert (faster.move_s or 0) <= (here.move_s or 0)
    larger = evaluate(model, next_of("pool_size"))
    assert (larger.hit_ratio or 0) >= (here.hit_ratio or 0)
    dearer = evaluate(model, next_of("dram_price"))
    assert (dearer.cost_usd or 0) >= (here.cost_usd or 0)
    gpus = evaluate(model, next_of("gpu_price"))
    assert (gpus.saving_usd or 0) >= (here.saving_usd or 0)
