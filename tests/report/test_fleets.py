"""The section on the size of the fleet."""

from __future__ import annotations

import json

import pytest

from kvtrace.report.fleets import fleet_parts
from kvtrace.report.html import render_html
from kvtrace.report.questions.part import Part
from kvtrace.report.texts import Lang, load_texts
from tests.report.fleet_records import make_fleets
from tests.report.records import make_bare_record, make_record


def parts(**changes: object) -> dict[str, Part]:
    record = make_record()
    record.fleets = make_fleets(**changes)
    return {part.id: part for part in fleet_parts(record, load_texts("en"))}


def cells(part: Part) -> list[list[str | None]]:
    return [[cell.text for cell in row] for row in part.short[0].rows]


def test_each_option_is_a_row_and_each_load_a_column() -> None:
    hbm, direct, tcp = cells(parts()["fleet"])
    assert hbm[:5] == ["HBM only", "5", "10", "20", "replayed"]
    assert direct[:4] == ["Pool in DRAM over RDMA, GPU-direct", "4", "8", "16"]
    assert tcp[1:5] == [None, None, None, "no fleet keeps the SLO"]


def test_a_log_of_less_than_a_day_says_so_unless_a_peak_factor_is_stated() -> None:
    assert any("does not cover a busy day" in one for one in parts()["fleet"].sentences)
    stated = parts(peak_factor=1.5)["fleet"].sentences
    assert any("raised to 1.5 times its sessions" in one for one in stated)
    assert not any("does not cover" in one for one in stated)
    assert not any("busy day" in one for one in parts(covers_a_day=True)["fleet"].sentences)


def test_a_surrogate_is_never_called_a_search() -> None:
    assert any("was searched" in one for one in parts()["fleet"].sentences)
    quick = parts(is_searched=False)["fleet"].sentences
    assert not any("was searched" in one for one in quick)
    assert any("were not replayed" in one for one in quick)


@pytest.mark.parametrize(
    ("saves", "says"), [(0, "no pool can save one"), (2, "2 instances less"), (None, None)]
)
def test_what_free_prefill_would_save_bounds_every_pool(
    saves: int | None, says: str | None
) -> None:
    said = " ".join(parts(most_any_pool_saves=saves)["fleet_views"].sentences)
    assert (says or "") in said
    assert ("no prefill took" in said) is (saves is not None)


def test_the_reserve_and_the_releases_are_told() -> None:
    reserve, releases = parts()["fleet_degraded"].points
    assert "4 carry the load, late, and 5 keep the SLO" in reserve
    assert "1,000 more requests miss the SLO" in releases
    warm, released, _ = cells(parts()["fleet_degraded"])
    assert warm[8] is None
    assert released[8] == "366.0\u00a0s"
    assert released[9:11] == ["1,052", "1,287"]


def test_a_link_that_binds_is_named() -> None:
    (ladder,) = parts()["fleet_binds"].charts
    assert ladder.table is not None
    assert ladder.table.rows[1][3].text == "link TCP port of a pool node"
    assert "link TCP port of a pool node binds Pool in DRAM over TCP" in ladder.summary


def test_the_ladder_shows_how_much_of_each_resource_an_option_uses() -> None:
    (ladder,) = parts()["fleet_binds"].charts
    assert ladder.figure is not None
    traces = {trace["name"]: trace for trace in json.loads(ladder.figure)["data"]}
    assert set(traces) == {"Prefill", "Decode bandwidth", "HBM for KV", "fullest link"}
    assert len({trace["marker"]["symbol"] for trace in traces.values()}) == 4


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_section_stands_in_every_report(lang: Lang) -> None:
    page = render_html(make_record(), lang=lang)
    assert 'id="table-fleet-needs"' in page
    assert 'id="table-fleet-degraded"' in page
    assert 'id="fleets"' in render_html(make_bare_record(), lang=lang)
