"""The reuse beyond its rival at which a pool's hits are worth what it costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvtrace.audit.record import ReplayWindow
from kvtrace.audit.sizing.record import BreakEvenReuse
from kvtrace.audit.sizing.value import windows_per_month
from kvtrace.audit.sizing.worth import ReuseValue
from kvtrace.audit.uncertainty.ranges import Range


@dataclass(frozen=True, slots=True, kw_only=True)
class WeighedPool:
    """A pool over the option without one that the verdict weighs it against."""

    option_id: str
    title: str
    extra_hit_tokens: int
    """Beyond those of the rival."""
    cost: Range
    """USD a month beyond that of the rival."""
    rival_title: str
    rival_hit_tokens: int


def break_even_ratio(cost_usd: Range, prompt_tokens: float, usd_per_token: Range) -> Range:
    """Share of the prompt tokens that a pool must serve beyond its rival to be worth its cost.

    Formula: cost a month / (prompt tokens a month x worth of a reused token).
    Assumes: freed GPU time is given back by the second. Whole instances tip it either way: replays
    on fewer of them, which the verdict rests on, show it.
    """
    return cost_usd / usd_per_token.scaled(prompt_tokens)


def value_usd(ratio: float, prompt_tokens: float, usd_per_token: Range) -> Range:
    """USD a month of the GPU time that serving this share of the prompt tokens frees; 0 below 0."""
    return usd_per_token.scaled(max(0.0, ratio) * prompt_tokens)


def break_even_reuse(
    pools: Sequence[WeighedPool], window: ReplayWindow | None, value: ReuseValue | None
) -> list[BreakEvenReuse]:
    """One entry per pool that is weighed; none without a rival, or a window that tells a month.

    Tokens and cost are beyond the rival that the verdict weighs each of them against. The load is
    that of the replayed window, all month: the fleet is sized for it.
    """
    windows = None if window is None else windows_per_month(window.span_s)
    usd = None if value is None else value.usd_per_token
    if window is None or windows is None or usd is None or not window.prompt_tokens:
        return []
    prompt = windows * window.prompt_tokens
    return [_point(pool, window, prompt, usd) for pool in pools]


def _point(pool: WeighedPool, window: ReplayWindow, prompt: float, usd: Range) -> BreakEvenReuse:
    """`prompt` tokens a month, a reused one worth `usd`."""
    extra, cost = pool.extra_hit_tokens / window.prompt_tokens, _at_least_nothing(pool.cost)
    needed = break_even_ratio(cost, prompt, usd)
    ceiling = None
    if window.reusable_tokens is not None:
        ceiling = (window.reusable_tokens - pool.rival_hit_tokens) / window.prompt_tokens
    return BreakEvenReuse(
        option=pool.option_id,
        title=pool.title,
        rival=pool.rival_title,
        needed=needed.modelled(
            f"break_even_reuse:{pool.option_id}",
            "ratio",
            "share of the prompt tokens beyond the rival at which the hits are worth the pool",
            f"what it costs more than the rival / ({prompt:,.0f} prompt tokens a month x worth of "
            "a reused token); low and high: ends of both. By the second of GPU time, before "
            "rounding to whole instances",
        ),
        present_ratio_tokens=extra,
        ceiling_ratio_tokens=ceiling,
        load_times=needed.value / extra if extra > 0.0 else None,
        value=value_usd(extra, prompt, usd).modelled(
            f"value_of_reuse:{pool.option_id}",
            "USD/month",
            "GPU time of what the pool serves beyond the rival, before rounding",
            "replays; tokens beyond the rival x worth of a reused token",
        ),
        cost=cost.modelled(
            f"cost_beyond_rival:{pool.option_id}",
            "USD/month",
            f"what it costs more than {pool.rival_title}",
            "bills of both options",
        ),
    )


def _at_least_nothing(cost: Range) -> Range:
    """What the pool costs more; nothing where it costs less."""
    return Range(max(0.0, cost.low), max(0.0, cost.value), max(0.0, cost.high))
