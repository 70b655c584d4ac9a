"""The cases that a verdict must not get wrong: each by its numbers, and over random ones.

A false `pays` is the worst bug. Each row of the table makes one thing true of a case for which a
pool pays; whatever the other numbers are, the answer is then never `pays`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings

from kvtrace.audit.findings.sampling import LogGap
from kvtrace.audit.record import NextMeasurement, Outcome
from kvtrace.audit.uncertainty.ranges import Range
from kvtrace.audit.verdict.cases import Bound, Case, PoolCase
from kvtrace.audit.verdict.circumstances import Circumstances
from kvtrace.audit.verdict.rules import decide
from tests.unit.test_audit_verdict import PAYS
from tests.unit.verdict_draws import cases

Spoil = Callable[[Case], Case]


def pools_are(case: Case, **changes: object) -> tuple[PoolCase, ...]:
    """All pools of the case, changed alike."""
    return tuple(replace(pool, **changes) for pool in case.pools)  # type: ignore[arg-type]


def no_instance(case: Case) -> tuple[PoolCase, ...]:
    """Freed prefill that removes no whole instance, at no constants."""
    return pools_are(
        case,
        instances_saved=Range(0.0, 0.0, 0.7),
        freed=Range(0.3, 0.5, 0.7),
        saving=Range(0.0, 0.0, 12_000.0),
        unrounded_saving_usd=9_000.0,
    )


def only_avoided(case: Case) -> Case:
    """One instance: the pool gives none back, and without it the stated SLO needs a second."""
    pools = pools_are(
        case,
        instances_saved=Range(0.0, 0.0, 1.0),
        saving=Range(0.0, 0.0, 70_000.0),
        is_saving_replayed=False,
        avoided=1,
    )
    return replace(case, pools=pools, is_slo_stated=True, is_pool_needed=False)


def served_by_rival(case: Case, *, hbm: bool) -> Case:
    """The best option without a pool serves 59 of 60 reusable tokens."""
    return replace(
        case,
        prompt_tokens=100_000,
        reusable_tokens=60_000,
        rival_title="Idle DRAM",
        rival_hit_tokens=59_000,
        hbm_hit_tokens=59_000 if hbm else 20_000,
        is_pool_needed=False,
        pools=pools_are(case, extra_hit_tokens=500),
    )


def no_reuse(case: Case) -> Case:
    return replace(case, reusable_tokens=0, trace_reusable_tokens=0)


def slow_network(case: Case) -> Case:
    return replace(
        case,
        pools=pools_are(
            case,
            net_negative_share=0.8,
            path_bytes_per_s=4e9,
            break_even_bytes_per_s=20e9,
        ),
    )


def tiny_kv(case: Case) -> Case:
    """MLA: the KV of everything fits into HBM, and moving it would cost nothing."""
    return replace(
        served_by_rival(case, hbm=True),
        rival_title="HBM only",
        pools=pools_are(case, extra_hit_tokens=500, net_negative_share=0.0),
    )


def small_model_fat_kv(case: Case) -> Case:
    """A prefill so cheap that all of it is worth less than a pool, and KV that is slow to move."""
    cost = Range(10_000.0, 15_000.0, 20_000.0)
    free = Bound(
        instances=Range(0.1, 0.2, 0.3), saving=Range(1_000.0, 2_000.0, 3_000.0), what="free"
    )
    return replace(
        case,
        all_prefill=free,
        all_reuse=free,
        lowest_pool_cost=cost,
        pools=pools_are(
            case,
            cost=cost,
            saving=Range(0.0, 0.0, 3_000.0),
            instances_saved=Range(0.0, 0.0, 0.3),
            is_saving_replayed=False,
            net_negative_share=0.9,
        ),
    )


def fragmented(case: Case) -> Case:
    pieces = "KV goes in pieces of 64 KiB, with which pcie5_x16 reaches 26 % of its rate"
    return replace(slow_network(case), around=replace(case.around, pieces=pieces))


def starved(case: Case) -> Case:
    where = "TTFT p90 of prompts of 512 to 1,024 tokens is longer by 300 ms"
    return replace(case, pools=pools_are(case, is_no_slower=False, worst_excess=where))


def bound_by(case: Case, resource: str) -> Case:
    said = f"{resource} limits today's fleet, not prefill: a hit frees prefill only"
    return replace(
        case,
        around=replace(case.around, binds=said),
        prefill_utilisation=0.1,
        is_pool_needed=False,
        pools=no_instance(case),
    )


def grade(case: Case, letter: str) -> Case:
    """Without block identity there is no reuse to replay."""
    return replace(case, grade=letter, reusable_tokens=None, all_reuse=None, pools=())  # type: ignore[arg-type]


def sampled(case: Case) -> Case:
    whole = NextMeasurement(question="all?", flag="--rate 1", hours=2, settles="reuse")
    gap = LogGap(
        what="requests are missing from it",
        evidence="one in ten requests is logged",
        hides_reuse=True,
        measurement=whole,
    )
    return replace(case, log_gap=gap)


def one_conversation(case: Case) -> Case:
    said = "one of 900 conversations brings 62 % of the reuse (620 of 1,000 tokens)"
    return replace(case, around=replace(case.around, dominant=said))


def over_a_day(case: Case) -> Case:
    """A window and a fleet that stand in the way of no verdict."""
    return replace(case, span_s=90_000.0, is_pool_needed=False)


@dataclass(frozen=True)
class Row:
    """One case: how it is made of one that pays, and what is said of it."""

    name: str
    spoil: Spoil
    outcome: Outcome
    said: str
    """In headline, reasons or conditions."""


TABLE = [
    Row("no reuse", no_reuse, "does_not_pay", "no block of this trace is ever used again"),
    Row(
        "reuse all in HBM",
        lambda case: served_by_rival(case, hbm=True),
        "does_not_pay",
        "HBM already serves the hits",
    ),
    Row(
        "beyond HBM but within idle DRAM",
        lambda case: served_by_rival(case, hbm=False),
        "does_not_pay",
        "Idle DRAM already serves the hits",
    ),
    Row("pooled reuse on a slow network", slow_network, "pays_only_if", "a move gets at least"),
    Row("MLA with tiny KV", tiny_kv, "does_not_pay", "HBM already serves the hits"),
    Row(
        "small model with fat KV",
        small_model_fat_kv,
        "does_not_pay",
        "even if it made all prefill free",
    ),
    Row(
        "fragmented copies",
        fragmented,
        "pays_only_if",
        "KV is gathered into larger pieces before it is moved",
    ),
    Row(
        "long prompts starving short ones",
        starved,
        "pays_only_if",
        "only if the tail gets no longer: TTFT p90 of prompts of 512",
    ),
    Row(
        "decode-bound",
        lambda case: bound_by(case, "decode bandwidth"),
        "does_not_pay",
        "Decode bandwidth limits today's fleet, not prefill",
    ),
    Row(
        "KV-capacity-bound",
        lambda case: bound_by(case, "HBM for KV"),
        "does_not_pay",
        "HBM for KV limits today's fleet, not prefill",
    ),
    Row(
        "prefill saved but no whole group",
        lambda case: replace(case, pools=no_instance(case), is_pool_needed=False),
        "pays_only_if",
        "would not remove a whole GPU",
    ),
    Row(
        "one instance that misses the stated SLO without a pool",
        only_avoided,
        "pays_only_if",
        "today's fleet misses the SLO that is stated: the pool avoids at least one more instance",
    ),
    Row(
        "elastic GPUs, and a stated peak for a window that covers no day",
        lambda case: replace(case, span_s=10_800.0, is_peak_stated=True),
        "pays_only_if",
        "the stated peak factor sizes the fleet only",
    ),
    Row(
        "a rival that costs nothing and that nobody replayed",
        lambda case: replace(case, unreplayed_rivals=("idle DRAM does not serve the same hits",)),
        "pays_only_if",
        "idle DRAM does not serve the same hits",
    ),
    Row(
        "replays that give back more than all prefill is worth",
        lambda case: replace(
            case,
            all_prefill=Bound(
                instances=Range(0.1, 0.2, 0.3), saving=Range(0.0, 100.0, 900.0), what="free"
            ),
            lowest_pool_cost=Range(1_000.0, 2_000.0, 3_000.0),
            smallest_pool_cost=None,
        ),
        "pays_only_if",
        "a fleet on fewer instances shows what replays do",
    ),
    Row("grade B", lambda case: grade(case, "B"), "cannot_tell", "how much of the prefill"),
    Row("grade C", lambda case: grade(case, "C"), "cannot_tell", "how much of the prefill"),
    Row(
        "grade C, bounds first",
        lambda case: grade(small_model_fat_kv(case), "C"),
        "does_not_pay",
        "even if it made all prefill free",
    ),
    Row("a sampled log", sampled, "pays_only_if", "a log of all requests shows the same"),
    Row(
        "a window too short",
        lambda case: replace(case, span_s=1_800.0),
        "pays_only_if",
        "a longer log shows the same",
    ),
    Row(
        "one dominating conversation",
        one_conversation,
        "pays_only_if",
        "other months reuse as much: one of 900 conversations brings 62 %",
    ),
    Row(
        "load beyond capacity",
        lambda case: replace(case, is_overloaded=True, load="no option carries it"),
        "cannot_tell",
        "no option, with or without a pool, carries the load",
    ),
    Row(
        "hits that the rival serves almost as well",
        lambda case: replace(
            case,
            is_history_known=False,
            is_pool_needed=False,
            prompt_tokens=100_000,
            pools=pools_are(case, extra_hit_tokens=1_000),
        ),
        "pays_only_if",
        "serves almost the same hits",
    ),
]
by_name = pytest.mark.parametrize("row", TABLE, ids=[row.name for row in TABLE])


@by_name
def test_each_case_has_its_answer_and_its_reason(row: Row) -> None:
    assert decide(PAYS, []).outcome == "pays"
    verdict = decide(row.spoil(PAYS), [])
    assert verdict.outcome == row.outcome
    assert any(
        row.said in text for text in (verdict.headline, *verdict.reasons, *verdict.conditions)
    )
    assert verdict.confidence in ("low", "medium", "high")
    assert 1 <= len(verdict.confidence_reasons) <= 2


@by_name
@given(case=cases())
@settings(max_examples=150)
def test_no_case_ever_pays_whatever_the_other_numbers_are(row: Row, case: Case) -> None:
    assert decide(row.spoil(over_a_day(case)), []).outcome != "pays"


def test_the_cases_that_are_drawn_do_pay_where_nothing_is_spoiled() -> None:
    # Else the law above would hold for nothing.
    paying = 0

    @given(case=cases())
    @settings(max_examples=400)
    def count_paying(case: Case) -> None:
        nonlocal paying
        paying += decide(over_a_day(case), []).outcome == "pays"

    count_paying()
    assert paying > 40


def test_a_dominating_conversation_sets_the_confidence_low() -> None:
    verdict = decide(one_conversation(PAYS), [])
    assert verdict.confidence == "low"
    assert any("brings 62 % of the reuse" in why for why in verdict.confidence_reasons)


def test_circumstances_that_say_nothing_change_nothing() -> None:
    assert decide(replace(PAYS, around=Circumstances()), []) == decide(PAYS, [])
