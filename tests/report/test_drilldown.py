"""The drill-down and the fit of the model, as shown."""

from __future__ import annotations

import msgspec
import pytest

from kvtrace.audit.drilldown.record import TracedRequest
from kvtrace.audit.fit.record import Says
from kvtrace.audit.record import AuditRecord
from kvtrace.report.drilldown import drilldown_view
from kvtrace.report.fit import fit_parts
from kvtrace.report.html import render_html
from kvtrace.report.texts import load_texts
from tests.report.drilled import make_drilldown, make_fit, make_request
from tests.report.records import make_bare_record, make_record

EN, ZH = load_texts("en"), load_texts("zh")


def drilled(*rows: TracedRequest) -> AuditRecord:
    return msgspec.structs.replace(make_record(), drilldown=make_drilldown(*rows))


def fitted(says: Says, **changes: object) -> AuditRecord:
    return msgspec.structs.replace(make_record(), fits=[make_fit(says, **changes)])


def test_bars_stand_one_behind_the_other_on_one_axis() -> None:
    slow = make_request(kind="slow", ttft_s=8.0, without_s=8.0, prefill_s=4.5, file=None, line=None)
    view = drilldown_view(drilled(make_request(), slow), EN)
    assert view is not None
    first, again = view.rows[0].timelines
    # 8 s are 100 %: queue 1 s, pull 2 s, load 0.5 s, prefill 0.5 s; nothing for the lookup.
    assert [(bar.part, bar.left, bar.width) for bar in first.bars] == [
        ("queue", 0.0, 12.5),
        ("pull", 12.5, 25.0),
        ("load", 37.5, 6.25),
        ("prefill", 43.75, 6.25),
    ]
    assert first.end == 50.0
    assert [(bar.part, bar.left, bar.width) for bar in again.bars] == [
        ("queue", 0.0, 12.5),
        ("prefill", 12.5, 25.0),
    ]
    assert len(view.rows[1].timelines) == 1
    assert view.axis[1].startswith("8")


def test_place_regret_and_what_is_left_out_are_said() -> None:
    view = drilldown_view(
        drilled(make_request(), make_request(kind="slow", file=None, line=None)), EN
    )
    assert view is not None
    assert view.rows[0].place == "logs/a<b>.jsonl:1234"
    assert view.rows[1].place is None
    said = " ".join(view.sentences)
    assert "Pool" in said
    assert "1 of 300 are shown" in said
    assert "regret 1,000\N{NO-BREAK SPACE}ms" in view.rows[0].sentence
    assert "TTFT 3,900\N{NO-BREAK SPACE}ms" in (view.rows[0].measured or "")
    assert [one.value for one in view.kinds] == ["lost", "slow"]


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_page_has_the_requests_and_nothing_of_them_is_markup(lang: str) -> None:
    page = render_html(drilled(make_request()), lang=lang)  # type: ignore[arg-type]
    assert "logs/a&lt;b&gt;.jsonl:1234" in page
    assert "a<b>" not in page
    assert 'data-kind="lost" data-bucket="4096"' in page


def test_without_a_replay_one_line_says_what_is_missing() -> None:
    assert drilldown_view(make_bare_record(), EN) is None
    page = render_html(make_bare_record(), lang="en")
    assert EN("drill.missing").split(";")[0] in page
    [part] = fit_parts(make_bare_record(), EN)
    assert part.missing == EN("q.fit.not_replayed")


@pytest.mark.parametrize(
    ("says", "words"),
    [
        ("too_fast", "too fast"),
        ("too_slow", "too slow"),
        ("close", "close"),
        ("uneven", "not at every length"),
    ],
)
def test_how_far_and_which_way_the_model_is_off(says: Says, words: str) -> None:
    [part] = fit_parts(fitted(says), EN)
    assert words in part.sentences[0]
    assert "800 of 1,000 requests" in part.sentences[0].replace("\N{NO-BREAK SPACE}", " ")
    [chart] = part.charts
    assert chart.figure is not None
    assert chart.table is not None
    assert len(chart.table.rows) == 1
    assert (chart.origin, chart.origin_too) == ("modelled", "measured")


def test_nothing_measured_names_the_flag() -> None:
    [part] = fit_parts(fitted("nothing_measured", buckets=[], ratio_p50=None), EN)
    assert part.missing is not None
    assert "--enable-per-request-metrics" in part.missing
    [raised] = fit_parts(fitted("other_load", buckets=[], ratio_p50=None), ZH)
    assert raised.missing == ZH("q.fit.other_load")
