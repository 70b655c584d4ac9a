"""The reuse beyond the best cheaper rival at which a pool's hits are worth what it costs."""

from __future__ import annotations

from collections.abc import Sequence

from kvtrace.audit.findings.check import hit_tokens, is_local, is_pool
from kvtrace.audit.quantity import Quantity
from kvtrace.audit.record import Option, ReplayWindow
from kvtrace.audit.sizing.record import BreakEvenReuse
from kvtrace.audit.sizing.value import windows_per_month
from kvtrace.audit.sizing.worth import ReuseValue
from kvtrace.audit.uncertainty.ranges import Range


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
    """One entry per priced pool; none without a rival, a price or a window that tells a month.

    The load is that of the replayed window, all month: the fleet is sized for it.
    """
    rival = max((o for o in options if is_local(o.id)), key=hit_tokens, default=None)
    windows = None if window is None else windows_per_month(window.span_s)
    usd = None if value is None else value.usd_per_token
    if rival is None or window is None or windows is None or usd is None:
        return []
    if not window.prompt_tokens:
        return []
    ceiling = None
    if window.reusable_tokens is not None:
        ceiling = (window.reusable_tokens - hit_tokens(rival)) / window.prompt_tokens
    prompt = window.prompt_tokens * windows
    found = []
    for option in options:
        cost = option.cost
        if not is_pool(option.id) or cost is None or not option.is_feasible:
            continue
        needed = break_even_ratio(_range(cost), prompt, usd)
        extra = (hit_tokens(option) - hit_tokens(rival)) / window.prompt_tokens
        found.append(
            BreakEvenReuse(
                option=option.id,
                title=option.title,
                rival=rival.title,
                needed=_quantity(
                    f"break_even_reuse:{option.id}",
                    needed,
                    "ratio",
                    "share of the prompt tokens beyond the rival at which the hits are worth the "
                    "pool",
                    f"cost of the pool / ({prompt:,.0f} prompt tokens a month x worth of a reused "
                    "token); low and high: ends of both. By the second of GPU time, before "
                    "rounding to whole instances",
                ),
                present_ratio_tokens=extra,
                ceiling_ratio_tokens=ceiling,
                load_times=needed.value / extra if extra > 0.0 else None,
                value=_quantity(
                    f"value_of_reuse:{option.id}",
                    value_usd(extra, prompt, usd),
                    "USD/month",
                    "GPU time of what the pool serves beyond the rival, before rounding",
                    "replays; tokens beyond the rival x worth of a reused token",
                ),
                cost=cost,
            )
        )
    return found


def _range(cost: Quantity) -> Range:
    middle = cost.value if isinstance(cost.value, int | float) else 0.0
    low = middle if cost.low is None else cost.low
    return Range(low, middle, middle if cost.high is None else cost.high)


def _quantity(ident: str, amount: Range, unit: str, title: str, source: str) -> Quantity:
    return Quantity(
        id=ident,
        value=amount.value,
        low=amount.low,
        high=amount.high,
        unit=unit,
        title=title,
        source=source,
        kind="modelled",
    )
