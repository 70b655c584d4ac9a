"""A log that misses requests: reuse is at least what it shows; it says nothing against a pool."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from kvtrace.audit.build import build_audit
from kvtrace.audit.findings.sampling import LogGap, log_gap, sampled_log, sampling_validity
from kvtrace.audit.record import AuditRecord, NextMeasurement
from kvtrace.audit.uncertainty.ranges import Range
from kvtrace.audit.verdict.cases import Bound, Case
from kvtrace.audit.verdict.rules import decide
from kvtrace.report.sections import page_view
from kvtrace.report.texts import load_texts
from kvtrace.schema.manifest import Manifest, Note
from kvtrace.schema.sampling import KEPT_FACT, KIND_FACT, LOST_REUSE_FACT
from tests.unit.audit_fakes import (
    make_input,
    make_manifest,
    make_result,
    make_trace,
    reuse_queries,
    standard_replays,
)
from tests.unit.test_audit_verdict import CHEAP_BOUND, NOTHING_SHOWN, PAYS, pool

WHY = "Requests are missing from this log: every second one. Reuse read from it is a lower bound"
MEASUREMENT = NextMeasurement(question="what?", flag="--all", hours=2, settles="all")
BIASED = LogGap(
    what="requests are missing from it", evidence=WHY, hides_reuse=True, measurement=MEASUREMENT
)
PART = replace(BIASED, what="it holds a part of the load", hides_reuse=False)


def sampled(kind: str = "requests", facts: dict[str, float] | None = None) -> Manifest:
    """The manifest of a log of which ingest said this."""
    manifest = make_manifest()
    code = "session_sampled" if kind == "sessions" else "sampling_bias"
    manifest.totals.notes.append(Note(code=code, message=WHY, severity="warning"))
    manifest.sources[0].engine_facts.update({KIND_FACT: kind, **(facts or {})})
    return manifest


def audit(manifest: Manifest, **changes: object) -> AuditRecord:
    return build_audit(make_input(manifest=manifest, **changes))


# The verdict


@pytest.mark.parametrize("gap", [BIASED, PART])
@pytest.mark.parametrize(
    "case",
    [
        replace(PAYS, all_prefill=CHEAP_BOUND, pools=NOTHING_SHOWN),
        replace(PAYS, all_reuse=CHEAP_BOUND, pools=NOTHING_SHOWN),
        replace(PAYS, rival_hit_tokens=59_500_000, pools=pool(extra_hit_tokens=500_000)),
        replace(PAYS, pools=pool(saving=Range(0, 100, 200))),
    ],
)
def test_nothing_that_a_part_shows_speaks_against_a_pool(case: Case, gap: LogGap) -> None:
    assert decide(case, []).outcome == "does_not_pay"
    verdict = decide(replace(case, log_gap=gap), [])
    assert verdict.outcome == "cannot_tell"
    assert verdict.headline == f"Cannot tell from this log: {gap.what}"
    assert verdict.reasons[0] == WHY
    assert verdict.next_measurement == MEASUREMENT


def test_no_reuse_at_all_stands_only_where_conversations_are_whole() -> None:
    case = replace(PAYS, reusable_tokens=0)
    assert decide(replace(case, log_gap=PART), []).outcome == "does_not_pay"
    assert decide(replace(case, log_gap=BIASED), []).outcome == "cannot_tell"


@pytest.mark.parametrize("gap", [BIASED, PART])
def test_a_part_does_not_prove_that_a_pool_pays(gap: LogGap) -> None:
    verdict = decide(replace(PAYS, log_gap=gap), [])
    assert verdict.outcome == "pays_only_if"
    assert gap.what in verdict.headline
    assert any(gap.what in condition for condition in verdict.conditions)
    assert verdict.next_measurement == MEASUREMENT
    assert verdict.confidence == "low"


def test_a_log_that_cannot_tell_anyway_keeps_its_own_measurement() -> None:
    case = replace(PAYS, grade="L", reusable_tokens=None, all_reuse=None, pools=())
    verdict = decide(replace(case, log_gap=BIASED), [])
    assert verdict.outcome == "cannot_tell"
    assert verdict.next_measurement == PAYS.next_measurement
    assert WHY in verdict.reasons


def test_a_cheap_bound_stays_a_proof_for_a_whole_log() -> None:
    bound = Bound(instances=Range(0, 0, 0), saving=Range(0, 0, 0), what="free")
    case = replace(PAYS, all_prefill=bound, pools=NOTHING_SHOWN)
    assert decide(case, []).outcome == "does_not_pay"


# The record


def test_reuse_of_a_biased_log_is_worded_as_at_least() -> None:
    # 70 of 100 blocks of all but the first of 2 000 requests: 69.965 %.
    record = audit(sampled(facts={KEPT_FACT: 0.5, LOST_REUSE_FACT: 0.09}))
    assert record.reuse.lower_bound_reason == WHY
    entry = next(one for one in record.data.validity if one.code == "sampling_bias")
    assert entry.severity == "critical"
    assert entry.message == (
        f"{WHY}. At least 70.0 % is reusable, and another 9.0 % of the blocks had been computed "
        "before by requests that are missing"
    )
    finding = next(one for one in record.findings if one.id == "log_is_sampled")
    assert "At least 70.0 % of the prompt tokens are reusable" in finding.message
    assert [one.id for one in finding.evidence] == [
        "log_kept_share",
        "log_lost_reuse_share",
        "reusable_ratio_tokens_at_least",
    ]
    for lang, word in (("en", "at least "), ("zh", "至少 ")):
        ratios = page_view(record, load_texts(lang)).ratios
        assert [ratio.text for ratio in ratios if (ratio.text or "").startswith(word)]
        observed = ratios[-1].text
        assert observed is None or not observed.startswith(word)


def test_a_log_of_whole_sessions_keeps_its_ratios() -> None:
    record = audit(sampled("sessions", {KEPT_FACT: 0.1}))
    assert record.reuse.lower_bound_reason is None
    entry = next(one for one in record.data.validity if one.code == "session_sampled")
    assert entry.severity == "warning"
    finding = next(one for one in record.findings if one.id == "log_is_sampled")
    assert finding.severity == "warning"
    assert "At least" not in finding.message
    assert record.verdict.outcome != "does_not_pay"


def test_a_whole_log_says_nothing_of_sampling() -> None:
    record = audit(make_manifest())
    assert record.reuse.lower_bound_reason is None
    assert record.verdict.outcome == "pays"
    assert all("sampl" not in one.id for one in record.findings)


def test_low_reuse_of_a_biased_log_cannot_tell() -> None:
    # 1 of 100 blocks is shared: a whole log would say that a pool does not pay.
    changes: dict[str, object] = {
        "queries": reuse_queries(shared_blocks=1),
        "trace": make_trace(shared_blocks=1),
        "replays": (
            make_result("hbm_only", title="HBM only", hits={"hbm": 90}),
            make_result("pool_dram_tcp", title="Pool over TCP", hits={"hbm": 90, "pool": 5}),
        ),
    }
    assert audit(make_manifest(), **changes).verdict.outcome == "does_not_pay"
    verdict = audit(sampled("slow_only"), **changes).verdict
    assert verdict.outcome == "cannot_tell"
    assert verdict.next_measurement is not None
    assert "SGLANG_LOG_REQUEST_EXCEEDED_MS" in verdict.next_measurement.flag


def test_caches_that_hold_a_part_are_no_finding() -> None:
    # HBM serves 6 990 of 7 000 reusable tokens of the part that was logged.
    replays = (
        make_result("hbm_only", title="HBM only", hits={"hbm": 6990}),
        make_result("pool_dram_tcp", title="Pool over TCP", hits={"hbm": 6990, "pool": 5}),
    )
    whole = {one.id for one in audit(make_manifest(), replays=replays).findings}
    part = {one.id for one in audit(sampled(), replays=replays).findings}
    assert {"hits_end_at_hbm", "pool_adds_little"} <= whole
    assert not {"hits_end_at_hbm", "pool_adds_little"} & part


def test_idle_dram_that_holds_a_part_is_no_finding() -> None:
    replays = (
        make_result("hbm_only", title="HBM only", hits={"hbm": 2000}),
        make_result("dram_idle", title="Idle DRAM", hits={"hbm": 2000, "host_dram": 4990}),
        *standard_replays()[-1:],
    )
    whole = {one.id for one in audit(make_manifest(), replays=replays).findings}
    assert "working_set_fits_dram" in whole
    part = {one.id for one in audit(sampled(), replays=replays).findings}
    assert "working_set_fits_dram" not in part


# What the manifest says


@pytest.mark.parametrize("kind", ["requests", "sessions", "slow_only", "lost_lines"])
def test_every_kind_names_what_is_missing_and_what_would_help(kind: str) -> None:
    manifest = sampled(kind)
    gap = log_gap(sampled_log(manifest.sources, manifest.totals.notes))
    assert gap is not None
    assert gap.hides_reuse == (kind != "sessions")
    assert gap.what
    assert gap.measurement.flag
    msgspec.json.encode(gap.measurement)


def test_a_note_without_facts_is_enough() -> None:
    manifest = sampled()
    manifest.sources[0].engine_facts.clear()
    log = sampled_log(manifest.sources, manifest.totals.notes)
    assert log is not None
    assert (log.kind, log.kept_share, log.hides_reuse) == ("requests", None, True)
    assert "of the load" not in (log_gap(log) or BIASED).what


def test_unknown_reuse_is_not_called_at_least() -> None:
    manifest = sampled()
    log = sampled_log(manifest.sources, manifest.totals.notes)
    (entry,) = sampling_validity(log, None)
    assert entry.message == WHY
    assert list(sampling_validity(None, 0.5)) == []
