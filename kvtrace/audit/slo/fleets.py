"""How many instances each option needs for today's SLO, as far as replays tell.

A saved instance is one that a replay without it did not miss: a search gives the smallest number,
a replay on one instance less gives "at least one". Freed prefill time (the surrogate) is only an
estimate beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from kvtrace.audit.options.kinds import is_local, is_pool, priced_ids, quantised_ids, unweighed_ids
from kvtrace.audit.slo.check import AS_TODAY, check_slo
from kvtrace.audit.slo.ends import Claim, EndFleet
from kvtrace.audit.slo.figures import SloCheck
from kvtrace.audit.slo.standing import Standing
from kvtrace.audit.thresholds import NET_NEGATIVE_DOMINATES
from kvtrace.cost.slo_target import SloTarget
from kvtrace.replay.options.option import ReplayOption
from kvtrace.replay.result import ReplayResult
from kvtrace.replay.summary import gpu_seconds, hit_costs, percentiles
from kvtrace.schema.arrays import RequestTrace
from kvtrace.units import counted

TODAY: Final = "hbm_only"
"""The option that money and latency are compared with: prefix caching in HBM, nothing below it."""
OBSERVED: Final = "as_observed"
"""The running system itself, where it was replayed; it is today then."""


@dataclass(frozen=True, slots=True)
class Saved:
    """Whole instances that an option saves, by replays."""

    at_least: int
    """Given back of the stated fleet, or of the larger one that a search found the rivals to need;
    at the middle of the model's constants."""
    is_replayed: bool
    """Replays speak for both sides; False: nobody replayed fewer instances."""
    how: str
    """For people; empty where nothing is known."""
    low: int = 0
    """`at_least` where the same replays at the ends of the constants show it, too; else none."""
    at_ends: str = ""
    """What those replays say, for people; empty where nothing is claimed."""
    without_reserve: int = 0
    """`at_least` if nothing were kept for the time when its pool is down."""
    avoided: int = 0
    """Instances beyond the stated fleet that its rivals need and no search counted: nothing is
    given back, and that they would be added is for the team to say."""
    needed_without: int = 0
    """Instances that its rivals need at least, as far as this counts on it."""


