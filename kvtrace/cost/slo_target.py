"""The SLO as a team states it; nothing stated: no worse than today, per prompt bucket."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SloTarget:
    """A share of the requests within `ttft_s + ttft_s_per_token * prompt_tokens`, and so on."""

    ttft_s: float | None = None
    """Constant part; null: TTFT is judged against today."""
    ttft_s_per_token: float = 0.0
    """Seconds more for each prompt token."""
    tpot_s: float | None = None
    """Seconds an output token; null: judged against today."""
    e2e_s: float | None = None
    """Arrival to last token; null: not judged."""
    share: float = 0.99
    """Of the requests, 0..1, that must be within."""

    @property
    def is_stated(self) -> bool:
        """False: the default, no worse than today."""
        return any(limit is not None for limit in (self.ttft_s, self.tpot_s, self.e2e_s))
