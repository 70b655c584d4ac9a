"""The fewest instances of one option under one load, from a search or from a surrogate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kvtrace.audit.fleet.record import OptionNeed
from kvtrace.audit.fleet.surrogate import Sample, estimate
from kvtrace.audit.slo.alone import on_an_empty_fleet
from kvtrace.audit.slo.check import check_against
from kvtrace.audit.slo.figures import SloCheck
from kvtrace.audit.slo.reference import Reference
from kvtrace.cost.slo_target import SloTarget
from kvtrace.replay.result import ReplayResult
from kvtrace.replay.search import Smallest
from kvtrace.schema.arrays import RequestTrace
from kvtrace.units import counted, format_seconds


class Tried(NamedTuple):
    """One replay of a search, and how it stands."""

    result: ReplayResult
    check: SloCheck
    slack_s: float
    """Uncertainty of its lookup."""

    @property
    def sample(self) -> Sample:
        """For the surrogate."""
        result = self.result
        return Sample(result.scenario.instances, result.offered_load, self.check.is_kept)


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of every option under one load."""

    trace: RequestTrace
    """The scored requests."""
    load: float
    today: Reference
    target: SloTarget
    most: int
    gpus_per_instance: int


def floor_check(question: Question, tried: Tried) -> SloCheck:
    """The option on an empty fleet; what is missed there is missed on any number of instances."""
    alone = on_an_empty_fleet(question.trace, tried.result)
    return check_against(
        question.trace, alone, question.today, slack_s=tried.slack_s, target=question.target
    )


def searched_need(
    question: Question, option_id: str, found: Smallest[Tried], surrogate: int | None
) -> OptionNeed:
    """What the search found; where no count is enough, whether any could be."""
    count, missed = found.count, found.missed
    if count is not None:
        reason = "" if missed is None else str(missed.check)
        return _need(question, option_id, count, count, surrogate, reason)
    below = question.most + 1
    if missed is None:
        return _need(question, option_id, None, below, surrogate, "nothing was replayed")
    reason = f"on {counted(question.most, 'instance')}: {missed.check}"
    need = _need(question, option_id, None, below, surrogate, reason)
    _add_floor(question, need, missed)
    return need


def _need(
    question: Question,
    option_id: str,
    count: int | None,
    at_least: int,
    surrogate: int | None,
    reason: str,
) -> OptionNeed:
    return OptionNeed(
        option=option_id,
        load=question.load,
        instances=count,
        gpus=None if count is None else count * question.gpus_per_instance,
        basis="none" if count is None else "replayed",
        at_least=at_least,
        most=question.most,
        surrogate=surrogate,
        reason=reason,
    )


def estimated_need(
    question: Question, option_id: str, today: Sample | None, tried: Sequence[Tried]
) -> OptionNeed:
    """What was replayed to be enough; replayed where one less misses it; else what the surrogate
    says, which stands beside a count that was replayed.

    `tried`: on the stated fleet first. Where there are more, what that replay alone would have said
    stands beside the count. An option that misses the SLO there and on an empty fleet has no count.
    """
    if tried and not tried[0].check.is_kept:
        need = _need(question, option_id, None, 1, None, str(tried[0].check))
        _add_floor(question, need, tried[0])
        if need.is_infeasible:
            return need
    samples = [one.sample for one in tried]
    found = estimate(samples, today, question.load)
    kept = {one.result.scenario.instances for one in tried if one.check.is_kept}
    missed = {one.result.scenario.instances for one in tried if not one.check.is_kept}
    least = min(kept, default=None)
    is_shown = question.load == 1 and least is not None
    is_closed = is_shown and least is not None and (least == 1 or least - 1 in missed)
    count = least if is_shown else found.instances
    alone = estimate(samples[:1], today, question.load).instances if len(tried) > 1 else None
    late = next((one.check for one in tried if not one.check.is_kept), None)
    need = _need(
        question,
        option_id,
        count,
        least if is_closed and least is not None else found.at_least,
        found.instances if is_shown and not is_closed else alone,
        "" if late is None else str(late),
    )
    if count is not None and not is_closed:
        need.basis = "enough" if is_shown else "surrogate"
    return need


def _add_floor(question: Question, need: OptionNeed, tried: Tried) -> None:
    check = floor_check(question, tried)
    figure = check.worst
    if figure is None:
        return
    need.is_infeasible = True
    need.floor_s, need.allowed_s = figure.mine_s, figure.reference_s + figure.allowed_s
    need.reason = (
        f"no number of instances keeps the SLO: on an empty fleet {figure.where} is "
        f"{format_seconds(figure.mine_s)}, and {format_seconds(need.allowed_s)} is allowed"
    )
