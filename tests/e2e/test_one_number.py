"""One audit says each number once: wherever else it stands, it is the same."""

from __future__ import annotations

import html

import pytest

from kvtrace.audit.record import AuditRecord, Option, Quantity
from kvtrace.report.adr import render_adr
from kvtrace.report.html import render_html
from kvtrace.report.texts import load_texts
from kvtrace.report.view import quantity_view
from tests.conftest import Analysed


@pytest.fixture(scope="module")
def record(samples: Analysed) -> AuditRecord:
    return samples.record


@pytest.fixture(scope="module")
def numbers(record: AuditRecord) -> dict[str, Quantity]:
    return {one.id: one for one in record.verdict.carrying_numbers}


@pytest.fixture(scope="module")
def weighed(record: AuditRecord) -> Option:
    """The pool that the verdict names."""
    return next(one for one in record.options if one.id == record.verdict.option)


def middle(record: AuditRecord, ident: str) -> float | None:
    assert record.uncertainty is not None
    return next(one.middle for one in record.uncertainty.spreads if one.id == ident)


def test_tokens_beyond_the_rival_are_one_number(
    record: AuditRecord, numbers: dict[str, Quantity], weighed: Option
) -> None:
    extra = numbers["reusable_tokens_beyond_local"].value
    assert isinstance(extra, int)
    assert extra != 0
    assert weighed.extra_hit_tokens == extra
    assert middle(record, "reusable_tokens_beyond_local") == extra
    assert record.sizing is not None
    assert record.replay_window is not None
    point = next(one for one in record.sizing.reuse if one.option == weighed.id)
    assert point.present_ratio_tokens * record.replay_window.prompt_tokens == pytest.approx(extra)
    little = next((one for one in record.findings if one.id == "pool_adds_little"), None)
    shown = {one.id: one.value for one in ([] if little is None else little.evidence)}
    most = max(one.extra_hit_tokens for one in record.options if one.extra_hit_tokens is not None)
    assert shown.get("extra_hit_tokens", most) == most


def test_every_view_names_the_same_rival(
    record: AuditRecord, numbers: dict[str, Quantity], weighed: Option
) -> None:
    titles = {one.id: one.title for one in record.options}
    assert weighed.rival is not None
    rival = titles[weighed.rival]
    assert record.verdict.rival == rival
    assert rival in (numbers["reusable_tokens_beyond_local"].title or "")
    assert record.uncertainty is not None
    assert record.economics is not None
    assert record.economics.case is not None
    assert record.sizing is not None
    named = {
        record.uncertainty.rival,
        record.economics.case.rival_title,
        next(one.rival for one in record.sizing.reuse if one.option == weighed.id),
    }
    assert named == {rival}


def test_value_less_cost_is_one_number(
    record: AuditRecord, numbers: dict[str, Quantity], weighed: Option
) -> None:
    net = numbers["value_minus_cost_usd_per_month"].value
    assert isinstance(net, float)
    assert record.uncertainty is not None
    assert record.uncertainty.net_middle == pytest.approx(net)
    assert middle(record, "value_minus_cost_usd_per_month") == pytest.approx(net)
    assert record.economics is not None
    case = record.economics.case
    assert case is not None
    assert case.option == weighed.id
    saving, cost = case.saving.value, case.extra_cost.value
    assert isinstance(saving, float)
    assert isinstance(cost, float)
    assert saving - cost == pytest.approx(net)
    bill = next(one for one in record.economics.bills if one.option == weighed.id)
    assert bill.total.value == pytest.approx(weighed.usd_per_month)


def test_instances_of_an_option_are_one_count_with_its_origin(record: AuditRecord) -> None:
    assert record.fleets is not None
    needs = {one.option: one for one in record.fleets.needs if one.load == 1.0}
    gpus = {one.option: one.gpus for one in record.fleets.views}
    assert set(needs) == {one.id for one in record.options}
    for option in record.options:
        need = needs[option.id]
        assert option.instances_at_slo == need.instances
        assert option.instances_basis == need.basis
        assert gpus[option.id] == need.gpus
        assert (need.instances is None) == (need.basis == "none")


def test_what_was_not_sampled_is_no_number(record: AuditRecord) -> None:
    known = record.uncertainty
    assert known is not None
    assert (known.p_pays, known.samples) == (None, 0)
    assert "not sampled" in render_html(record, lang="en")


def test_the_rendered_views_show_the_numbers_of_the_record(
    record: AuditRecord, numbers: dict[str, Quantity]
) -> None:
    texts = load_texts("en")
    views = [html.unescape(render_html(record, lang="en")), render_adr(record, lang="en")]
    for one in numbers.values():
        shown = quantity_view(one, texts).text
        assert shown
        for view in views:
            assert shown in html.unescape(view), one.id
