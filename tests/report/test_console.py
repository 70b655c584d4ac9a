"""The first screen: 12 to 20 lines, what matters first, nothing that acts on a terminal."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvtrace.audit.record import AuditRecord
from kvtrace.report.console import render_console
from tests.report.records import make_bare_record, make_findings, make_record


def screen(record: AuditRecord, *, reused: bool = False) -> list[str]:
    return render_console(
        record,
        report_path=Path("reports/chat/report.html"),
        audit_path=Path("reports/chat/audit.json"),
        dataset_path=Path("reports/chat/dataset"),
        reused=reused,
    )


@pytest.mark.parametrize("record", [make_record(), make_bare_record()], ids=["full", "bare"])
def test_screen_has_12_to_20_lines_of_at_most_100_columns(record: AuditRecord) -> None:
    lines = screen(record)
    assert 12 <= len(lines) <= 20
    assert max(map(len, lines)) <= 100


def test_many_findings_and_long_texts_still_fit() -> None:
    record = make_record()
    record.findings = make_findings() * 9
    record.verdict.headline = "word " * 200
    record.verdict.confidence_reasons = ["reason " * 40]
    for number in record.verdict.carrying_numbers:
        number.title = "title " * 60
    lines = screen(record)
    assert len(lines) <= 20
    assert max(map(len, lines)) <= 100
    assert any("more in the report" in line for line in lines)


def test_screen_says_data_verdict_numbers_findings_and_paths() -> None:
    text = "\n".join(screen(make_record()))
    for expected in (
        "12,031 requests",
        "144,793,823 prompt",
        "grade A",
        "PAYS ONLY IF",
        "low",
        "37.36 %",
        "(−$6,100 – $5,300)",
        "[queueing_dominates]",
        "reports/chat/report.html",
    ):
        assert expected in text


def test_gravest_finding_comes_first() -> None:
    record = make_record()
    record.findings = list(reversed(record.findings))
    first = next(line for line in screen(record) if line.startswith("findings"))
    assert "!! Queueing dominates TTFT" in first


def test_next_measurement_names_its_flag() -> None:
    assert "--disable-log-stats=false" in "\n".join(screen(make_bare_record()))


def test_unknown_is_said() -> None:
    assert any("unknown (no block identity" in line for line in screen(make_bare_record()))


def test_reuse_of_the_dataset_is_said() -> None:
    assert "reused" in screen(make_record(), reused=True)[-1]
    assert "reused" not in screen(make_record())[-1]


def test_terminal_escapes_from_a_log_are_shown_not_obeyed() -> None:
    record = make_record()
    record.data.validity[0].message = "\x1b]0;owned\x07 text"
    record.findings[0].title = "\x1b[2Jgone"
    text = "\n".join(screen(record))
    assert "\x1b" not in text
    assert "\x07" not in text
