"""Bills by hand, and what holds for every bill."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import date
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvtrace.cost.deployment import build_deployment
from kvtrace.cost.fleet import Fleet, default_fleet, load_fleet
from kvtrace.cost.interval import Interval
from kvtrace.cost.tco.bill import Bill
from kvtrace.cost.tco.build import build_bill
from kvtrace.cost.tco.need import Need
from kvtrace.cost.tco.traffic import Traffic
from kvtrace.units import MIB

FLEET = default_fleet(build_deployment("Meta-Llama-3.1-70B", "H100-SXM5", tp=8), 4)
POOL = Need(pool_nodes=2, pool_dram_bytes=4000e9, pool_ports=4, is_operated=True)
TB = 1e12


def stated(fleet: Fleet, **prices: float) -> Fleet:
    for name, value in prices.items():
        constant = fleet.prices[name].given(value, source="test")
        fleet = replace(fleet, prices=fleet.prices.with_stated(constant))
    return fleet


def cost(bill: Bill, line: str) -> Interval:
    return next(one for one in bill.lines if one.id == line).usd_per_month


def test_a_pool_of_two_dram_nodes_by_hand() -> None:
    bill = build_bill(POOL, FLEET)
    # 2 nodes x 10 000; 4 000 GB x 14; 4 ports x (1 900 NIC + 650 switch + 2 x 700 optics).
    bought = 20_000 + 56_000 + 4 * (1_900 + 650 + 1_400)
    assert bill.capex_usd.value == pytest.approx(bought)  # 91 800
    assert cost(bill, "pool_nodes").value == pytest.approx(20_000 / 48)
    assert cost(bill, "pool_dram").value == pytest.approx(56_000 / 48)
    assert cost(bill, "pool_optics").value == pytest.approx(4 * 2 * 700 / 48)
    # Low: cheapest over 60 months; high: dearest over 36.
    assert cost(bill, "pool_dram").low == pytest.approx(4_000 * 12.8 / 60)
    assert cost(bill, "pool_dram").high == pytest.approx(4_000 * 16.5 / 36)
    # (2 x 500 W + 4 000 GB x 0.35 W) x 730 h x cooling 1.58 = 2.4 kW x 730 x 1.58 = 2 768.16 kWh.
    assert bill.kwh_per_month.value == pytest.approx(2.4 * 730 * 1.58)
    assert cost(bill, "power").value == pytest.approx(2_768.16 * 0.0633)
    assert bill.kg_co2_per_month.value == pytest.approx(2_768.16 * 0.481)
    assert cost(bill, "operations").value == pytest.approx(0.1 * 240_000 / 12)
    assert cost(bill, "support").value == pytest.approx(0.05 * 91_800 / 12)
    # Annuity at 8 % over 48 months: r = 0.08 / 12; r / (1 - (1 + r)^-48) = 0.0244129; less 1 / 48.
    assert cost(bill, "financing").value == pytest.approx(91_800 * (0.0244129 - 1 / 48), rel=1e-4)
    assert bill.usd_per_month.value == pytest.approx(
        91_800 / 48 + 2_768.16 * 0.0633 + 2_000 + 382.5 + 91_800 * 0.00357959, rel=1e-5
    )


def test_flash_that_wears_out_is_bought_again_by_hand() -> None:
    need = Need(pool_ssd_bytes=10 * TB)
    fleet = stated(FLEET, nvme_usd_per_gb=0.24, ssd_write_amplification=1.0)
    # Endurance 1 write a day for 5 years: 10 TB x 1 825 days = 18 250 TB. At 20 TB a day it lasts
    # 912.5 days = 30 months; paid off in 48. 10 000 GB x 0.24 = 2 400 USD x (1 / 30 - 1 / 48).
    bill = build_bill(need, fleet, traffic=Traffic(flash_written_bytes_per_day=20 * TB))
    assert cost(bill, "pool_ssd").value == pytest.approx(2_400 / 48)
    assert cost(bill, "ssd_replacement").value == pytest.approx(2_400 * (1 / 30 - 1 / 48))
    # Both together: bought every 30 months.
    assert cost(bill, "pool_ssd").value + cost(bill, "ssd_replacement").value == pytest.approx(80)
    slow = build_bill(need, fleet, traffic=Traffic(flash_written_bytes_per_day=5 * TB))
    assert cost(slow, "ssd_replacement").value == 0.0
    assert "120 months" in next(one for one in slow.lines if one.id == "ssd_replacement").note
    unknown = build_bill(need, fleet)
    assert unknown.gaps == ("wear of flash: the bytes written a day are not known",)
    # Drives that are there are not bought; they wear all the same.
    there = build_bill(
        Need(worn_ssd_bytes=10 * TB), fleet, traffic=Traffic(flash_written_bytes_per_day=20 * TB)
    )
    assert [line.id for line in there.lines] == ["ssd_replacement"]
    assert there.usd_per_month.value == pytest.approx(2_400 * (1 / 30 - 1 / 48))


def test_rented_nodes_come_in_whole_shapes_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "fleet.toml"
    path.write_text('[pool]\npurchase = "rented"\ncross_zone_share = 0.5\n')
    fleet = load_fleet(path, FLEET)
    need = Need(pool_nodes=2, pool_dram_bytes=4 * 2**40, pool_ports=4)
    bill = build_bill(
        need, fleet, traffic=Traffic(read_bytes_per_day=8 * TB, written_bytes_per_day=4 * TB)
    )
    # 4 TiB over 1 024 GiB x 0.9 = 4.4: 5 nodes x 730 h x 8.06; nothing is bought or powered.
    assert cost(bill, "cloud_nodes").value == pytest.approx(5 * 730 * 8.06)
    # 12 TB a day x 365 / 12 days x half x 0.02 USD/GB = 3 650.
    assert cost(bill, "cross_zone").value == pytest.approx(12_000 * 365 / 12 * 0.5 * 0.02)
    assert {line.id for line in bill.lines} == {"cloud_nodes", "cross_zone"}
    assert bill.capex_usd == Interval(0, 0, 0)
    assert bill.kwh_per_month.value > 0


def test_managed_caches_appliances_and_object_stores_by_hand() -> None:
    # 1 TB over 419 GiB x 0.75 = 2.96: 3 nodes x 730 x 6.98.
    cache = build_bill(Need(managed_cache_bytes=1 * TB), FLEET, traffic=Traffic())
    assert cost(cache, "managed_cache").value == pytest.approx(3 * 730 * 6.98)
    box = build_bill(Need(appliance_bytes=100 * TB, appliance_bytes_per_s=20e9), FLEET)
    assert box.usd_per_month.value == pytest.approx(100_000 * 0.086 + 20 * 751)
    moved = Traffic(read_bytes_per_day=4e6 * MIB, written_bytes_per_day=2e6 * MIB)
    store = build_bill(Need(object_store_bytes=50 * TB), FLEET, traffic=moved)
    # 4 MiB a request: 0.5 M writes and 1 M reads a day, 365 / 12 days.
    assert cost(store, "object_puts").value == pytest.approx(5e5 * 365 / 12 * 5e-6)
    assert cost(store, "object_gets").value == pytest.approx(1e6 * 365 / 12 * 4e-7)
    assert cost(store, "object_capacity").value == pytest.approx(50_000 * 0.023)


def test_idle_dram_is_free_and_its_cost_stands_beside() -> None:
    bill = build_bill(Need(idle_dram_bytes=1000e9), FLEET)
    assert bill.usd_per_month == Interval(0, 0, 0)
    assert bill.idle_dram_at_cost.value == pytest.approx(14_000 / 48)


def test_ports_of_gpu_nodes_are_paid_where_the_network_is_not_built(tmp_path: Path) -> None:
    need = Need(gpu_node_ports=8)
    assert build_bill(need, FLEET).usd_per_month == Interval(0, 0, 0)
    path = tmp_path / "fleet.toml"
    path.write_text("[network]\nis_built = false\n")
    bill = build_bill(need, load_fleet(path, FLEET))
    assert bill.capex_usd.value == pytest.approx(8 * (1_900 + 650 + 1_400))
    assert bill.kwh_per_month.value == pytest.approx(8 * 20 / 1_000 * 730 * 1.58)


def test_another_gpu_is_paid_and_todays_are_given_up() -> None:
    bill = build_bill(Need(gpu="H200-SXM"), FLEET, gpus=16)
    # 16 x 730 x 4.0 less 32 x 730 x 3.0.
    assert bill.usd_per_month.value == pytest.approx(16 * 730 * 4.0 - 32 * 730 * 3.0)
    # As many as today: both at their low, in the middle, both at their high.
    same = build_bill(Need(gpu="H200-SXM"), FLEET).usd_per_month
    hours = 32 * 730
    assert same.low == pytest.approx(hours * (2.25 - 1.99))
    assert same.value == pytest.approx(hours * (4.0 - 3.0))
    assert same.high == pytest.approx(hours * (8.0 - 5.0))


def test_another_gpu_is_priced_at_the_level_of_todays_stated_price(tmp_path: Path) -> None:
    path = tmp_path / "fleet.toml"
    path.write_text("gpu_usd_per_hour = 1.5\n")
    usd = build_bill(Need(gpu="H200-SXM"), load_fleet(path, FLEET)).usd_per_month
    # 1.5 x 4.0 / 3.0 = 2.0; the ratio of the lows is 2.25 / 1.99, that of the highs 8 / 5.
    assert usd.value == pytest.approx(32 * 730 * 0.5)
    assert usd.low == pytest.approx(32 * 730 * 1.5 * (2.25 / 1.99 - 1))
    assert usd.high == pytest.approx(32 * 730 * 1.5 * 0.6)


def test_gpus_that_cannot_be_given_up_are_worth_what_their_contract_says(tmp_path: Path) -> None:
    path = tmp_path / "fleet.toml"
    path.write_text('[gpu_contract]\nkind = "reserved"\nuntil = 2027-06-30\n')
    fleet, need = load_fleet(path, FLEET), Need(gpu="H200-SXM")
    before = build_bill(need, fleet, today=date(2027, 6, 30)).usd_per_month
    assert before.value == pytest.approx(32 * 730 * 4.0)
    assert build_bill(need, fleet).usd_per_month == before
    after = build_bill(need, fleet, today=date(2027, 7, 1)).usd_per_month
    assert after.value == pytest.approx(32 * 730 * 1.0)
    path.write_text('[gpu_contract]\nkind = "owned"\n')
    # 3.0 x 730 x 14 months of rent = 30 660 a GPU, at 8 % a year: 204.4 a month.
    owned = build_bill(need, load_fleet(path, FLEET))
    assert cost(owned, "gpus_given_up").value == pytest.approx(-32 * 204.4)
    assert owned.usd_per_month.value == pytest.approx(32 * (730 * 4.0 - 204.4))


def test_electricity_stated_with_cooling_is_not_cooled_twice(tmp_path: Path) -> None:
    path = tmp_path / "fleet.toml"
    path.write_text("electricity_usd_per_kwh = 0.20\n")
    line = cost(build_bill(POOL, load_fleet(path, FLEET)), "power")
    assert line.value == pytest.approx(2.4 * 730 * 0.20)
    assert line.low == pytest.approx((2 * 0.35 + 4_000 * 0.3 / 1_000) * 730 * 0.20)


AMOUNTS = st.floats(min_value=0, max_value=1e6, allow_nan=False)
NEEDS = st.builds(
    lambda a, b, c, d, e, f, g: Need(
        gpu_node_dram_bytes=a * 1e9, gpu_node_ssd_bytes=b * 1e9, gpu_node_ports=c,
        pool_nodes=d, pool_dram_bytes=e * 1e9, pool_ssd_bytes=f * 1e9, pool_ports=g,
        is_operated=True,
    ),
    *[AMOUNTS] * 7,
)  # fmt: skip


@given(need=NEEDS, written=st.floats(min_value=0, max_value=1e16))
def test_low_is_at_most_the_middle_and_that_at_most_high(need: Need, written: float) -> None:
    bill = build_bill(need, FLEET, traffic=Traffic(flash_written_bytes_per_day=written))
    for line in bill.lines:
        assert 0 <= line.usd_per_month.low <= line.usd_per_month.value <= line.usd_per_month.high
    assert bill.usd_per_month.low <= bill.usd_per_month.value <= bill.usd_per_month.high


@given(need=NEEDS, name=st.sampled_from(["dram_usd_per_gb", "pool_node_usd", "meter_usd_per_kwh"]))
def test_a_doubled_price_doubles_its_lines_and_no_other_of_the_same_kind(
    need: Need, name: str
) -> None:
    before = build_bill(need, FLEET)
    price = FLEET.prices[name]
    dear = replace(FLEET, prices=FLEET.prices.with_stated(price.scaled(2.0)))
    after = {line.id: line for line in build_bill(need, dear).lines}
    for line in before.lines:
        factor = 2.0 if line.price.id == price.id else 1.0
        if line.id in ("support", "financing"):  # they follow the purchase
            assert after[line.id].usd_per_month.value >= line.usd_per_month.value
            continue
        assert after[line.id].usd_per_month.value == pytest.approx(
            factor * line.usd_per_month.value
        )


def test_nothing_needed_costs_nothing() -> None:
    bill = build_bill(Need(), FLEET, traffic=Traffic(flash_written_bytes_per_day=1e15))
    assert bill.lines == ()
    assert bill.usd_per_month == Interval(0, 0, 0)
    assert bill.kwh_per_month == Interval(0, 0, 0)


def test_every_quantity_of_a_need_reaches_the_bill() -> None:
    """A field that no line reads would be a cost forgotten."""
    unbuilt = replace(
        FLEET,
        network=replace(
            FLEET.network, is_built=FLEET.network.is_built.given(False, kind="given", source="t")
        ),
    )
    busy = Traffic(flash_written_bytes_per_day=1e15)
    for field in fields(Need):
        if field.name in ("gpu", "is_operated", "port_bytes_per_s"):
            continue
        bill = build_bill(Need(**{field.name: 1e12}), unbuilt, traffic=busy)  # type: ignore[arg-type]
        assert bill.usd_per_month.value + bill.idle_dram_at_cost.value > 0, field.name


def test_licences_are_of_the_nodes_that_are_rented(tmp_path: Path) -> None:
    path = tmp_path / "fleet.toml"
    path.write_text('[pool]\npurchase = "rented"\n')
    fleet = stated(load_fleet(path, FLEET), licence_usd_per_node_month=100.0)
    need = replace(POOL, pool_dram_bytes=4 * 2**40)
    # 4 TiB over 1 024 GiB x 0.9 = 4.4: 5 nodes, of 2 that the pool states.
    assert cost(build_bill(need, fleet), "licence").value == pytest.approx(500)