@dataclass(frozen=True, slots=True)
class Fleets:
    """All options of one comparison."""

    standings: Mapping[str, Standing]
    today: ReplayResult | None
    """The reference; null where no option without a pool carries the load."""
    instances: int = 1
    rival_id: str | None = None
    """The best option without a pool."""
    local_ids: tuple[str, ...] = field(default=())
    """Options without a pool that cost nothing: all of them are rivals of a pool at once."""
    priced_ids: tuple[str, ...] = ()
    """Options without a pool that cost something: each is a rival net of its cost."""
    narrow: frozenset[str] = frozenset()
    """Options with KV of fewer bits, pools among them. As rivals they stand against pools with such
    KV alone: answers may differ, which nobody evaluated here."""
    narrow_local_ids: tuple[str, ...] = ()
    """As `local_ids`, with KV of fewer bits."""
    narrow_priced_ids: tuple[str, ...] = ()
    """As `priced_ids`, with KV of fewer bits."""
    ends: tuple[EndFleet, ...] = ()
    """The same at the ends of the constants; empty: not replayed there."""
    reserves: Mapping[str, int] = field(default_factory=dict)
    """By pooled option: instances that carry the load while its pool is down, as replayed; where
    absent, those that carry it with HBM only."""
    spare: int = 0
    """Instances that are kept beyond what the load needs, whatever the option."""
    is_slo_stated: bool = False
    """A team states the SLO; False: it is today's TTFT and TPOT."""

    @property
    def rival(self) -> Standing | None:
        """The best option without a pool."""
        return None if self.rival_id is None else self.standings[self.rival_id]

    def rivals_of(self, option_id: str) -> tuple[str, ...]:
        """Options without a pool that cost nothing and may stand in the place of this one."""
        return (*self.local_ids, *(self.narrow_local_ids if option_id in self.narrow else ()))

    def priced_rivals_of(self, option_id: str) -> tuple[str, ...]:
        """The same of those that cost something."""
        return (*self.priced_ids, *(self.narrow_priced_ids if option_id in self.narrow else ()))

    def best_rival_of(self, option_id: str) -> Standing | None:
        """The best of those that cost nothing."""
        if option_id not in self.narrow:
            return self.rival
        found = _rival([(ident, self.standings[ident]) for ident in self.rivals_of(option_id)])
        return None if found is None else self.standings[found]

    def matched_by(self, option_id: str) -> tuple[str, bool]:
        """A rival that needs no more instances than this option, where that is less than the stated
        fleet; and whether replays show it. False: no replay clearly shows that it needs more.

        Empty where the option gives nothing back, or each rival was seen to need more.
        """
        need = self.standings[option_id].most
        if need is None or need >= self.instances:
            return "", False
        rivals = [self.standings[ident] for ident in self.rivals_of(option_id)]
        equal = [rival for rival in rivals if rival.least <= need]
        shown = [rival for rival in equal if rival.most is not None and rival.most <= need]
        found = next(iter(shown or equal), None)
        return ("", False) if found is None else (found.result.scenario.title, bool(shown))

    @property
    def is_overloaded(self) -> bool:
        """No option carries the load, and no search found a fleet that does."""
        return bool(self.standings) and not any(
            s.is_feasible or s.searched is not None for s in self.standings.values()
        )

    def saved(self, option_id: str, *, against: Iterable[str] | None = None) -> Saved:
        """Whole instances that the option saves over all of `against` (default: its rivals)."""
        mine = self.standings[option_id]
        others = self.rivals_of(option_id) if against is None else against
        rivals = [self.standings[i] for i in others]
        rivals = [rival for rival in rivals if rival is not mine]
        need = mine.most
        if need is None or not rivals:
            return Saved(0, is_replayed=mine.fewer is not None, how=self._unmet(mine))
        at_least, beyond = self._over(rivals, need)
        kept = self._with_reserve(option_id, need, at_least)
        avoided = self._with_reserve(option_id, max(need, self.instances), beyond)
        is_tried = mine.fewer is not None or mine.searched is not None
        is_replayed = at_least > 0 or is_tried
        how = self._how(mine, rivals, at_least + beyond)
        if kept + avoided < at_least + beyond:
            how = f"{how}. {self._why_reserved(option_id)}"
        without = need + (at_least or avoided)
        if not kept:
            return Saved(0, is_replayed, how, 0, "", at_least, avoided, without)
        is_held, at_ends = self._at_ends(self._claim(mine, rivals, need + at_least, saved=kept))
        low = kept if is_held else 0
        return Saved(kept, is_replayed, how, low, at_ends, at_least, avoided, without)

    def _over(self, rivals: Sequence[Standing], need: int) -> tuple[int, int]:
        """Instances given back by an option that needs `need`, and those that it avoids beside.

        Given back: what the rivals need less `need`, of the stated fleet at most, unless a search
        counted what each of them needs. Rivals that miss the SLO on the stated fleet need at least
        one more: it is avoided, not given back.
        """
        least = min(rival.least for rival in rivals)
        if all(rival.searched is not None for rival in rivals):
            return max(0, least - need), 0
        beyond = min(least, self.instances + 1) - max(need, self.instances)
        return max(0, min(least, self.instances) - need), max(0, beyond)

    def reserve(self, option_id: str) -> int | None:
        """Instances that carry the load while the pool is down; null: more than were replayed.

        Those that are spare in any case are among them: they need not be kept for the pool.
        """
        known = self.reserves.get(option_id)
        hbm = self.standings.get(TODAY)
        needed = known if known is not None or hbm is None else hbm.fewest_that_carry
        return None if needed is None else max(1, needed - self.spare)

    def _with_reserve(self, option_id: str, need: int, saved: int) -> int:
        """Of the saved instances, those that the load does not need while the pool is down."""
        if not saved or not is_pool(option_id):
            return saved
        reserve = self.reserve(option_id)
        return 0 if reserve is None else max(0, need + saved - max(need, reserve))

    def _why_reserved(self, option_id: str) -> str:
        reserve = self.reserve(option_id)
        most = "more than " if reserve is None else ""
        needed = counted(self.instances if reserve is None else reserve, "instance")
        spare = f" beside {counted(self.spare, 'spare one')}" if self.spare else ""
        return (
            f"While its pool is down it takes {most}{needed}{spare} to carry the load "
            "(replayed): kept as the reserve"
        )

    def claims(self) -> tuple[Claim, ...]:
        """What the ends of the constants have to be asked: all that is saved over any reference."""
        found: dict[Claim, None] = {}
        for ident, mine in self.standings.items():
            priced = self.priced_rivals_of(ident)
            for against in (self.rivals_of(ident), (TODAY,), *((i,) for i in priced)):
                saved = self.saved(ident, against=[i for i in against if i in self.standings])
                rivals = [self.standings[i] for i in against if i in self.standings and i != ident]
                if saved.at_least and mine.most is not None:
                    least = mine.most + saved.without_reserve
                    found[self._claim(mine, rivals, least, saved=saved.at_least)] = None
        return tuple(found)

    def _claim(
        self, mine: Standing, rivals: Iterable[Standing], least: int, *, saved: int
    ) -> Claim:
        """On `least - saved` it keeps the SLO; on all but one of `least` no rival does.

        And while its pool is down the load is carried on the same instances.
        """
        hbm = self.standings.get(TODAY)
        is_reserved = is_pool(mine.result.scenario.option_id) and hbm is not None
        left = least - saved + self.spare
        reserve = hbm.run(left) if is_reserved and hbm is not None else None
        return Claim(
            mine.run(least - saved), tuple(rival.run(least - 1) for rival in rivals), reserve
        )

    def _at_ends(self, claim: Claim) -> tuple[bool, str]:
        """Whether the claim holds at all ends, and the sentence about it."""
        if not self.ends:
            return False, "the ends of the model's constants were not replayed"
        faults = [fault for end in self.ends if (fault := end.fault(claim))]
        titles = " and with ".join(end.title for end in self.ends)
        return not faults, faults[0] if faults else f"it is the same with {titles} (replayed)"

    def _unmet(self, mine: Standing) -> str:
        return "" if mine.check is None else str(mine.check)

    def _how(self, mine: Standing, rivals: Sequence[Standing], at_least: int) -> str:
        title, need = mine.result.scenario.title, mine.most
        today = "" if self.today is None else f" of {self.today.scenario.title} on {self.instances}"
        slo = "the stated SLO" if self.is_slo_stated else f"the TTFT and TPOT{today}"
        kept = "carries the load" if self.today is None else f"keeps {slo}"
        if at_least:
            others = ", ".join(_needs(rival, self.instances) for rival in rivals)
            return f"{title} {kept} with {_instances(need or 0)}; {others} (replayed)"
        if mine.searched is None and mine.fewer is not None and not mine.fewer.is_kept:
            verb = "does not keep" if mine.fewer.is_clearly_missed else "narrowly misses"
            return (
                f"On {_instances(self.instances - 1)} {title} {verb} {slo}: "
                f"{_worst(mine.fewer)} (replayed)"
            )
        spare = [r for r in rivals if r.fewer is not None and not r.fewer.is_clearly_missed]
        if mine.is_kept_with_fewer and spare:
            names = " and ".join(rival.result.scenario.title for rival in spare)
            return (
                f"On {_instances(self.instances - 1)} {names} keeps {slo}, too, "
                "or misses them narrowly (replayed): that instance can be given back without a pool"
            )
        return ""


