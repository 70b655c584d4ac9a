"""The decision record: evidence in, decision out of it, and nothing from a log that is markup."""

from __future__ import annotations

import re

import pytest

from kvtrace.report.adr import render_adr, render_summary
from kvtrace.report.markdown import markdown_table, markdown_text
from kvtrace.report.promql import with_code
from kvtrace.report.texts import Lang
from tests.conftest import Analysed
from tests.report.records import make_bare_record, make_record


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        (
            "PromQL: rate(vllm:a_total[1h]) / rate(vllm:b_total[1h]) is near it",
            "PromQL: `rate(vllm:a_total[1h]) / rate(vllm:b_total[1h])` is near it",
        ),
        (
            "histogram_quantile(0.5, sum by (le) (rate(x_bucket[5m]))) beside vllm:c_seconds; more",
            "`histogram_quantile(0.5, sum by (le) (rate(x_bucket[5m])))` beside `vllm:c_seconds`;"
            " more",
        ),
        ("the log field `cost` and sglang:queue_time_seconds", "the log field `cost` and"
         " `sglang:queue_time_seconds`"),
        ("a rate (bytes a second) that is never closed: rate(x", "a rate (bytes a second) that"
         " is never closed: rate(x"),
        ("an odd ` mark: rate(x[1h])", "an odd ` mark: rate(x[1h])"),
        ("nothing of the kind", "nothing of the kind"),
    ],
)  # fmt: skip
def test_promql_is_set_as_code(said: str, wanted: str) -> None:
    assert with_code(said) == wanted


def test_a_query_of_a_finding_can_be_copied_from_the_decision_record(samples: Analysed) -> None:
    text = render_adr(samples.record, lang="en")
    checks = [line for line in text.splitlines() if line.startswith("- Check in production")]
    assert any("`histogram_quantile(0.5, sum by (le) (rate(vllm:" in line for line in checks)
    assert not any("\\[5m" in line for line in checks)


def test_the_days_of_the_requests_are_named_where_the_clock_has_dates(samples: Analysed) -> None:
    # The samples arrive on one day: 1 773 129 606 s is 2026-03-10 08:00:06 UTC.
    assert "- Requests arrived: 2026-03-10 to 2026-03-10 (UTC)" in render_adr(
        samples.record, lang="en"
    )
    assert "Requests arrived" not in render_adr(make_bare_record(), lang="en")


def headings(text: str) -> list[str]:
    return re.findall(r"^## (.*)$", text, re.MULTILINE)


def test_the_decision_is_left_to_a_person() -> None:
    text = render_adr(make_record(), lang="en")
    assert headings(text) == [
        "Context",
        "Options considered",
        "Evidence",
        "Consequences",
        "Open questions",
        "Decision",
        "The same evidence again",
    ]
    decision = text.partition("## Decision\n")[2].partition("## ")[0]
    assert decision.strip() == "(left to a person)"


def test_every_option_and_finding_is_in_the_record_of_the_decision(samples: Analysed) -> None:
    record = samples.record
    text = render_adr(record, lang="en")
    assert record.verdict.headline in text
    ids = [*(one.id for one in record.options), *(one.id for one in record.findings)]
    assert [one for one in ids if f"(`{one}`" not in text] == []
    rival = next(one for one in record.options if one.title == record.verdict.rival)
    assert f"Without a pool, {rival.title} (modelled)" in text
    # A row a option, and every row has the cells of the head.
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert len(rows) == len(record.options) + 2
    assert {line.replace("\\|", "").count("|") for line in rows} == {10}


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_numbers_are_the_same_in_both_languages(lang: Lang) -> None:
    numbers = re.compile(r"\d+(?:[,.]\d+)*")
    ours = numbers.findall(render_adr(make_record(), lang=lang))
    assert sorted(ours) == sorted(numbers.findall(render_adr(make_record(), lang="en")))


def test_a_record_without_options_says_so() -> None:
    text = render_adr(make_bare_record(), lang="en")
    assert "No option was replayed" in text
    assert "| ---" not in text


def test_the_summary_decides_nothing() -> None:
    found = headings(render_summary(make_record(), lang="en"))
    assert "Decision" not in found
    assert "Evidence" in found


def test_what_a_log_says_is_no_markup() -> None:
    record = make_record()
    record.data.validity[0].message = "a | b <img src=x onerror=alert(1)> [link](http://x) `c|d`"
    text = render_adr(record, lang="en")
    assert "a \\| b \\<img" in text
    assert "\\[link\\](http" in text
    assert "`c\\|d`" in text
    assert markdown_text("one ` backtick") == "one ' backtick"
    assert markdown_table(["x"], [["a\nb"]]) == ["| x |", "| --- |", "| a b |"]
