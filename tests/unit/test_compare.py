"""Two audits side by side: what differs, what only seems to, and what cannot be compared."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import jsonschema
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvtrace import api
from kvtrace.audit import jsonio
from kvtrace.audit.compare import comparison
from kvtrace.audit.compare.audits import compare_audits
from kvtrace.audit.compare.comparison import COMPARISON_SCHEMA_TITLE, Comparison
from kvtrace.audit.compare.rows import row_of_quantities, standing_of
from kvtrace.audit.record import AUDIT_SCHEMA_VERSION, AuditRecord
from kvtrace.errors import OutputError
from kvtrace.report.text.compare import comparison_lines
from tests.conftest import REPO
from tests.report.records import make_bare_record, make_record, quantity

GOLDEN = REPO / "tests" / "golden" / "audit_v1.json"


def compared(a: AuditRecord, b: AuditRecord) -> Comparison:
    return compare_audits(a, b, names=("a.json", "b.json"))


def changed() -> tuple[AuditRecord, AuditRecord]:
    return make_record(), make_record()


def test_a_record_is_like_itself() -> None:
    a, b = changed()
    done = compared(a, b)
    assert done.is_like_for_like
    assert not done.verdict.is_changed
    assert {row.standing for row in done.numbers} <= {"equal", "unknown"}
    assert (done.findings, done.assumptions, done.data) == ([], [], [])
    assert (done.options_gained, done.options_lost) == ([], [])
    assert done.findings_kept == [one.id for one in a.findings]


@pytest.mark.parametrize(
    ("a", "b", "standing"),
    [
        ((5, None, None), (5, None, None), "equal"),
        # 4..6 against 6..8: they share 6
        ((5, 4, 6), (7, 6, 8), "no_difference_shown"),
        ((5, 4, 6), (8, 7, 9), "differs"),
        # a point inside the interval of the other
        ((5, 4, 6), (5.5, None, None), "no_difference_shown"),
        ((5, 4, 6), (9, None, None), "differs"),
        ((None, None, None), (9, 8, 10), "unknown"),
        (("pool", None, None), ("no pool", None, None), "differs"),
    ],
)
def test_overlapping_intervals_show_no_difference(
    a: tuple[float, ...], b: tuple[float, ...], standing: str
) -> None:
    ours, theirs = (
        quantity("x", one[0], "s", low=one[1], high=one[2], kind="modelled") for one in (a, b)
    )
    assert standing_of(ours, theirs) == standing
    assert standing_of(theirs, ours) == standing


def test_values_without_interval_differ_by_what_they_are() -> None:
    modelled = [quantity("x", value, "s", kind="modelled") for value in (1, 2)]
    measured = [quantity("x", value, "s", kind="measured") for value in (1, 2)]
    assert standing_of(*modelled) == "differs_without_interval"
    assert standing_of(*measured) == "differs"
    assert standing_of(quantity("x", 1, "s"), quantity("x", 1, "times")) == "other_unit"


@given(st.floats(-1e9, 1e9), st.floats(-1e9, 1e9))
def test_the_difference_turns_its_sign_with_the_sides(a: float, b: float) -> None:
    ours, theirs = quantity("x", a, "s"), quantity("x", b, "s")
    there, back = row_of_quantities(ours, theirs), row_of_quantities(theirs, ours)
    assert there.difference == b - a
    assert back.difference == -(b - a)


def test_the_verdict_and_findings_that_changed_are_named() -> None:
    a, b = changed()
    b.verdict.outcome = "cannot_tell" if a.verdict.outcome != "cannot_tell" else "pays"
    gone, kept = b.findings[0], b.findings[1]
    b.findings = [one for one in b.findings if one.id != gone.id]
    new = copy.deepcopy(kept)
    new.id = "new_one"
    b.findings.append(new)
    kept.severity = "info" if kept.severity != "info" else "critical"
    done = compared(a, b)
    assert done.verdict.is_changed
    assert [(one.id, one.change) for one in done.findings] == [
        ("new_one", "gained"),
        (gone.id, "lost"),
        (kept.id, "severity"),
    ]


def test_options_are_matched_by_id() -> None:
    a, b = changed()
    first, *rest = b.options
    first.ttft_s.p99 = 99.0
    b.options = [first, *rest[:-1]]
    b.options[-1].id = "another"
    done = compared(a, b)
    (row,) = [one for one in done.options[0].rows if one.id == "ttft_p99_s"]
    assert (row.b, row.standing) == (99.0, "differs_without_interval")
    assert done.options_gained == ["another"]
    assert len(done.options_lost) == 2


def test_replays_within_the_tolerance_of_the_slo_show_no_difference() -> None:
    a, b = changed()
    a.options[0].ttft_s.p99, b.options[0].ttft_s.p99 = 10.0, 10.15  # 1.5 % of the larger
    a.options[0].ttft_s.p50, b.options[0].ttft_s.p50 = 1.0, 1.03  # 2.9 %
    done = compared(a, b)
    standings = {row.id: row.standing for row in done.options[0].rows}
    assert standings["ttft_p99_s"] == "no_difference_shown"
    assert standings["ttft_p50_s"] == "differs_without_interval"
    assert "  no difference shown: ttft p99" in comparison_lines(done)


def test_other_inputs_are_said_even_where_their_ranges_overlap() -> None:
    a, b = changed()
    stated = next(one for one in b.assumptions if isinstance(one.value, int | float))
    assert isinstance(stated.value, int | float)
    stated.value = stated.value * 2
    done = compared(a, b)
    assert [(row.id, row.standing) for row in done.assumptions] == [(stated.id, "differs")]


def test_another_trace_llm_or_hardware_is_said_first() -> None:
    a, b = changed()
    b.data.dataset_digest = "ff" * 16
    b.kv.llm = "Another-LLM"
    b.assumptions = [one for one in b.assumptions if one.id != "llm"]
    b.reproduce.kvtrace_version = "9.9"
    done = compared(a, b)
    assert not done.is_like_for_like
    assert done.cautions[0].code == "other_trace"
    assert {"other_llm", "other_version"} <= {one.code for one in done.cautions}
    assert "not like for like" in comparison_lines(done)[2]


def test_a_record_without_options_is_compared_as_far_as_it_goes() -> None:
    done = compared(make_record(), make_bare_record())
    assert "not_replayed" in {one.code for one in done.cautions}
    assert done.options == []
    assert done.options_lost
    assert all(row.standing == "unknown" for row in done.numbers if row.b is None)
    assert comparison_lines(done, 60)


def test_an_old_record_is_compared_and_one_of_the_future_refused(tmp_path: Path) -> None:
    (tmp_path / "audit.json").write_bytes(jsonio.dump(make_record()))
    done = api.compare(GOLDEN, tmp_path)
    document = json.loads(done.to_json())
    assert document["schema_version"] == 1
    assert msgspec.convert(document, Comparison) == done.comparison
    shipped = Path(comparison.__file__).with_name("comparison.schema.json").read_bytes()
    # After a change of the types: scripts/gen_schemas.py
    assert shipped == jsonio.schema_bytes(Comparison, title=COMPARISON_SCHEMA_TITLE)
    jsonschema.validate(document, json.loads(shipped))
    future = json.loads(GOLDEN.read_bytes())
    future["schema_version"] = AUDIT_SCHEMA_VERSION + 1
    (tmp_path / "future.json").write_text(json.dumps(future))
    with pytest.raises(OutputError) as caught:
        api.compare(GOLDEN, tmp_path / "future.json")
    assert caught.value.code == "KVT-A001"


def test_what_changed_is_listed_before_what_is_equal() -> None:
    a, b = changed()
    last = b.verdict.carrying_numbers[-1]
    last.value, last.low, last.high = 9e9, 8e9, 1e10
    done = compared(a, b)
    standings = [row.standing for row in done.numbers]
    assert standings[0] != standings[-1] == "differs"
    lines = comparison_lines(done)
    start = lines.index("numbers that carry the verdict")
    assert lines[start + 1].endswith(": differs")
