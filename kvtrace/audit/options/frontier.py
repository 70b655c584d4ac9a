"""What a shorter tail costs: the frontier of cost and P99 TTFT, and the cheapest that is enough.

A step is at equal GPUs: its cost is what is bought, its tail that on the stated fleet. What the
instances that an option gives back are worth stands beside it, and the cheapest that is enough is
that net of them.

All figures modelled. At `--depth full` every mix of a local store, routing, number format and
isolation is among the options, and every place of a pool; mixes of pools are searched within a
budget (`kvtrace.audit.options.mixes`), and those that were not replayed stand beside the frontier.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kvtrace.audit.options.mixes import MixFacts
from kvtrace.audit.record import Frontier, FrontierStep, Option, PromisingMix
from kvtrace.audit.thresholds import SAME_STEP
from kvtrace.units import NS_PER_MS, NS_PER_S

_MS_PER_S = NS_PER_S // NS_PER_MS
_NO_MIXES: Final = MixFacts()
_LEAST_USD = 1.0
"""A month; less tells no options apart."""


def build_frontier(options: Sequence[Option], mixes: MixFacts = _NO_MIXES) -> Frontier | None:
    """The frontier of the options that carry the load; null without one. Marks who is on it."""
    able = [option for option in options if option.is_feasible]
    if not able:
        return None
    is_p90 = any(option.ttft_s.p99 is None for option in able)
    weighed = [
        (option.usd_per_month, tail, option)
        for option in able
        if option.usd_per_month is not None and (tail := _tail_s(option, is_p90=is_p90)) is not None
    ]
    steps: list[FrontierStep] = []
    for usd, tail, option in sorted(weighed, key=lambda one: (one[0], one[1], one[2].id)):
        option.is_on_frontier = not steps or (
            tail < steps[-1].ttft_s and not _is_same_step(steps[-1], usd, tail)
        )
        if option.is_on_frontier:
            steps.append(_step(option, usd, tail, steps[-1] if steps else None))
    kept = [one for one in weighed if one[2].keeps_slo]
    best, as_it_is = _cheapest(kept), _cheapest([one for one in kept if not one[2].is_quantised])
    return Frontier(
        steps=steps,
        ttft_is_p90=is_p90,
        cheapest=None if best is None else best.id,
        cheapest_as_it_is=None if as_it_is is None else as_it_is.id,
        weighed=len(weighed),
        unpriced=[option.id for option in able if option.usd_per_month is None],
        mixes_replayed=len(mixes.replayed),
        mixes_most=mixes.most,
        mixes_by_surrogate=mixes.by_surrogate,
        promising=[
            PromisingMix(
                option=one.option_id,
                title=one.title,
                usd_per_month=one.usd_per_month,
                ttft_s=one.tail_s,
                usd_per_ms=one.usd_per_ms,
            )
            for one in mixes.promising
        ],
    )


def _tail_s(option: Option, *, is_p90: bool) -> float | None:
    return option.ttft_s.p90 if is_p90 else option.ttft_s.p99


def _is_same_step(step: FrontierStep, usd: float, tail_s: float) -> bool:
    """Both nearly as those of the step; USD a month also within a dollar."""
    near = SAME_STEP.value
    is_as_dear = usd - step.usd_per_month < max(_LEAST_USD, near * abs(usd))
    return is_as_dear and step.ttft_s - tail_s < near * step.ttft_s


def _step(option: Option, usd: float, tail_s: float, before: FrontierStep | None) -> FrontierStep:
    """Formula: (USD - USD of the step before) / (ms of the step before - ms)."""
    price = None
    if before is not None:
        saved_ms = (before.ttft_s - tail_s) * _MS_PER_S
        price = (usd - before.usd_per_month) / saved_ms
    return FrontierStep(
        option=option.id,
        usd_per_month=usd,
        saved_usd_per_month=option.usd_saved_per_month,
        net_usd_per_month=_net_usd(option),
        ttft_s=tail_s,
        usd_per_ms=price,
        keeps_slo=option.keeps_slo,
    )


def _cheapest(kept: Sequence[tuple[float, float, Option]]) -> Option | None:
    """By what it costs net of the instances that it gives back, where that is known."""

    def net(one: tuple[float, float, Option]) -> tuple[float, float, str]:
        usd, tail, option = one
        known = _net_usd(option)
        return usd if known is None else known, tail, option.id

    best = min(kept, key=net, default=None)
    return None if best is None else best[2]


def _net_usd(option: Option) -> float | None:
    if option.usd_per_month is None or option.usd_saved_per_month is None:
        return None
    return option.usd_per_month - option.usd_saved_per_month
