"""Which mixes of options are worth a replay: a surrogate of their tails, and the marginal price.

A mix that nobody replayed is taken as the replayed option that is nearest to it, times what each
further change did to the tails of options that were replayed with it and without it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

from kvtrace.audit.thresholds import SAME_STEP
from kvtrace.replay.options.recipes import OVER_IDLE_DRAM, TWICE, changes_of
from kvtrace.units import NS_PER_MS, NS_PER_S

_MS_PER_S: Final = NS_PER_S // NS_PER_MS
_AT_ONCE: Final = 1.0
"""USD a month within which two options cost the same."""
SHOWN: Final = 5
"""Mixes that were not replayed and are told, with the surrogate of their tails."""
UNTRIED_FIRST: Final = (TWICE, OVER_IDLE_DRAM)
"""Changes that no option of the catalogue holds: each is replayed once before it is guessed."""


@dataclass(frozen=True, slots=True)
class Weighed:
    """One option by cost and tail."""

    option_id: str
    usd_per_month: float
    tail_s: float
    """TTFT p99, or p90 where too few requests were replayed for it."""


@dataclass(frozen=True, slots=True)
class Mix:
    """A mix that was not replayed, by the surrogate."""

    option_id: str
    title: str
    usd_per_month: float
    tail_s: float
    usd_per_ms: float
    """What each ms less than the best replayed option of at most its cost takes a month."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MixFacts:
    """What a search over mixes did."""

    replayed: tuple[str, ...] = ()
    most: int = 0
    """Replays that it was allowed."""
    by_surrogate: int = 0
    """Mixes that were not replayed."""
    promising: tuple[Mix, ...] = ()
    """Of these, those that the surrogate places on the frontier, the best price first."""


def surrogate_tails(wanted: Iterable[str], tails: Mapping[str, float]) -> dict[str, float]:
    """By option id: seconds by the surrogate, from replayed `tails`; absent: nothing like it was
    replayed.

    Formula: tail of the replayed option with the same base and the most of its changes · Π median
    over replayed pairs of (with the change / without it); 1 where no pair was replayed.
    """
    known = {changes_of(ident): tail for ident, tail in tails.items()}
    every = {change for _, changes in known for change in changes}
    effects = {change: _effect(change, known) for change in every}
    found = {}
    for ident in wanted:
        base, changes = changes_of(ident)
        near = [(one, tail) for (b, one), tail in known.items() if b == base and one <= changes]
        if near:
            nearest, tail = max(near, key=lambda pair: (len(pair[0]), sorted(pair[0])))
            rest = changes - nearest
            found[ident] = tail * math.prod(effects.get(change, 1.0) for change in sorted(rest))
    return found


def _effect(change: str, known: Mapping[tuple[str, frozenset[str]], float]) -> float:
    pairs = [
        tail / known[base, changes - {change}]
        for (base, changes), tail in known.items()
        if change in changes and known.get((base, changes - {change}))
    ]
    return statistics.median(pairs) if pairs else 1.0


def untried(mixes: Sequence[str], known: Sequence[Weighed]) -> list[str]:
    """Of each change that no replayed option holds: its mix with the pool of the shortest tail."""
    held = {change for one in known for change in changes_of(one.option_id)[1]}
    by_tail = sorted(known, key=lambda one: (one.tail_s, one.option_id))
    found = []
    for change, one in product(UNTRIED_FIRST, by_tail):
        base, changes = changes_of(one.option_id)
        wanted = (base, changes | {change})
        mix = next((ident for ident in mixes if changes_of(ident) == wanted), None)
        if change not in held and mix is not None:
            held.add(change)
            found.append(mix)
    return found


def worth_a_replay(mixes: Sequence[Mix | Weighed], known: Sequence[Weighed]) -> list[Mix]:
    """Mixes with a clearly shorter tail than any known option of at most their cost, cheapest ms
    first.
    """
    found = []
    for one in mixes:
        best = min(
            (k for k in known if k.usd_per_month <= one.usd_per_month + _AT_ONCE),
            key=lambda k: (k.tail_s, k.usd_per_month, k.option_id),
            default=None,
        )
        if best is None or one.tail_s >= (1.0 - SAME_STEP.value) * best.tail_s:
            continue
        gain_ms = (best.tail_s - one.tail_s) * _MS_PER_S
        price = max(0.0, one.usd_per_month - best.usd_per_month) / gain_ms
        title = one.title if isinstance(one, Mix) else one.option_id
        found.append(Mix(one.option_id, title, one.usd_per_month, one.tail_s, price))
    return sorted(found, key=lambda mix: (mix.usd_per_ms, mix.usd_per_month, mix.option_id))
