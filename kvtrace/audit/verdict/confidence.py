"""How far to trust a verdict, and the reasons that set it."""

from __future__ import annotations

from collections.abc import Iterator

from kvtrace.audit.record import Level
from kvtrace.audit.thresholds import CLEAR_MARGIN, LONG_SPAN, MIN_REQUESTS, MIN_SPAN
from kvtrace.audit.verdict.cases import Case, Decision
from kvtrace.audit.words import GRADE_SAYS, counted
from kvtrace.units import format_seconds

UNSAMPLED = "the chance that the pool pays was not sampled (`--depth full` samples it)"


def judge_confidence(case: Case, decision: Decision) -> tuple[Level, tuple[str, ...]]:
    """The level and the (at most two) reasons that set it, the strongest first."""
    low = tuple(_reasons_for_low(case, decision))
    if low:
        return "low", low[:2]
    medium = tuple(_reasons_for_medium(case, decision))
    if medium:
        return "medium", medium[:2]
    return "high", (
        "block identity of every request, over at least a day",
        "the intervals of value and cost lie clearly apart",
    )


def _reasons_for_low(case: Case, decision: Decision) -> Iterator[str]:
    if case.unconfirmed:
        yield f"estimates that nobody confirmed: {', '.join(case.unconfirmed)}"
    if case.requests < MIN_REQUESTS.value:
        yield f"{counted(case.requests, 'request')}, fewer than {MIN_REQUESTS.value:,.0f}"
    if case.span_s is None:
        yield "no clock, so the load is unknown"
    elif case.span_s < MIN_SPAN.value:
        yield (
            f"a window of {format_seconds(case.span_s)}, shorter than "
            f"{format_seconds(MIN_SPAN.value)}"
        )
    if case.log_gap is not None:
        yield f"the log is not whole: {case.log_gap.what}"
    if case.around.dominant:
        yield case.around.dominant
    if decision.outcome == "pays" and case.chance is None:
        yield UNSAMPLED
    if case.grade != "A":
        yield GRADE_SAYS[case.grade]


def _reasons_for_medium(case: Case, decision: Decision) -> Iterator[str]:
    if not decision.is_proof and not _is_clear(case):
        yield "the intervals of value and cost are not clearly apart"
    if not decision.is_proof and case.chance is not None and case.chance.is_open:
        yield str(case.chance)
    if case.span_s is not None and case.span_s < LONG_SPAN.value:
        window = format_seconds(case.span_s)
        yield f"a window of {window} that need not hold the busiest hour of a day"
    if not decision.is_proof:
        yield "latencies and hits of the options are modelled"


def _is_clear(case: Case) -> bool:
    """Value and cost of every pool are apart by the clear margin, all to the same side."""
    margin = CLEAR_MARGIN.value
    above = [pool.saving.low > margin * pool.cost.high for pool in case.pools]
    below = [pool.cost.low > margin * pool.saving.high for pool in case.pools]
    return bool(case.pools) and (any(above) or all(below))
