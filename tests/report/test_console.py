"""The first screen: 12 to 20 lines, what matters first, nothing that acts on a terminal."""

from __future__ import annotations

from copy import copy
from pathlib import Path

import pytest

from kvtrace.audit.record import AuditRecord, Quantity, ReplayWindow
from kvtrace.report.console import render_console
from tests.report.records import (
    make_bare_record,
    make_file,
    make_findings,
    make_record,
    quantity,
)


def screen(record: AuditRecord, *, reused: bool = False, width: int = 100) -> list[str]:
    return render_console(
        record,
        report_path=Path("reports/chat/report.html"),
        audit_path=Path("reports/chat/audit.json"),
        dataset_path=Path("reports/chat/dataset"),
        reused=reused,
        width=width,
    )


@pytest.mark.parametrize("record", [make_record(), make_bare_record()], ids=["full", "bare"])
def test_screen_has_12_to_20_lines_of_at_most_100_columns(record: AuditRecord) -> None:
    lines = screen(record)
    assert 12 <= len(lines) <= 20
    assert max(map(len, lines)) <= 100


def test_many_findings_and_long_texts_still_fit() -> None:
    record = make_record()
    record.findings = make_findings() * 9
    record.verdict.headline = "word " * 50
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


def test_kinds_of_actions_are_counted_where_there_is_room() -> None:
    record = make_bare_record()
    record.findings = make_findings()[:2]
    for finding, kind in zip(record.findings, ("move_less", "nearer"), strict=True):
        finding.action_kind = kind  # type: ignore[assignment]
    lines = screen(record, width=160)
    assert any(line.endswith(f"[{record.findings[0].id}]") for line in lines)
    (line,) = [line for line in lines if line.startswith("actions")]
    assert line.split(maxsplit=1)[1] == "move less 1 · nearer 1 (in the report)"
    for finding in record.findings:
        finding.action_kind = "measure"
    assert not any(line.startswith("actions") for line in screen(record, width=160))


def test_next_measurement_names_its_flag() -> None:
    assert "--disable-log-stats=false" in "\n".join(screen(make_bare_record()))


def test_unknown_is_said() -> None:
    assert any("unknown (no block identity" in line for line in screen(make_bare_record()))


def test_reuse_of_the_dataset_is_said() -> None:
    assert "reused" in screen(make_record(), reused=True)[-2]
    assert "reused" not in screen(make_record())[-2]


def test_the_last_line_is_what_to_type_next() -> None:
    record = make_record()
    for one in record.assumptions:
        one.is_confirmed = False
    count = len(record.assumptions)
    assert screen(record)[-1].split(maxsplit=1) == [
        "next",
        f"kvtrace init reports/chat/audit.json -o fleet.toml  # confirms {count} estimates",
    ]
    for one in record.assumptions:
        one.is_confirmed = True
    bare = make_bare_record()
    record.verdict.next_measurement = bare.verdict.next_measurement
    assert "kvtrace explain pays_only_if --audit reports/chat/audit.json" in screen(record)[-1]
    record.verdict.next_measurement = None
    assert "kvtrace report reports/chat/audit.json --to adr -o adr.md" in screen(record)[-1]


@pytest.mark.parametrize("width", range(74, 116, 7))
def test_what_is_left_out_is_left_out_in_whole_words(width: int) -> None:
    record = make_record()
    record.data.validity = record.data.validity * 2
    words = "Estimates that nobody confirmed: pool size, idle memory, contract of the GPUs " * 4
    record.data.validity[0].message = words
    record.findings = make_findings() * 9
    known = set(words.replace(":", "").replace(",", "").split())
    shown = line_of(record, "validity", width=width).partition("warning: ")[2].partition(" …")[0]
    assert shown
    assert set(shown.replace(":", "").replace(",", "").split()) <= known


def test_terminal_escapes_from_a_log_are_shown_not_obeyed() -> None:
    record = make_record()
    record.data.validity[0].message = "\x1b]0;owned\x07 text"
    record.findings[0].title = "\x1b[2Jgone"
    text = "\n".join(screen(record))
    assert "\x1b" not in text
    assert "\x07" not in text


