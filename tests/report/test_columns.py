"""Lines of a terminal in columns, of which a Chinese character takes two."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvtrace.audit.record import AuditRecord
from kvtrace.report.columns import columns_of, cut, fit, pad, wrap
from kvtrace.report.console import render_console
from kvtrace.report.sentences import english_words
from tests.report.records import make_bare_record, make_record

TEXT = "池不划算：在空闲主机 DRAM 之外几乎没有剩余的复用，见 `--depth full`"


def test_chinese_takes_two_columns() -> None:
    assert columns_of("池 a") == 4
    assert pad("池", 4) == "池  "


@pytest.mark.parametrize("width", [12, 20, 33])
def test_lines_keep_the_width_and_the_words(width: int) -> None:
    lines = wrap(TEXT, width)
    assert max(map(columns_of, lines)) <= width
    assert "".join(lines).replace(" ", "") == TEXT.replace(" ", "")
    assert not any(line[0] in "，：" for line in lines)


@pytest.mark.parametrize("width", [9, 10, 11, 12, 30])
def test_cut_line_keeps_the_width_and_says_so(width: int) -> None:
    line = fit(TEXT, width)
    assert columns_of(line) <= width
    assert line.endswith(" …")
    assert fit("短", width) == "短"
    assert columns_of(cut("a word of text", 8)) <= 8


@pytest.mark.parametrize("record", [make_record(), make_bare_record()], ids=["full", "bare"])
@pytest.mark.parametrize("width", [60, 100])
def test_chinese_screen_has_its_labels_in_line(record: AuditRecord, width: int) -> None:
    lines = render_console(
        record,
        report_path=Path("r/report.html"),
        audit_path=Path("r/audit.json"),
        dataset_path=Path("r/dataset"),
        reused=True,
        width=width,
        lang="zh",
    )
    assert 12 <= len(lines) <= 21
    paths = [line for line in lines if "r/" in line]
    assert [columns_of(line[: line.index("r/")]) for line in paths[:3]] == [12, 12, 12]
    assert max(columns_of(line) for line in lines if line not in paths) <= width
    assert sum(english_words(line) == 0 for line in lines) >= 6
