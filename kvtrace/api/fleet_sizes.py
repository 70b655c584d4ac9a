"""The fleets of all options: by searches at depth full, else from the replays that were made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from kvtrace.api.fleet_loads import LOADS, PeakHour
from kvtrace.api.fleet_questions import Asker, stated_fleet
from kvtrace.api.fleet_search import OptionSearch, guess_load, search_option
from kvtrace.api.replays import Replays, WindowRuns
from kvtrace.audit.fleet.binding import bind
from kvtrace.audit.fleet.facts import FleetFacts, OptionFacts
from kvtrace.audit.fleet.needs import Tried, estimated_need
from kvtrace.audit.fleet.record import Binding
from kvtrace.audit.slo.check import lookup_slack_s
from kvtrace.audit.slo.end_replays import replay_ends
from kvtrace.audit.slo.fleets import build_fleets, todays
from kvtrace.audit.slo.reference import reference_of
from kvtrace.exec.progress import Progress, counted
from kvtrace.replay.options.ground import Ground
from kvtrace.replay.relax import Resource
from kvtrace.replay.result import ReplayResult


def size_fleets(
    replays: Replays,
    peak: PeakHour,
    stated: Ground,
    run: WindowRuns,
    watch: Progress,
    *,
    is_full: bool,
) -> FleetFacts | None:
    """The fleets of the replayed options, judged by today's option on the fleet as it stands.

    Searches ask those of `--depth quick`: the others differ from one of them in a rate or a mix,
    and stand beside them by the surrogate.

    `replays` are of the peak hour unless the depth is full and the log longer; `run` replays it.
    """
    reference = todays(replays.results)
    if reference is None:
        return None
    watch.start("fleet search" if is_full else "fleet estimate")
    is_same = replays.windowed is not None and peak.windowed.trace is replays.windowed.trace
    base = reference if is_same else run.all((reference.scenario,))[0]
    asker = Asker(
        loads=peak.loads,
        today=reference_of(peak.windowed.window, base),
        stated=stated_fleet(stated),
    )
    quick = {one.option_id for one in replays.options if one.is_quick}
    ids = [result.scenario.option_id for result in replays.results]
    searched = [one for one in ids if one in quick] if is_full else []
    if is_same:
        _know(asker, replays, base)
    asker.know(base.scenario.option_id, base)
    found = _searched(asker, searched, base, stated, run)
    rest = [one for one in ids if one not in found]
    less = [result.scenario.option_id for result in replays.fewer] if is_same else []
    found |= _estimated(asker, rest, less, base)
    by_option = {ident: found[ident] for ident in ids}
    facts = FleetFacts(
        is_searched=is_full,
        reference=base.scenario.option_id,
        requests=asker.window(1.0).requests,
        uncached_tokens=peak.uncached_tokens,
        options=by_option,
    )
    made = sum(one.replays for one in by_option.values())
    watch.finish(counted(made, "replay") if made else "from the replays before")
    return facts


def _searched(
    asker: Asker,
    ids: Sequence[str],
    base: ReplayResult,
    stated: Ground,
    run: WindowRuns,
) -> dict[str, OptionFacts]:
    today = asker.know(base.scenario.option_id, base)
    searches = [
        OptionSearch(
            option_id=ident,
            ground=stated,
            today=asker.today,
            today_sample=today.sample,
            reference=base.scenario.option_id,
            sessions=asker.loads.sessions,
            seed=asker.loads.seed,
        )
        for ident in ids
    ]
    return dict(zip(ids, run.each(search_option, searches), strict=True))


def _know(asker: Asker, replays: Replays, base: ReplayResult) -> None:
    """The replays of the peak hour that were made already, with the usual load decision."""
    for result in (*replays.results, *replays.fewer):
        if result.scenario.load_decision == base.scenario.load_decision:
            asker.know(result.scenario.option_id, result)


def _estimated(
    asker: Asker, ids: Sequence[str], less: Sequence[str], base: ReplayResult
) -> dict[str, OptionFacts]:
    """From the replays that were made, and one of today's option on one instance less.

    `less`: options that were replayed on one instance less, too.
    """
    n, today_id = asker.stated.instances, base.scenario.option_id
    today = asker.ask(today_id, n, 1.0).sample
    found = {}
    for ident in ids:
        counts = (n, n - 1) if ident in less else (n,)
        tried = [asker.ask(ident, count, 1.0) for count in counts]
        before = asker.replays
        binding, relaxed = _looked_at(asker, tried, is_today=ident == today_id)
        is_carrying = tried[0].check.is_kept and tried[0].sample.offered_load
        found[ident] = OptionFacts(
            needs=tuple(
                estimated_need(
                    asker.question(load, is_replayed=False),
                    ident,
                    today,
                    tried,
                )
                for load in LOADS
            ),
            binding=binding,
            on_stated=asker.on_stated(ident),
            load_at_slo=guess_load(tried[0].sample, today) if is_carrying else None,
            free_prefill_saves=int(relaxed["prefill"].check.is_kept) if relaxed else None,
            replays=asker.replays - before,
        )
    return found


def _looked_at(
    asker: Asker, tried: Sequence[Tried], *, is_today: bool
) -> tuple[Binding, Mapping[Resource, Tried]]:
    """What binds on one instance less where that misses the SLO, else on the stated fleet.

    Of today's option that replay is made again with free prefill.
    """
    missed = [one for one in tried if not one.check.is_kept]
    chosen = missed[0] if missed else tried[0]
    relaxed: dict[Resource, Tried] = {}
    if is_today and missed and chosen.result.scenario.instances < asker.stated.instances:
        relaxed["prefill"] = asker.relaxed(chosen, "prefill")
    checks = {name: one.check for name, one in relaxed.items()}
    return bind(asker.window(1.0), chosen.result, chosen.check, checks), relaxed


def with_ends(
    replays: Replays,
    facts: FleetFacts | None,
    ground: Ground,
    run: WindowRuns,
    watch: Progress,
) -> Replays:
    """The replays, with what saves whole instances asked again at the ends of the constants."""
    windowed = replays.windowed
    if windowed is None or not replays.results:
        return replays
    ids = [result.scenario.option_id for result in replays.results]
    fleets, as_asked = (
        build_fleets(
            windowed.window,
            replays.results,
            fewer=replays.fewer,
            arbiter=arbiter,
            searched={} if facts is None else facts.at_slo,
            least={} if facts is None else facts.least,
            carried={} if facts is None else facts.carried,
            reserves={} if facts is None else facts.reserves,
            slack_s={ident: lookup_slack_s(ground.deployment, ident) for ident in ids},
            target=ground.fleet.slo,
            spare=ground.fleet.spare_count,
            options=replays.options,
        )
        for arbiter in (replays.arbiter, ())
    )
    claims = tuple(dict.fromkeys((*fleets.claims(), *as_asked.claims())))
    if not claims:
        return replays
    watch.start("ends of the constants")
    before = run.replays
    ends = replay_ends(claims, fleets.today, windowed.window, ground, run.all)
    made = run.replays - before
    watch.finish(counted(made, "replay") if made else "known from the replays before")
    return replace(replays, ends=ends)
