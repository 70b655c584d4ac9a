"""The reuse beyond the best cheaper rival at which a pool's hits are worth what it costs."""

from __future__ import annotations

from collections.abc import Sequence

from kvtrace.audit.options.kinds import is_local, is_pool
from kvtrace.audit.quantity import Quantity
from kvtrace.audit.record import Option, ReplayWindow
from kvtrace.audit.sizing.record import BreakEvenReuse
from kvtrace.audit.sizing.value import windows_per_month
from kvtrace.audit.sizing.worth import ReuseValue
from kvtrace.audit.uncertainty.ranges import Range
from kvtrace.audit.view import hit_tokens


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
    options: Sequence[Option], window: ReplayWindow | None, value: ReuseValue | None
) -> list[BreakEvenReuse]:
    """One entry per priced pool; none without a cheaper rival, or a window that tells a month.

    The load is that of the replayed window, all month: the fleet is sized for it.
    """
    windows = None if window is None else windows_per_month(window.span_s)
    usd = None if value is None else value.usd_per_token
    if window is None or windows is None or usd is None or not window.prompt_tokens:
        return []
    pools = (one for one in options if is_pool(one.id) and one.is_feasible)
    pairs = ((pool, cheaper_rival(pool, options)) for pool in pools)
    return [
        _point(pool, rival, window, windows * window.prompt_tokens, usd)
        for pool, rival in pairs
        if rival is not None
    ]


def cheaper_rival(pool: Option, options: Sequence[Option]) -> Option | None:
    """The option without a pool that costs less and serves most tokens; null without one."""
    if pool.cost is None:
        return None
    paid = _range(pool.cost).value
    cheaper = (
        one
        for one in options
        if is_local(one.id) and one.is_feasible and one.cost and _range(one.cost).value < paid
    )
    return max(cheaper, key=hit_tokens, default=None)


def _point(
    pool: Option, rival: Option, window: ReplayWindow, prompt: float, usd: Range
) -> BreakEvenReuse:
    """`prompt` tokens a month, a reused one worth `usd`."""
    served = hit_tokens(rival)
    extra = (hit_tokens(pool) - served) / window.prompt_tokens
    cost = _less(pool.cost, rival.cost)
    needed = break_even_ratio(cost, prompt, usd)
    ceiling = None
    if window.reusable_tokens is not None:
        ceiling = (window.reusable_tokens - served) / window.prompt_tokens
    return BreakEvenReuse(
        option=pool.id,
        title=pool.title,
        rival=rival.title,
        needed=needed.modelled(
            f"break_even_reuse:{pool.id}",
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
            f"value_of_reuse:{pool.id}",
            "USD/month",
            "GPU time of what the pool serves beyond the rival, before rounding",
            "replays; tokens beyond the rival x worth of a reused token",
        ),
        cost=cost.modelled(
            f"cost_beyond_rival:{pool.id}",
            "USD/month",
            f"what it costs more than {rival.title}",
            "bills of both options",
        ),
    )


def _less(cost: Quantity | None, rival: Quantity | None) -> Range:
    """What the pool costs more, at least nothing; the widest interval."""
    mine = Range.exact(0.0) if cost is None else _range(cost)
    theirs = Range.exact(0.0) if rival is None else _range(rival)
    return Range(
        max(0.0, mine.low - theirs.high),
        max(0.0, mine.value - theirs.value),
        max(0.0, mine.high - theirs.low),
    )


def _range(cost: Quantity) -> Range:
    middle = cost.value if isinstance(cost.value, int | float) else 0.0
    low = middle if cost.low is None else cost.low
    return Range(low, middle, middle if cost.high is None else cost.high)
