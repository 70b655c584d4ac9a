"""How few instances one option needs, searched over replays at every load."""

from __future__ import annotations

import math
from dataclasses import dataclass

from kvtrace.api.fleet_loads import LOADS, LoadedWindows
from kvtrace.api.fleet_questions import MOST_LOAD, Asker, stated_fleet
from kvtrace.audit.fleet.binding import bind
from kvtrace.audit.fleet.facts import OptionFacts
from kvtrace.audit.fleet.needs import Tried, searched_need
from kvtrace.audit.fleet.record import Binding, OptionNeed
from kvtrace.audit.fleet.surrogate import Sample, estimate
from kvtrace.audit.options.kinds import is_local
from kvtrace.audit.slo.fleets import OBSERVED
from kvtrace.audit.slo.reference import Reference
from kvtrace.replay.options.ground import Ground
from kvtrace.replay.relax import RESOURCES
from kvtrace.replay.window import WindowedTrace
from kvtrace.schema.arrays import IntArray


@dataclass(frozen=True, slots=True)
class OptionSearch:
    """The fleet of one option that is looked for."""

    option_id: str
    ground: Ground
    today: Reference
    today_sample: Sample
    reference: str
    """The option that `today` is."""
    sessions: IntArray
    seed: int


def search_option(windowed: WindowedTrace, search: OptionSearch) -> OptionFacts:
    """All that replays say of one option: its fleets, what binds, the load that it carries."""
    asker = Asker(
        loads=LoadedWindows(windowed, search.sessions, search.seed),
        today=search.today,
        stated=stated_fleet(search.ground),
    )
    ident = search.option_id
    needs, least = _needs(asker, ident, search.today_sample)
    stated = asker.ask(ident, search.ground.fleet.instances, 1.0)
    return OptionFacts(
        needs=tuple(needs),
        binding=_bound(asker, ident, needs[0]),
        on_stated=asker.on_stated(ident),
        load_at_slo=asker.load_at_slo(ident, guess_load(stated.sample, search.today_sample)),
        least=least,
        carried=_carried(asker, ident) if is_local(ident) or ident == OBSERVED else None,
        free_prefill_saves=_without_prefill(asker, ident, needs[0].instances)
        if ident == search.reference
        else None,
        replays=asker.replays,
    )


def _needs(asker: Asker, ident: str, today: Sample) -> tuple[list[OptionNeed], int]:
    """At every load, and the fewest that miss the SLO narrowly at most.

    Where no fleet is enough for one load, greater ones are not asked.
    """
    instances = asker.stated.instances
    samples = [asker.ask(ident, instances, 1.0).sample]
    found: list[OptionNeed] = []
    least = 0
    for load in LOADS:
        question = asker.question(load)
        before = found[-1].instances if found else instances
        if before is None:
            found.append(_unasked(found[-1], load, question.most))
            continue
        start = round(before * load / found[-1].load) if found else instances
        search = asker.fewest(ident, load, start)
        guess = estimate(samples, today, load).instances
        found.append(searched_need(question, ident, search, guess))
        if load == 1:
            least = asker.clearly_fewest(ident, search)
    return found, least


def _unasked(smaller: OptionNeed, load: float, most: int) -> OptionNeed:
    """At a greater load than one at which no fleet keeps the SLO."""
    why = "at a smaller load no fleet was enough; not replayed at this one"
    is_infeasible = smaller.is_infeasible
    return OptionNeed(
        option=smaller.option,
        load=load,
        instances=None,
        gpus=None,
        basis="none",
        at_least=smaller.at_least,
        most=most,
        is_infeasible=is_infeasible,
        floor_s=smaller.floor_s,
        allowed_s=smaller.allowed_s,
        reason=smaller.reason if is_infeasible else why,
    )


def _bound(asker: Asker, ident: str, need: OptionNeed) -> Binding:
    """Of the largest fleet that misses the SLO; of the stated one where none does."""
    count = need.instances
    missed = min(need.most, need.at_least - 1) if count is None else count - 1
    tried = asker.ask(ident, missed or asker.stated.instances, 1.0)
    relaxed = {}
    if not tried.check.is_kept:
        relaxed = {one: asker.relaxed(tried, one).check for one in RESOURCES}
    return bind(asker.window(1.0), tried.result, tried.check, relaxed)


def guess_load(mine: Sample, today: Sample) -> float:
    """The load that brings the option to today's offered load."""
    if not mine.offered_load or not today.offered_load:
        return 1.0
    return min(float(MOST_LOAD), today.offered_load / mine.offered_load)


def _carried(asker: Asker, ident: str) -> int | None:
    """The fewest instances that carry the load; null: more than are looked at."""
    tried: Tried = asker.ask(ident, asker.stated.instances, 1.0)
    load = tried.result.offered_load
    known = load if load is not None and math.isfinite(load) else 1.0
    return asker.carries(ident, math.ceil(asker.stated.instances * known)).count


def _without_prefill(asker: Asker, ident: str, need: int | None) -> int | None:
    """Instances that the option would save if no prefill took any time."""
    if need is None:
        return None
    least = need
    while least > 1 and asker.relaxed(asker.ask(ident, least - 1, 1.0), "prefill").check.is_kept:
        least -= 1
    return need - least
