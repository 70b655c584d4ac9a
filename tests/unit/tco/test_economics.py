"""Payback, net present value, prices at break-even, and what tokens cost."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvtrace.audit.build import build_audit
from kvtrace.audit.money.bills import Bills
from kvtrace.audit.money.gpu_worth import gpu_worth
from kvtrace.audit.money.payback import Flow, npv_usd, payback_months
from kvtrace.audit.money.pool_over_rival import Pair, pool_over_rival
from kvtrace.audit.money.token_prices import token_prices
from kvtrace.audit.record import AuditRecord
from kvtrace.audit.uncertainty.ranges import Range
from kvtrace.cost.fleet import Fleet
from kvtrace.cost.tco.need import Need
from tests.unit.audit_fakes import make_fleet, make_input

NEED = Need(pool_nodes=2, pool_dram_bytes=4000e9)


def pair(fleet: Fleet, *, saving: float = 5_000.0, today: date | None = None) -> Pair:
    return Pair(
        option="pool_dram_tcp",
        title="the pool",
        rival="hbm_only",
        rival_title="HBM only",
        saving=Range.exact(saving),
        instances=Range.exact(1.0),
        bills=Bills(fleet, needs={"pool_dram_tcp": NEED}),
        worth=gpu_worth(fleet, today=today),
        today=today,
    )


def reserved(until: date) -> Fleet:
    fleet = make_fleet()
    kind = fleet.contract.kind.given("reserved", kind="given", source="fleet.toml")
    return replace(fleet, contract=replace(fleet.contract, kind=kind, until=until))


def test_payback_is_purchase_over_what_is_left_of_savings() -> None:
    flow = Flow(capex_usd=12_000, opex_usd_per_month=500, saving_usd_per_month=2_000)
    assert payback_months(flow) == 8  # 12 000 / 1 500
    # Three months of running cost without savings come on top: 3 + (12 000 + 1 500) / 1 500.
    assert payback_months(replace(flow, first_month=3)) == 12
    assert payback_months(replace(flow, saving_usd_per_month=500)) is None
    # A rival on other GPUs that gives today's up once their contract ends: 1 500 $ less to beat.
    ended = replace(flow, first_month=3, later_opex_usd_per_month=2_000)
    assert payback_months(ended) is None
    assert payback_months(replace(ended, saving_usd_per_month=3_000)) == 3 + 13_500 / 1_000
    assert payback_months(replace(flow, first_month=math.inf)) is None


def test_net_present_value_by_hand() -> None:
    # 12 % a year is 1 % a month: -1 000 + 600 / 1.01 + 600 / 1.0201.
    flow = Flow(capex_usd=1_000, opex_usd_per_month=100, saving_usd_per_month=700)
    assert npv_usd(flow, months=2, rate_per_year=0.12) == pytest.approx(182.2370, abs=1e-3)
    assert npv_usd(flow, months=2, rate_per_year=0.0) == pytest.approx(200)
    # Savings begin after the first month: -1 000 - 100 + 600.
    late = replace(flow, first_month=1)
    assert npv_usd(late, months=2, rate_per_year=0.0) == pytest.approx(-500)
    dearer = replace(late, later_opex_usd_per_month=400)
    assert npv_usd(dearer, months=2, rate_per_year=0.0) == pytest.approx(-800)


@given(
    st.floats(0, 1e6), st.floats(0, 1e5), st.floats(0, 1e5), st.floats(0, 100), st.floats(0, 0.5)
)
def test_more_saving_never_makes_it_worth_less(
    capex: float, opex: float, saving: float, wait: float, rate: float
) -> None:
    flow = Flow(
        capex_usd=capex, opex_usd_per_month=opex, saving_usd_per_month=saving, first_month=wait
    )
    more = replace(flow, saving_usd_per_month=saving + 1)
    assert npv_usd(more, months=48, rate_per_year=rate) >= npv_usd(
        flow, months=48, rate_per_year=rate
    )


def test_prices_at_break_even_by_hand() -> None:
    fleet = make_fleet()  # a GPU-hour at 3.0
    found = pool_over_rival(pair(fleet))
    assert found is not None
    cost = found.extra_cost.value
    assert isinstance(cost, float)
    # 5 000 saved at 3.0 a GPU-hour: the price at which it is as much as the cost.
    assert found.gpu_usd_per_hour.value == pytest.approx(3.0 * cost / 5_000)
    # 4 000 GB over 48 months with interest: what a dollar of the price costs a month.
    per_dollar = 4_000 * (1 / 48 + 0.003579588)
    without = cost - 14 * per_dollar
    assert found.dram_usd_per_gb.value == pytest.approx((5_000 - without) / per_dollar, rel=1e-5)
    # 76 000 bought; power is all that runs (operations and support are of operated pools).
    running = (2 * 500 + 4_000 * 0.35) / 1_000 * 730 * 1.58 * 0.0633
    assert found.payback.value == pytest.approx(76_000 / (5_000 - running))


def test_at_the_price_of_break_even_the_pool_costs_what_it_saves() -> None:
    fleet = make_fleet()
    found = pool_over_rival(pair(fleet))
    assert found is not None
    at = found.dram_usd_per_gb.value
    assert isinstance(at, float)
    price = fleet.prices["dram_usd_per_gb"].given(at, source="t")
    again = pool_over_rival(pair(replace(fleet, prices=fleet.prices.with_stated(price))))
    assert again is not None
    assert again.extra_cost.value == pytest.approx(5_000)


def test_nothing_saved_has_no_price_at_which_it_pays() -> None:
    found = pool_over_rival(pair(make_fleet(), saving=0.0))
    assert found is not None
    assert found.gpu_usd_per_hour.value is None
    assert "no instance is given back" in found.gpu_usd_per_hour.interval_reason
    assert found.payback.value is None
    assert "even with free DRAM" in found.dram_usd_per_gb.interval_reason
    assert isinstance(found.npv.value, float)
    assert found.npv.value < -76_000


def test_reserved_gpus_pay_back_from_their_last_day_on() -> None:
    # 2027-06-30 is 365 days, 12 months, after 2026-06-30; until then only power is paid.
    fleet = reserved(date(2027, 6, 30))
    found = pool_over_rival(pair(fleet, saving=0.0, today=date(2026, 6, 30)))
    assert found is not None
    running = (2 * 500 + 4_000 * 0.35) / 1_000 * 730 * 1.58 * 0.0633
    later = 17_520 - running  # an instance of 8 GPUs for all hours
    assert found.saving.value == 0.0
    assert found.payback.value == pytest.approx(12 + (76_000 + 12 * running) / later)
    undated = pool_over_rival(pair(fleet, saving=0.0))
    assert undated is not None
    assert undated.payback.value is None
    assert "reserved until 2027-06-30" in undated.payback.interval_reason


def test_without_a_purchase_there_is_nothing_to_pay_back() -> None:
    rented = pair(make_fleet())
    needs = {"pool_dram_tcp": Need(managed_cache_bytes=100e9)}  # 730 x 6.98 = 5 095 a month
    free = replace(rented, saving=Range.exact(6_000.0), bills=Bills(make_fleet(), needs=needs))
    found = pool_over_rival(free)
    assert found is not None
    assert found.payback.value is None
    assert found.payback.interval_reason.startswith("nothing is bought")


def test_tokens_of_another_gpu_are_computed_at_its_price(record: AuditRecord) -> None:
    fleet, window = make_fleet(), record.replay_window  # H100 at its list price of 3.0
    assert window is not None
    option = next(o for o in record.options if o.id == "hbm_only")
    bills = Bills(fleet, needs={"hbm_only": Need(gpu="H200-SXM")})
    (row,) = token_prices([option], bills, window, windows_per_day=1.0)
    computed = window.prompt_tokens - sum(option.hit_tokens_by_tier.values())
    price = bills.gpu_price("hbm_only").value
    assert price == pytest.approx(4.0)
    assert row.uncached.value == pytest.approx(
        option.gpu_seconds_prefill * 4.0 / 3_600 / 0.7 / computed * 1e6
    )
    # Nothing but GPUs is paid: a token costs its prefill, one from the cache nothing.
    assert isinstance(row.uncached.value, float)
    assert row.mean.value == pytest.approx(row.uncached.value * computed / window.prompt_tokens)


@pytest.fixture(scope="module")
def record() -> AuditRecord:
    return build_audit(make_input())


def test_the_lines_of_every_bill_add_up(record: AuditRecord) -> None:
    economics = record.economics
    assert economics is not None
    assert [bill.option for bill in economics.bills] == [option.id for option in record.options]
    for bill, option in zip(economics.bills, record.options, strict=True):
        parts = [item.capex_usd_per_month + item.opex_usd_per_month for item in bill.items]
        assert math.fsum(parts) == pytest.approx(bill.total.value)
        assert bill.total.value == option.usd_per_month
        for item in bill.items:
            assert item.price.source
            assert item.price.unit


def test_the_pool_of_the_verdict_is_weighed(record: AuditRecord) -> None:
    economics = record.economics
    assert economics is not None
    assert economics.case is not None
    assert economics.case.option == record.verdict.option
    carried = next(q for q in record.verdict.carrying_numbers if q.id.startswith("value_minus"))
    saving, cost = economics.case.saving.value, economics.case.extra_cost.value
    assert isinstance(saving, float)
    assert isinstance(cost, float)
    assert saving - cost == pytest.approx(carried.value)


def test_tokens_of_a_cache_cost_the_option_over_its_hits(record: AuditRecord) -> None:
    economics, window = record.economics, record.replay_window
    assert economics is not None
    assert window is not None
    option = next(o for o in record.options if o.id == "pool_dram_rdma_direct")
    row = next(t for t in economics.tokens if t.option == option.id)
    hits = sum(option.hit_tokens_by_tier.values())
    assert record.data.prompt_tokens is not None
    assert record.data.span_s is not None
    # The log's prompts over the window's, over its days, times 365 / 12 days.
    loads = record.data.prompt_tokens / window.prompt_tokens / (record.data.span_s / 86_400)
    assert option.usd_per_month is not None
    assert row.cached.value == pytest.approx(option.usd_per_month / (hits * loads * 365 / 12) * 1e6)
    # GPU-seconds at 3.0 an hour, of which the fleet is busy for 0.7.
    assert row.uncached.value == pytest.approx(
        option.gpu_seconds_prefill * 3.0 / 3_600 / 0.7 / (window.prompt_tokens - hits) * 1e6
    )
    assert {price.as_of for price in economics.api_prices} == {"2024-08", "2025-02", "2026-06-17"}
