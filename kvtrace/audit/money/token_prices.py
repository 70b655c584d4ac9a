"""What a million prompt tokens cost: computed, from a cache, and at providers of an API."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kvtrace.audit.money.bills import Bills
from kvtrace.audit.money.numbers import amount, unknown
from kvtrace.audit.money.record import ApiPrice, TokenPrice
from kvtrace.audit.quantity import Quantity
from kvtrace.audit.record import Option, ReplayWindow
from kvtrace.audit.thresholds import (
    FLEET_BUSY_SHARE,
    FLEET_BUSY_SHARE_HIGH,
    FLEET_BUSY_SHARE_LOW,
)
from kvtrace.audit.uncertainty.ranges import Range
from kvtrace.cost.evidence import number, read_toml
from kvtrace.cost.interval import Interval
from kvtrace.units import DAYS_PER_MONTH, S_PER_HOUR

_MILLION: Final = 1e6
_UNIT: Final = "USD/Mtok"
_BUSY: Final = Interval(
    FLEET_BUSY_SHARE_LOW.value, FLEET_BUSY_SHARE.value, FLEET_BUSY_SHARE_HIGH.value
)


def token_prices(
    options: Iterable[Option],
    bills: Bills,
    window: ReplayWindow | None,
    *,
    windows_per_day: float | None,
) -> list[TokenPrice]:
    """One row an option that carries the load and whose bill is known."""
    if window is None or not window.prompt_tokens:
        return []
    rows = []
    for option in options:
        cost = bills.usd_per_month_beside_gpus(option.id)
        if option.is_feasible and cost is not None:
            gpu = Interval.of(bills.gpu_price(option.id)).scaled(1.0 / S_PER_HOUR) / _BUSY
            loads = None if windows_per_day is None else windows_per_day * DAYS_PER_MONTH
            rows.append(_row(option, gpu, cost, window.prompt_tokens, loads))
    return rows


def _row(
    option: Option, gpu: Interval, cost: Range, prompt: int, loads_per_month: float | None
) -> TokenPrice:
    """`gpu`: USD of a busy GPU-second of the option, whose GPUs are in no other part.

    `cost`: what it adds a month beside GPUs. `loads_per_month`: replayed windows in a month of the
    log's load; null: unknown.
    """
    hits = sum(option.hit_tokens_by_tier.values())
    prefill = gpu.scaled(option.gpu_seconds_prefill)
    monthly = Interval(cost.low, cost.value, cost.high)
    added = None if not loads_per_month else monthly.scaled(1.0 / loads_per_month)
    return TokenPrice(
        option=option.id,
        title=option.title,
        uncached=_per_million(
            f"uncached:{option.id}",
            prefill,
            prompt - hits,
            "computed",
            "GPU-seconds of its prefill x price of its GPUs / busy share, over computed tokens",
        ),
        cached=_per_million(
            f"cached:{option.id}",
            added,
            hits,
            "from a cache",
            "what the option adds a month beside GPUs, over its hits in a month",
        ),
        mean=_per_million(
            f"mean:{option.id}",
            None if added is None else prefill + added,
            prompt,
            "as they come",
            "prefill and the option, over all prompt tokens",
        ),
    )


def _per_million(ident: str, usd: Interval | None, tokens: int, what: str, source: str) -> Quantity:
    title = f"a million prompt tokens, {what}"
    if usd is None or tokens <= 0:
        why = "no such tokens" if usd is not None else "the log does not say how long it covers"
        return unknown(ident, _UNIT, title=title, source=source, why=why)
    return amount(ident, usd.scaled(_MILLION / tokens), _UNIT, title=title, source=source)


def api_prices() -> list[ApiPrice]:
    """List prices of input tokens at providers of an API; they hold all cost and the margin."""
    return [
        ApiPrice(
            title=str(entry["title"]),
            uncached_usd_per_million=number(entry["uncached"]),
            cached_usd_per_million=number(entry["cached"]),
            source=str(entry["source"]),
            as_of=str(entry["as_of"]),
        )
        for entry in read_toml("prices.toml")["api_usd_per_million"].values()
    ]
