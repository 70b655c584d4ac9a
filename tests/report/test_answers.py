"""The head of each section: an answer and a figure, findings as lines, actions once."""

from __future__ import annotations

import re

from kvtrace.audit.record import PromisingMix
from kvtrace.report.finding_views import action_groups, finding_views, first_sentence
from kvtrace.report.html import render_html
from kvtrace.report.sections import page_view
from kvtrace.report.texts import load_texts
from tests.report.records import make_bare_record, make_record, quantity

EN = load_texts("en")


def test_sections_with_data_have_an_answer_and_a_figure() -> None:
    page = page_view(make_record(), EN)
    for section in ("hits", "kv", "ledger", "latency", "options", "findings", "timeline"):
        assert page.answers[section], section
        lead = page.lead(section)
        assert lead is not None, section
        assert lead.figure is not None, section


def test_the_head_of_the_options_names_one_to_take_and_no_search() -> None:
    """What was priced and not replayed stands at the frontier, priced as money is written."""
    record = make_record()
    assert record.frontier is not None
    record.frontier.mixes_most, record.frontier.mixes_by_surrogate = 4, 121
    record.frontier.promising = [
        PromisingMix(
            option="both", title="Both tiers", usd_per_month=5.97, ttft_s=0.467, usd_per_ms=0.25
        )
    ]
    page = page_view(record, EN)
    assert page.answers["options"].startswith("Cheapest of ")
    assert "surrogate" not in page.answers["options"]
    assert "Mixes of options" not in page.answers["options"]
    assert "121 were priced and not replayed" in page.charts["frontier"].summary
    assert "$0.25 a month for each ms less" in page.charts["frontier"].summary


def test_sections_without_data_claim_nothing() -> None:
    page = page_view(make_bare_record(), EN)
    assert not {"hits", "reuse", "ledger", "options", "timeline"} & page.answers.keys()
    lead = page.lead("hits")
    assert lead is not None
    assert lead.missing


def test_a_figure_does_not_repeat_the_answer_above_it() -> None:
    page = page_view(make_record(), EN)
    html = render_html(make_record(), lang="en")
    assert html.count(f'<p class="summary">{page.answers["kv"]}') == 0
    assert html.count(f'<p class="verdict-line">{page.answers["kv"]}') == 1


def test_the_line_of_a_finding_is_its_first_sentence() -> None:
    assert first_sentence("One fact (8 %). Then more") == "One fact (8 %)"
    assert first_sentence("At 1.5 GB/s; later") == "At 1.5 GB/s"
    assert (
        first_sentence("94 % (modelled; of 3 hits) lose. More") == "94 % (modelled; of 3 hits) lose"
    )
    long = first_sentence("word " * 100)
    assert len(long) <= 191
    assert long.endswith("word…")


def test_what_all_evidence_has_in_common_is_said_once() -> None:
    record = make_record()
    finding = record.findings[0]
    same = {"source": "one replay", "interval_reason": "no interval"}
    finding.evidence = [
        quantity("a", 1.0, "s", **same),
        quantity("b", 2.0, "s", low=1.0, high=3.0, source="one replay"),
    ]
    view = next(one for one in finding_views(record, EN) if one.finding is finding)
    assert "one replay" in view.common
    assert "no interval" not in view.common
    assert [own for _, own in view.evidence] == ["no interval", "1,000\u00a0ms – 3,000\u00a0ms"]


def test_actions_of_nearly_the_same_words_stand_once_with_all_their_findings() -> None:
    record = make_record()
    first, second = record.findings[:2]
    first.action_kind = second.action_kind = "move_less"
    first.action = "Load only hits that are priced below recomputing, or recompute the rest"
    second.action = "Load only what is priced below recomputing (an arbiter)"
    (group,) = [one for one in action_groups([first, second]) if one.kind == "move_less"]
    (action,) = group.members
    assert action.text == first.action
    assert action.findings == (first, second)
    second.action = "Write on the second use only"
    (group,) = action_groups([first, second])
    assert len(group.members) == 2


def test_every_fold_says_what_is_in_it() -> None:
    html = render_html(make_record(), lang="en")
    folds = re.findall(r'<details class="fold" id="[^"]+">\s*<summary>(.*?)</summary>', html, re.S)
    assert len(folds) > 15
    assert all("fold-holds" in one or "fold-says" in one for one in folds)


def test_no_backtick_is_left_in_the_text_of_the_page() -> None:
    html = render_html(make_record(), lang="en")
    text = re.sub(r"<script.*?</script>|<style.*?</style>|<[^>]*>", "", html, flags=re.S)
    assert "`" not in text
