"""The economics section: sentences with the record's numbers, the bill, prices of tokens."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from kvtrace.audit.build import build_audit
from kvtrace.audit.record import AuditRecord
from kvtrace.report.console import render_console
from kvtrace.report.html import render_html
from kvtrace.report.questions.economics import economics_parts
from kvtrace.report.texts import load_texts
from tests.unit.audit_fakes import make_input


@pytest.fixture(scope="module")
def record() -> AuditRecord:
    return build_audit(make_input())


def test_payback_is_said_with_its_interval(record: AuditRecord) -> None:
    payback = economics_parts(record, load_texts("en"))[0]
    assert record.economics is not None
    case = record.economics.case
    assert case is not None
    assert any("saves $17,520/month" in one for one in payback.sentences)
    months = next(one for one in payback.sentences if one.startswith("The purchase"))
    assert f"{case.payback.value:.4g}" in months
    assert "–" in months
    # The contract is stated in this record: nothing is said of nobody having stated it.
    assert not any("Nobody stated" in one for one in payback.sentences)


def test_an_unstated_contract_is_said(record: AuditRecord) -> None:
    money = record.economics
    assert money is not None
    open_money = msgspec.structs.replace(
        money, is_contract_confirmed=False, contract="reserved", paid_until="never", case=None
    )
    shown = msgspec.structs.replace(record, economics=open_money)
    payback = economics_parts(shown, load_texts("en"))[0]
    assert payback.sentences[0].startswith("GPUs are reserved and no last day is stated")
    assert "`gpu_contract.kind`" in payback.sentences[0]


def test_the_bill_of_the_weighed_pool_is_open_and_marks_unconfirmed_prices(
    record: AuditRecord,
) -> None:
    bills = economics_parts(record, load_texts("en"))[1]
    lines = bills.short[1]
    assert lines.title == "Bill of Pool over RDMA"
    row = next(row for row in lines.rows if row[0].text == "pool nodes")
    assert row[3].text == "$10,000/node ($7,000/node – $15,000/node) (unconfirmed)"
    dram = next(row for row in lines.rows if row[0].text == "DRAM of the pool")
    assert "(unconfirmed)" not in (dram[3].text or "")  # a published price


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_section_stands_after_the_options(record: AuditRecord, lang: str) -> None:
    page = render_html(record, lang=lang)  # type: ignore[arg-type]
    section = page.index('id="economics"')
    assert page.index('id="options"') < section < page.index('id="running"')
    assert "OpenAI GPT-5.5 API" in page


def test_a_record_without_money_says_so(record: AuditRecord) -> None:
    bare = msgspec.structs.replace(record, economics=None)
    assert economics_parts(bare, load_texts("en")) == ()
    assert load_texts("en")("economics.none") in render_html(bare, lang="en")


def test_the_first_screen_says_when_it_pays_back(record: AuditRecord) -> None:
    lines = render_console(
        record,
        report_path=Path("r.html"),
        audit_path=Path("a.json"),
        dataset_path=Path("d"),
        reused=False,
    )
    money = next(line for line in lines if line.startswith("money"))
    assert "paid back in" in money
    assert "modelled" in money
