"""The section on how sure the money is, and its line on the first screen."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec

from kvtrace.audit.gates.names import NUMBERS
from kvtrace.audit.record import AuditRecord
from kvtrace.report.adr import render_adr
from kvtrace.report.console import render_console
from kvtrace.report.html import render_html
from kvtrace.report.texts import load_texts
from kvtrace.report.uncertainty import uncertainty_parts
from tests.report.records import make_record
from tests.report.uncertain import make_uncertainty

EN, ZH = load_texts("en"), load_texts("zh")


def sampled() -> AuditRecord:
    return msgspec.structs.replace(make_record(), uncertainty=make_uncertainty())


def unsampled() -> AuditRecord:
    quick = make_uncertainty(p_pays=None, p_pays_error=None, worth_of_all=None, samples=0)
    spread = msgspec.structs.replace(quick.spreads[0], p10=None, p50=None, p90=None, method="ends")
    return msgspec.structs.replace(
        make_record(), uncertainty=msgspec.structs.replace(quick, spreads=[spread])
    )


def screen(record: AuditRecord) -> list[str]:
    return render_console(
        record,
        report_path=Path("out/report.html"),
        audit_path=Path("out/audit.json"),
        dataset_path=Path("out/dataset"),
        reused=False,
    )


def test_the_chance_stands_with_its_error_and_with_what_is_asked_of_it() -> None:
    sure, swings, worth = uncertainty_parts(sampled(), EN)
    first, second, how, third = (text.replace("\u00a0", " ") for text in sure.sentences)
    assert first.startswith("The pool pays in 75 % of 2,048 samples of what is open")
    assert "(standard error 2 %, modelled)" in first
    assert "needs 90 %" in first
    assert "$3,500" in second
    assert "−$2,000" in second
    assert "leave-one-out error 4.0 %" in how
    (table,) = sure.open_tables
    shown = [(cell.text or "").replace("\u00a0", " ") for cell in table.rows[0]]
    assert shown[2] == "−$2,000/month ± $50.00/month"
    assert "812 sessions were drawn again" in third
    assert swings.points[0] == "H100 <b>on demand</b>: at $2.25/GPU-hour (taken as $3.00/GPU-hour)"
    assert "somewhere between" in swings.points[1]
    assert [point.replace("\u00a0", " ") for point in worth.points] == [
        "H100 <b>on demand</b>: worth $800 a month (standard error $12.00). It takes an offer: "
        "`prices.gpu_usd_per_hour = 3`"
    ]


def test_both_ends_of_each_input_are_drawn_the_widest_first() -> None:
    _, swings, _ = uncertainty_parts(sampled(), EN)
    (chart,) = swings.charts
    assert chart.figure is not None
    figure = json.loads(chart.figure)
    low, high = figure["data"]
    assert low["base"] == high["base"] == 4000.0
    ends = [[x + trace["base"] for x in trace["x"]] for trace in (low, high)]
    assert ends == [[-1000.0, 5000.0], [9000.0, -500.0]]
    assert [shape["x0"] for shape in figure["layout"]["shapes"]] == [4000.0, 0.0]
    assert chart.table is not None
    assert len(chart.table.rows) == 2


def test_without_samples_the_ends_are_said_to_be_all_there_is() -> None:
    sure, _, worth = uncertainty_parts(unsampled(), EN)
    assert "not sampled" in sure.sentences[0]
    assert "It was not sampled" in sure.sentences[1]
    assert worth.missing is not None
    assert "--depth full" in worth.missing


def test_a_record_without_it_says_why_in_one_line() -> None:
    (part,) = uncertainty_parts(make_record(), EN)
    assert part.missing is not None


def test_the_page_has_the_section_in_both_languages_and_no_markup_of_a_title_acts() -> None:
    for lang, texts in (("en", EN), ("zh", ZH)):
        html = render_html(sampled(), lang=lang)  # type: ignore[arg-type]
        assert texts("section.uncertainty.title") in html
        assert "<b>on demand</b>" not in html
    quiet = render_html(make_record(), lang="en")
    assert EN("q.sure.missing").split("`")[0] in quiet


def test_an_input_that_changes_nothing_draws_no_bar() -> None:
    same = make_uncertainty()
    flat = [msgspec.structs.replace(one, net_at_low=1.0, net_at_high=1.0) for one in same.inputs]
    record = msgspec.structs.replace(
        make_record(), uncertainty=msgspec.structs.replace(same, inputs=flat)
    )
    _, swings, _ = uncertainty_parts(record, EN)
    assert swings.missing is not None


def test_the_first_screen_has_the_chance_and_what_to_settle_first() -> None:
    (chance,) = (line for line in screen(sampled()) if line.startswith("chance"))
    assert "the pool pays in 75 % of 2,048 samples" in chance
    assert not any(line.startswith("chance") for line in screen(unsampled()))


def test_a_gate_can_be_about_the_chance_and_a_record_of_a_decision_has_it() -> None:
    known = NUMBERS["p_pays"](sampled())
    assert (known.value, known.low, known.high) == (0.75, 0.73, 0.77)
    assert "--depth full" in NUMBERS["p_pays"](unsampled()).why
    text = render_adr(sampled(), lang="en")
    assert EN("section.uncertainty.title") in text
    assert "The pool pays in 75" in text
    assert EN("section.uncertainty.title") not in render_adr(make_record(), lang="en")