def _worst(check: SloCheck) -> str:
    """The figure that is missed by most."""
    return str(check) if check.worst is None else str(check.worst)


def _instances(number: int) -> str:
    return counted(number, "instance")


def _needs(rival: Standing, instances: int) -> str:
    title = rival.result.scenario.title
    if rival.searched is not None:
        return f"{title} needs {rival.searched:,}"
    if not rival.is_feasible:
        return f"{title} cannot carry the load with {instances:,}"
    check = rival.check if rival.least > instances else rival.fewer
    shown = "" if check is None else f" ({_worst(check)})"
    return f"{title} does not with {instances - (rival.least <= instances):,}{shown}"


def build_fleets(
    trace: RequestTrace | None,
    results: Sequence[ReplayResult],
    *,
    fewer: Sequence[ReplayResult] = (),
    arbiter: Sequence[ReplayResult] = (),
    searched: Mapping[str, int] | None = None,
    least: Mapping[str, int] | None = None,
    carried: Mapping[str, int] | None = None,
    reserves: Mapping[str, int] | None = None,
    spare: int = 0,
    slack_s: Mapping[str, float] | None = None,
    ends: Sequence[EndFleet] = (),
    target: SloTarget = AS_TODAY,
    options: Sequence[ReplayOption] = (),
) -> Fleets:
    """Where each option stands.

    By option id: `searched` and `least`, as a search found them, the latter with narrow misses
    counted as kept; `carried`, the fewest that carry the load; `reserves`, the same of pooled
    options with their pool down; `slack_s`, the uncertainty of the lookup. `spare`: instances that
    are kept in any case. `options`: what the replayed ones need; one that is absent there costs
    nothing. KV of fewer bits is no rival of KV as it is, for answers may differ; nor are mixes that
    only `--depth full` replays.
    """
    if trace is None or not results:
        return Fleets({}, None)
    slack, found = slack_s or {}, searched or {}
    today = todays(results)

    def check(result: ReplayResult) -> SloCheck | None:
        if today is None:
            return None
        return check_slo(
            trace, result, today, slack_s=slack.get(result.scenario.option_id, 0.0), target=target
        )

    standings = {}
    for result in results:
        ident = result.scenario.option_id
        mine = [(r, check(r)) for r in (result, *arbiter) if r.scenario.option_id == ident]
        tried = [
            (c, r) for r in fewer if r.scenario.option_id == ident and (c := check(r)) is not None
        ]
        standings[ident] = replace(
            _standing(mine, tried),
            searched=found.get(ident),
            searched_least=(least or {}).get(ident),
            carried=(carried or {}).get(ident),
        )
    rivals = _rivals_by_kind(standings, options)
    local_ids = rivals[False, False]
    return Fleets(
        standings,
        today,
        instances=results[0].scenario.instances,
        rival_id=_rival([(i, standings[i]) for i in local_ids]),
        local_ids=local_ids,
        priced_ids=rivals[False, True],
        narrow=quantised_ids(options),
        narrow_local_ids=rivals[True, False],
        narrow_priced_ids=rivals[True, True],
        ends=tuple(ends),
        reserves=reserves or {},
        spare=spare,
        is_slo_stated=target.is_stated,
    )