def facts(*, confirmed: bool, **changes: object) -> list[Quantity]:
    """The six facts about the service."""
    values = {
        "llm": "Meta-Llama-3.1-70B",
        "weight_dtype": "bf16",
        "kv_dtype": "bf16",
        "hardware": "H100-SXM5",
        "tp": 8,
        "instances": 1,
    } | changes
    return [
        quantity(id, value, "name", is_confirmed=confirmed, kind="given")  # type: ignore[arg-type]
        for id, value in values.items()
    ]


def line_of(record: AuditRecord, label: str, *, width: int = 100) -> str:
    """A labelled line with those that follow under it."""
    lines = screen(record, width=width)
    first = next(i for i, line in enumerate(lines) if line.startswith(label))
    after = next(i for i, line in enumerate(lines) if i > first and not line.startswith(" " * 12))
    return " ".join(line.strip() for line in lines[first:after])


def test_served_by_marks_what_nobody_stated() -> None:
    record = make_record()
    record.assumptions = facts(confirmed=True)
    served = line_of(record, "served by")
    assert served == "served by   Meta-Llama-3.1-70B, bf16, H100-SXM5 × 8, 1 instance"
    next(one for one in record.assumptions if one.id == "tp").is_confirmed = False
    assert "H100-SXM5 × 8 (tp assumed), 1 instance" in line_of(record, "served by")
    record.assumptions = facts(confirmed=False, kv_dtype="fp8")
    assert line_of(record, "served by").endswith(
        "bf16 weights, fp8 KV, H100-SXM5 × 8, 1 instance (all assumed)"
    )


def test_files_that_no_format_recognised_are_named() -> None:
    record = make_record()
    record.data.files.append(make_file("notes.bin", format=None, file_id=1))
    assert "1 of 2 files not recognised: notes.bin" in "\n".join(screen(record))


def test_sources_beside_the_headline_are_named() -> None:
    record = make_record()
    beside = copy(record.data.sources[0])
    beside.format, beside.role = "vllm_metrics", "beside"
    record.data.sources.append(beside)
    assert "the headline is mooncake, vllm_metrics stands beside it" in line_of(record, "evidence")


def test_replayed_window_and_its_ceiling_are_said() -> None:
    record = make_record()
    record.replay_window = ReplayWindow(
        requests=2_345,
        of_requests=12_031,
        span_s=3_600.0,
        is_whole_trace=False,
        is_peak_hour=True,
        prompt_tokens=30_000_000,
        reusable_tokens=11_400_000,
        reusable_ratio_tokens=0.38,
    )
    text = "\n".join(screen(record))
    assert "peak hour: 2,345 of 12,031 requests; `--depth full` replays all" in text
    assert "replays all; hit ceiling 38 %" in text


def test_more_notes_cannot_be_read_as_more_of_what_is_named() -> None:
    record = make_record()
    record.data.validity = record.data.validity * 3
    left = len(record.data.validity) - 1
    assert f"(and {left} more notes in the report)" in line_of(record, "validity")


@pytest.mark.parametrize("width", [40, 60, 72, 140])
def test_screen_follows_the_width_of_the_terminal(width: int) -> None:
    for record in (make_record(), make_bare_record()):
        lines = screen(record, width=width)
        assert len(lines) <= 20
        assert max(map(len, lines[:-1])) <= max(width, 60)  # the last is to be pasted whole


def test_texts_wrap_while_there_is_room() -> None:
    record = make_record()
    record.findings = []
    record.verdict.confidence_reasons = ["reason " * 16 + "end"]
    assert line_of(record, "confidence").endswith("end")


@pytest.mark.parametrize("width", [60, 80, 100])
def test_the_sentence_of_the_verdict_is_never_cut(width: int) -> None:
    record = make_record()
    record.verdict.headline = (
        "A pool pays only if " + "it gives a whole instance back, " * 12 + "end."
    )
    lines = screen(record, width=width)
    start = next(i for i, line in enumerate(lines) if line.startswith("verdict"))
    end = next(i for i, line in enumerate(lines) if line.startswith("confidence"))
    assert " ".join(line.strip() for line in lines[start + 1 : end]) == record.verdict.headline
    assert all(len(line) <= width for line in lines[start:end])
