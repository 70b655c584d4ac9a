"""What an instance that is given back is worth, by contract."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from kvtrace.audit.money.gpu_worth import gpu_worth
from kvtrace.audit.uncertainty.ranges import Range
from kvtrace.cost.deployment import build_deployment
from kvtrace.cost.fleet import Fleet, default_fleet, load_fleet

FLEET = default_fleet(build_deployment("Meta-Llama-3.1-70B", "H100-SXM5", tp=8), 4)
ONE = Range.exact(1.0)


def with_contract(folder: Path, text: str) -> Fleet:
    path = folder / "fleet.toml"
    path.write_text(f"gpu_usd_per_hour = 3.0\n[gpu_contract]\n{text}\n")
    return load_fleet(path, FLEET)


def test_elastic_gpus_are_worth_the_hours_that_are_given_back(tmp_path: Path) -> None:
    fleet = with_contract(tmp_path, 'kind = "elastic"')
    # Without a day in the log every hour counts: 8 GPUs x 730 h x 3.0.
    assert gpu_worth(fleet).usd_per_month(ONE, of=4).value == pytest.approx(17_520)
    # Four instances at the peak, three with the pool: 4 - 3 at 1.0, 2 - 2 at 0.5 (ceil 1.5),
    # 3 - 3 at 0.75 (ceil 2.25), 1 - 1 at 0.1: one of the four hours.
    worth = gpu_worth(fleet, profile=(1.0, 0.5, 0.75, 0.1))
    assert worth.usd_per_month(ONE, of=4).value == pytest.approx(17_520 / 4)
    # Two given back: 4 - 2, 2 - 1, 3 - 2, 1 - 1: 4 of 8 instance-hours.
    assert worth.usd_per_month(Range.exact(2.0), of=4).value == pytest.approx(2 * 17_520 / 2)


def test_owned_gpus_defer_a_purchase(tmp_path: Path) -> None:
    fleet = with_contract(tmp_path, 'kind = "owned"')
    # 3.0 x 730 x 14 months of rent = 30 660 a GPU; 8 of them at 8 % a year: 1 635.2 a month.
    assert gpu_worth(fleet).usd_per_month(ONE, of=4).value == pytest.approx(1_635.2)


def test_reserved_gpus_are_worth_nothing_before_their_last_day(tmp_path: Path) -> None:
    fleet = with_contract(tmp_path, 'kind = "reserved"\nuntil = 2027-06-30')
    before = gpu_worth(fleet, today=date(2027, 6, 30))
    assert before.usd_per_month(ONE, of=4) == Range(0, 0, 0)
    assert before.note == "the GPUs are reserved until 2027-06-30: nothing is saved before"
    after = gpu_worth(fleet, today=date(2027, 7, 1))
    assert after.usd_per_month(ONE, of=4).value == pytest.approx(17_520)
    undated = gpu_worth(fleet)
    assert undated.usd_per_month(ONE, of=4) == Range(0, 0, 0)
    assert "no dates" in undated.note


def test_a_reservation_without_a_last_day_saves_nothing(tmp_path: Path) -> None:
    worth = gpu_worth(with_contract(tmp_path, 'kind = "reserved"'), today=date(2030, 1, 1))
    assert worth.usd_per_month(ONE, of=4) == Range(0, 0, 0)


def test_more_is_never_given_back_than_is_there() -> None:
    worth = replace(gpu_worth(FLEET), profile=(1.0, 0.01))
    for saved in (0.4, 1.0, 3.0, 9.0):
        assert 0.0 <= worth.share_of_hours(saved, of=4) <= 1.0
