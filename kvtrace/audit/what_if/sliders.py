"""The sliders: positions, where the audit stands, what is known of each value."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from kvtrace.audit.what_if.record import WhatIfFleet, WhatIfMoney, WhatIfSlider
from kvtrace.cost.deployment import Deployment
from kvtrace.cost.evidence import Constant
from kvtrace.units import GB

LINE_RATES: Final = tuple(
    GB * rate for rate in (10, 25, 40, 50, 75, 100, 150, 200, 300, 400, 600, 800)
)
"""Bits/s of a port."""
SIZES: Final = (
    *(part / 256 for part in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192)),
    1.0, 1.5, 2.0, 3.0, 4.0,
)  # fmt: skip
"""Of a pool, over its own."""
PRICES: Final = (0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.1, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0)
"""Over the audit's."""
LOADS: Final = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0)
DTYPES: Final = ("bf16", "fp8", "fp8_ds_mla", "int8", "nvfp4", "int4")
_SAME: Final = 1e-6


def link_slider(bits_per_s: float) -> WhatIfSlider:
    """Line rate of every network port on the way, of GPU nodes and of the pool."""
    return _steps("link_speed", "bits/s", bits_per_s, LINE_RATES)


def dtype_slider(formats: Sequence[Deployment], base: int) -> WhatIfSlider:
    """Number format of the KV, in HBM and below."""
    return WhatIfSlider(
        id="kv_dtype",
        unit="bytes/token",
        values=[one.kv_bytes_per_token for one in formats],
        names=[one.kv_dtype for one in formats],
        base=base,
    )


def size_slider(
    fleet: WhatIfFleet | None, money: WhatIfMoney | None, *, has_curve: bool
) -> WhatIfSlider:
    """DRAM of the whole pool."""
    if fleet is None:
        return _fixed("pool_size", "bytes", 0.0, "no_pool")
    size = fleet.pool.capacity_bytes
    if not has_curve:
        return _fixed("pool_size", "bytes", size, "no_curve")
    if money is None or money.node_bytes <= 0.0:
        return _fixed("pool_size", "bytes", size, "no_money" if money is None else "no_size")
    return _steps("pool_size", "bytes", size, (size * part for part in SIZES))


def load_slider(fleet: WhatIfFleet | None) -> WhatIfSlider:
    """Sessions over those of the log."""
    if fleet is None:
        return _fixed("load", "times", 1.0, "no_pool")
    return _steps("load", "times", 1.0, LOADS)


def gpu_price_slider(price: Constant, money: WhatIfMoney | None) -> WhatIfSlider:
    """USD of a GPU-hour."""
    reason = "no_money" if money is None else None
    if money is not None and money.instance_usd_per_gpu_usd <= 0.0:
        reason = "no_worth"
    return _price("gpu_price", price, reason)


def dram_price_slider(price: Constant, money: WhatIfMoney | None) -> WhatIfSlider:
    """USD of a GB of DRAM."""
    reason = "no_money" if money is None else None
    if money is not None and not (money.gb_usd_per_dram_usd or money.rival_usd_per_dram_usd):
        reason = "no_dram"
    return _price("dram_price", price, reason)


def _price(ident: str, price: Constant, reason: str | None) -> WhatIfSlider:
    if reason is not None:
        return _fixed(ident, price.unit, price.value, reason)
    ends = [end for end in (price.low, price.high) if end is not None]
    others = (float(f"{price.value * part:.4g}") for part in PRICES)
    slider = _steps(ident, price.unit, price.value, (*others, *ends))
    slider.low, slider.high = price.low, price.high
    slider.kind = price.kind
    slider.source = f"{price.source} ({price.as_of})" if price.as_of else price.source
    return slider


def _steps(ident: str, unit: str, base: float, others: Iterable[float]) -> WhatIfSlider:
    """Rising positions with the base among them, exactly."""
    apart = {one for one in others if abs(one / base - 1.0) > _SAME}
    values = sorted(float(one) for one in (base, *apart))
    return WhatIfSlider(id=ident, unit=unit, values=values, base=values.index(base))


def _fixed(ident: str, unit: str, value: float, reason: str) -> WhatIfSlider:
    return WhatIfSlider(id=ident, unit=unit, values=[value], base=0, fixed_reason=reason)
