"""A search over mixes of options: which are replayed, within a budget, and what is left."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from kvtrace.api.replays import Replays, WindowRuns
from kvtrace.audit.money.bills import build_bills
from kvtrace.audit.options.kinds import is_pool
from kvtrace.audit.options.mixes import (
    SHOWN,
    Mix,
    MixFacts,
    Weighed,
    surrogate_tails,
    untried,
    worth_a_replay,
)
from kvtrace.exec.progress import Progress
from kvtrace.replay.options.catalogue import build_catalogue, build_mixes
from kvtrace.replay.options.ground import Ground
from kvtrace.replay.options.option import Catalogue, ReplayOption
from kvtrace.replay.options.recipes import FP8, changes_of
from kvtrace.replay.result import ReplayResult
from kvtrace.replay.summary import percentiles

MOST_QUICK: Final = 4
MOST_FULL: Final = 20
"""Mixes that are replayed at most, by depth."""


def with_mixes(
    run: WindowRuns, replays: Replays, ground: Ground, watch: Progress, *, is_full: bool
) -> Replays:
    """The replays, with those of the mixes that a search chose; `run` is of the same window."""
    if not replays.results or not any(is_pool(one.option_id) for one in replays.options):
        return replays
    watch.start("mixes")
    options, made, facts = search_mixes(
        run, replays.catalogue, replays.results, ground, is_full=is_full
    )
    watch.finish(f"{len(made)} replayed (at most {facts.most}); {facts.by_surrogate} by surrogate")
    catalogue = replays.catalogue
    chosen = [one for one in options if one.option_id not in catalogue.by_id]
    catalogue = replace(
        catalogue,
        options=(*catalogue.options, *chosen),
        left_to_full=catalogue.left_to_full - sum(_is_of_catalogue(one) for one in chosen),
    )
    results = (*replays.results, *made)
    return replace(replays, results=results, catalogue=catalogue, mixes=facts)


def _is_of_catalogue(option: ReplayOption) -> bool:
    """Depth full would have replayed it anyway."""
    changes = changes_of(option.option_id)[1]
    is_pooled_mix = option.family == "pool" and changes - {FP8}
    return not is_pooled_mix


def search_mixes(
    run: WindowRuns,
    catalogue: Catalogue,
    results: Sequence[ReplayResult],
    ground: Ground,
    *,
    is_full: bool,
) -> tuple[list[ReplayOption], list[ReplayResult], MixFacts]:
    """(mixes that were replayed, their replays, what is said of the search).

    Candidates: pools with idle DRAM above them or with twice the nodes, by routing, number format
    and isolation; at depth quick also the options that only full replays. Each change that nobody
    replayed comes first, then the cheapest millisecond by the surrogate, weighed again after half
    of the budget.
    """
    known = {one.option_id: one for one in catalogue.options}
    left = {one.option_id: one for one in _candidates(catalogue, ground, is_full=is_full)}
    made: list[ReplayResult] = []
    most = MOST_FULL if is_full else MOST_QUICK
    if not any(is_pool(one) and not r.is_overloaded for one, r in _by_id(results)):
        return [], [], MixFacts(by_surrogate=len(left))
    first = untried(list(left), _weighed([*results], known, ground))[:most]
    made += run.all([left[ident].scenario for ident in first])
    for share in (0.5, 1.0):
        budget = round(share * most) - len(made)
        done = {r.scenario.option_id for r in made}
        open_ones = [one for one in left.values() if one.option_id not in done]
        ranked = _ranked(open_ones, [*results, *made], {**known, **left}, ground)
        made += run.all([left[mix.option_id].scenario for mix in ranked[: max(0, budget)]])
    done = {r.scenario.option_id for r in made}
    open_ones = [one for one in left.values() if one.option_id not in done]
    ranked = _ranked(open_ones, [*results, *made], {**known, **left}, ground)
    replayed = tuple(r.scenario.option_id for r in made)
    facts = MixFacts(
        replayed=replayed,
        most=most,
        by_surrogate=len(open_ones),
        promising=tuple(ranked[:SHOWN]),
    )
    return [replace(left[ident], is_quick=False) for ident in replayed], made, facts


def _candidates(catalogue: Catalogue, ground: Ground, *, is_full: bool) -> Iterable[ReplayOption]:
    every = [] if is_full else build_catalogue(ground, is_full=True).options
    found = [*every, *build_mixes(ground)]
    return [one for one in found if one.option_id not in catalogue.by_id]


def _by_id(results: Sequence[ReplayResult]) -> list[tuple[str, ReplayResult]]:
    return [(one.scenario.option_id, one) for one in results]


def _ranked(
    mixes: Sequence[ReplayOption],
    results: Sequence[ReplayResult],
    options: dict[str, ReplayOption],
    ground: Ground,
) -> list[Mix]:
    """The mixes that promise most, by the surrogate."""
    known = _weighed(results, options, ground)
    bills = build_bills(ground.fleet, mixes, (), windows_per_day=None)
    tails = surrogate_tails(
        [one.option_id for one in mixes], {one.option_id: one.tail_s for one in known}
    )
    candidates = []
    for one in mixes:
        usd, tail_s = bills.usd_per_month(one.option_id), tails.get(one.option_id)
        if usd is not None and tail_s is not None:
            title = one.scenario.title
            candidates.append(Mix(one.option_id, title, usd.value, tail_s, 0.0))
    return worth_a_replay(candidates, known)


def _weighed(
    results: Sequence[ReplayResult], options: dict[str, ReplayOption], ground: Ground
) -> list[Weighed]:
    """Replayed options that carry the load at a known cost; without wear and egress."""
    able = [one for one in results if not one.is_overloaded]
    quantiles = {ident: percentiles(one.timeline.ttft_s) for ident, one in _by_id(able)}
    is_p90 = any(found[3] is None for found in quantiles.values())
    bills = build_bills(
        ground.fleet,
        [options[ident] for ident in quantiles if ident in options],
        (),
        windows_per_day=None,
    )
    found = []
    for ident, (_, _, p90, p99) in quantiles.items():
        usd, tail_s = bills.usd_per_month(ident), p90 if is_p90 else p99
        if usd is not None and tail_s is not None:
            found.append(Weighed(ident, usd.value, tail_s))
    return found
