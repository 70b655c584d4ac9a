"""Instances by the loads of replays that were made: a surrogate for a search."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kvtrace.audit.fleet.record import OptionNeed, SurrogateCheck


@dataclass(frozen=True, slots=True)
class Sample:
    """One replay of an option: its load, and whether the SLO was kept."""

    instances: int
    offered_load: float | None
    is_kept: bool


@dataclass(frozen=True, slots=True)
class Estimate:
    """What the samples say of one load."""

    instances: int | None
    """Null: the SLO is missed at every load that was replayed."""
    at_least: int
    """Below it the SLO is missed, as far as the samples tell."""


def estimate(samples: Sequence[Sample], today: Sample | None, load: float) -> Estimate:
    """Instances that keep the SLO at `load` times the load of the samples, all of one option.

    Formula: the least of: ceil(load · n) for n instances that keep it; and, where the option keeps
    it or has only missed it at a higher offered load than today's, ceil(load · n · L / L today) for
    an offered load of L on n. At least floor(load · n) + 1 for n that miss it.
    Assumes: work grows with the load and does not depend on the instances, and the offered load
    alone decides. Larger fleets keep the SLO at a little more load than small ones, so that the
    answer is rather too high for a grown load.
    """
    kept = [sample.instances for sample in samples if sample.is_kept]
    missed = [sample.instances for sample in samples if not sample.is_kept]
    at_least = max((1 + math.floor(load * n + 1e-9) for n in missed), default=1)
    counts = [math.ceil(load * n - 1e-9) for n in kept]
    by_today = _by_today(samples, today)
    if by_today is not None:
        counts.append(max(at_least, math.ceil(load * by_today - 1e-9)))
    if not counts:
        return Estimate(None, at_least)
    instances = max(1, min(counts))
    return Estimate(instances, min(at_least, instances))


def _by_today(samples: Sequence[Sample], today: Sample | None) -> float | None:
    """Instances, not rounded, at which the option has today's offered load."""
    limit = None if today is None else today.offered_load
    known = [sample for sample in samples if sample.offered_load]
    if not limit or not known:
        return None
    if any(not one.is_kept and (one.offered_load or 0.0) <= limit for one in known):
        return None
    return known[0].instances * (known[0].offered_load or 0.0) / limit


def check_surrogate(needs: Iterable[OptionNeed], reference: str) -> SurrogateCheck | None:
    """The surrogate, from the replay on the stated fleet alone, against counts that were replayed.

    Not of the reference at its own load, which it hits by definition. Null where nothing is known.
    """
    both = [need for need in needs if need.load != 1 or need.option != reference]
    errors = [
        need.surrogate - need.instances
        for need in both
        if need.basis == "replayed" and need.instances is not None and need.surrogate is not None
    ]
    unfounded = sum(need.basis == "none" and need.surrogate is not None for need in both)
    if not errors and not unfounded:
        return None
    return SurrogateCheck(
        checked=len(errors),
        equal=sum(error == 0 for error in errors),
        most_over=max((0, *errors)),
        most_under=max((0, *(-error for error in errors))),
        unfounded=unfounded,
    )
