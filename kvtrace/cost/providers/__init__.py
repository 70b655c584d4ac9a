"""Where the seconds of prefill, decode and mixed steps come from: kvtrace's own model, or another.

A provider is a name, `aiconfigurator` or `aiconfigurator:sglang`; `build_pricing` is the only door
to it, and imports what it needs then.
"""

from __future__ import annotations

from kvtrace.cost.providers.pricing import (
    OWN_PROVIDER,
    DecodePricing,
    PrefillPricing,
    Pricing,
    StepPricing,
    build_pricing,
    provider_problem,
)

__all__ = [
    "OWN_PROVIDER",
    "DecodePricing",
    "PrefillPricing",
    "Pricing",
    "StepPricing",
    "build_pricing",
    "provider_problem",
]