def _rivals_by_kind(
    standings: Mapping[str, Standing], options: Sequence[ReplayOption]
) -> dict[tuple[bool, bool], tuple[str, ...]]:
    """Options without a pool by (KV of fewer bits, it costs something)."""
    priced, apart, narrow = priced_ids(options), unweighed_ids(options), quantised_ids(options)
    found: dict[tuple[bool, bool], list[str]] = {
        (bits, cost): [] for bits in (False, True) for cost in (False, True)
    }
    for ident, one in standings.items():
        if ident not in apart and (is_local(ident) or _is_without_pool(ident, one.result)):
            found[ident in narrow, ident in priced].append(ident)
    return {kind: tuple(ids) for kind, ids in found.items()}


def todays(results: Sequence[ReplayResult]) -> ReplayResult | None:
    """What runs: as observed, else HBM only; where that is overloaded, the best that is not."""
    able = [r for r in results if not r.is_overloaded and not is_pool(r.scenario.option_id)]
    for wanted in (OBSERVED, TODAY):
        named = [r for r in able if r.scenario.option_id == wanted]
        if named:
            return named[0]
    local = [r for r in able if is_local(r.scenario.option_id)]
    return min(local, key=lambda r: (gpu_seconds(r), r.scenario.option_id), default=None)


def _is_without_pool(option_id: str, result: ReplayResult) -> bool:
    """The running system, where its instances share nothing: a rival that is there already."""
    return option_id == OBSERVED and all(t.scope == "instance" for t in result.scenario.tiers)


Checked = tuple[ReplayResult, SloCheck | None]


def _standing(mine: Sequence[Checked], fewer: Sequence[tuple[SloCheck, ReplayResult]]) -> Standing:
    """One option by its load decisions (as replayed first), and on one instance less."""
    kept = next((one for one in fewer if one[0].is_kept), fewer[0] if fewer else None)
    result, as_replayed = mine[0]
    return Standing(
        *_better(mine),
        fewer=None if kept is None else kept[0],
        searched=None,
        as_replayed=as_replayed,
        fewer_decision=(result if kept is None else kept[1]).scenario.load_decision,
    )


def _better(variants: Sequence[Checked]) -> Checked:
    """Of the load decisions: the one that keeps the SLO with the least GPU time, else tail."""

    def rank(entry: Checked) -> tuple[bool, bool, float]:
        result, check = entry
        costs = hit_costs(result)
        limit = NET_NEGATIVE_DOMINATES.value * costs.hits
        is_slow = costs.hits > 0 and costs.net_negative_hits >= limit
        is_late = check is not None and not check.is_kept
        if is_slow or is_late or result.is_overloaded:
            return result.is_overloaded, True, percentiles(result.timeline.ttft_s)[2] or 0.0
        return False, False, gpu_seconds(result)

    return min(variants, key=rank)


def _rival(local: Sequence[tuple[str, Standing]]) -> str | None:
    """The fewest instances, then the least GPU time, then what is there already.

    A tail that is a little longer than today's does not take a rival out: it costs nothing.
    """

    def rank(entry: tuple[str, Standing]) -> tuple[bool, float, float, bool, str]:
        ident, standing = entry
        instances, most = standing.result.scenario.instances, standing.most
        need = float(instances if most is None else min(most, instances))
        return (
            not standing.is_feasible,
            need,
            gpu_seconds(standing.result),
            ident != TODAY,
            ident,
        )

    return min(local, key=rank, default=(None,))[0]
