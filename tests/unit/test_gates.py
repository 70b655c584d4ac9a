"""Gates of --fail-on: what is accepted, what fails, and that unknown never passes in silence."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvtrace.api.gates import GateOutcome
from kvtrace.audit.gates.judge import Judged, judge
from kvtrace.audit.gates.language import parse_gates
from kvtrace.audit.gates.names import CARRYING, MONEY, NUMBERS, OPTION_NUMBERS, ORDERED, number_of
from kvtrace.audit.record import AuditRecord
from kvtrace.errors import UsageError
from tests.conftest import REPO, Analysed
from tests.report.records import make_bare_record, make_record


@pytest.fixture(scope="module")
def record() -> AuditRecord:
    return make_record()


def judged(record: AuditRecord, *texts: str) -> list[Judged]:
    return judge(parse_gates(texts, option_ids=[one.id for one in record.options]), record)


def state(record: AuditRecord, text: str) -> str:
    (one,) = judged(record, text)
    return one.state


def test_words_are_compared_by_their_order(record: AuditRecord) -> None:
    record.verdict.outcome, record.verdict.confidence = "pays_only_if", "medium"
    assert state(record, "verdict=pays_only_if") == "failed"
    assert state(record, "verdict!=pays_only_if") == "passed"
    assert state(record, "confidence<medium") == "passed"
    assert state(record, "confidence<=medium") == "failed"
    assert state(record, "confidence >= LOW") == "failed"
    assert state(record, "grade<A") == "passed"  # the record is of grade A


def test_a_severity_is_that_of_any_finding(record: AuditRecord) -> None:
    gravest = [one.id for one in record.findings if one.severity == "critical"]
    (one,) = judged(record, "severity>=critical")
    assert one.state == ("failed" if gravest else "passed")
    assert one.reason.startswith(f"{len(gravest)} finding")
    assert state(record, "severity>=info") == "failed"


def test_a_finding_fails_where_it_was_found(record: AuditRecord) -> None:
    found = record.findings[0].id
    assert state(record, f"finding:{found}") == "failed"
    record.findings = [one for one in record.findings if one.id != found]
    assert state(record, f"finding:{found}") == "passed"


def test_numbers_are_compared_and_told(record: AuditRecord) -> None:
    record.reuse.reusable_ratio_tokens = 0.25
    low, high = judged(record, "reusable_ratio_tokens<0.3,reusable_ratio_tokens>30%")
    assert (low.state, high.state) == ("failed", "passed")
    assert low.reason == "reusable_ratio_tokens is 0.25"


def test_net_negative_share_is_of_the_option_that_the_verdict_weighs(record: AuditRecord) -> None:
    option = record.options[-1]
    record.verdict.option = option.id
    option.hit_cost.hits, option.hit_cost.net_negative_hits = 80, 20
    option.hit_cost.net_negative = None
    # 20 of 80 loaded hits: 0.25
    assert number_of(record, "net_negative_share").value == 0.25
    assert state(record, "net_negative_share>0.2") == "failed"
    assert state(record, f"{option.id}.net_negative_share>0.25") == "passed"
    option.hit_cost.hits = 0
    assert state(record, "net_negative_share>0.2") == "cannot_be_judged"


def test_a_limit_inside_the_interval_is_said(record: AuditRecord) -> None:
    number = record.verdict.carrying_numbers[0]
    number.id, number.value = "best_case_usd_per_month", 5
    number.low, number.high = 2, 9
    inside, outside = judged(record, "best_case_usd_per_month>4", "best_case_usd_per_month>1")
    assert "inside its interval" in inside.reason
    assert "inside its interval" not in outside.reason
    assert "(2 to 9)" in outside.reason


def test_all_conditions_of_a_gate_must_hold(record: AuditRecord) -> None:
    record.verdict.outcome, record.verdict.confidence = "pays", "low"
    assert state(record, "verdict=pays and confidence<high") == "failed"
    assert state(record, "verdict=pays and confidence=high") == "passed"


def test_unknown_fails_unless_it_may_be_unknown() -> None:
    bare = make_bare_record()
    assert bare.reuse.reusable_ratio_tokens is None
    strict, lenient = judged(
        bare, "reusable_ratio_tokens<0.3, reusable_ratio_tokens<0.3 unless unknown"
    )
    assert strict.state == lenient.state == "cannot_be_judged"
    assert (strict.blocks, lenient.blocks) == (True, False)
    outcome = GateOutcome((strict, lenient))
    assert not outcome.has_passed
    assert [line for line in outcome.lines() if "cannot be judged" in line] == outcome.lines()[:2]
    assert outcome.lines()[-1] == "gates: 1 passed, 1 failed"
    # One condition that is known not to hold settles a gate, whatever else is unknown.
    assert state(bare, "reusable_ratio_tokens<0.3 and verdict=pays") == "passed"


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("", "KVT-G001", "empty"),
        ("verdict", "KVT-G001", "no gate"),
        ("__import__('os').system('x')", "KVT-G001", "no gate"),
        ("net_negativ_share>0.2", "KVT-G002", "`net_negative_share`"),
        ("finding:net_negative_hit", "KVT-G002", "`net_negative_hits`"),
        ("pool_dram_tpc.ttft_p99_s>1", "KVT-G002", "`pool_dram_tcp`"),
        ("pool_dram_tcp.ttft_p98_s>1", "KVT-G002", "`ttft_p99_s`"),
        ("verdict=perhaps", "KVT-G003", "cannot_tell"),
        ("verdict>pays", "KVT-G003", "no order"),
        ("severity>=bad", "KVT-G003", "critical"),
        ("severity=>warning", "KVT-G004", "`severity>=warning`"),
        ("p_pays =< 0.5", "KVT-G004", "`p_pays <= 0.5`"),
        ("verdict<>pays", "KVT-G004", "`verdict!=pays`"),
        ("span_s<1h", "KVT-G003", "a number"),
        ("span_s<nan", "KVT-G003", "a number"),
    ],
)
def test_what_is_no_gate_is_refused_with_close_matches(text: str, code: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_gates([text], option_ids=["pool_dram_tcp"])
    assert caught.value.code == code
    assert said in f"{caught.value.message} {caught.value.hint}"


@given(st.text(max_size=40))
def test_any_text_is_a_gate_or_refused(text: str) -> None:
    try:
        gates = parse_gates([text], option_ids=None)
    except UsageError:
        return
    assert all(gate.conditions for gate in gates)


def test_every_name_can_be_read_of_every_record(samples: Analysed, record: AuditRecord) -> None:
    for one in (samples.record, record, make_bare_record()):
        names = [
            *NUMBERS,
            *MONEY,
            *CARRYING,
            *(f"{o.id}.{n}" for o in one.options for n in OPTION_NUMBERS),
        ]
        for name in names:
            number = number_of(one, name)
            assert (number.value is None) == bool(number.why), name


def test_the_carrying_numbers_of_records_are_names_of_gates(samples: Analysed) -> None:
    ids = {one.id for one in samples.record.verdict.carrying_numbers}
    assert ids <= {*CARRYING, *NUMBERS}


def test_the_page_names_every_name() -> None:
    page = (REPO / "docs" / "gates.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([\w.]+)`", page))
    times = {
        name
        for name in OPTION_NUMBERS
        if name.partition("_")[0] in {"queue", "move", "prefill", "tpot"}
    }
    wanted = {
        *ORDERED,
        *NUMBERS,
        *MONEY,
        *CARRYING,
        *(set(OPTION_NUMBERS) - times),
        "prefill_utilisation",
    }
    assert wanted - named == set()


def test_the_money_of_the_weighed_pool_goes_by_the_ids_that_the_audit_shows(
    samples: Analysed,
) -> None:
    for one in (samples.record, make_record()):
        case = None if one.economics is None else one.economics.case
        for name, read in MONEY.items():
            assert case is None or read(case).id == name
    assert state(make_bare_record(), "npv<0") == "cannot_be_judged"
