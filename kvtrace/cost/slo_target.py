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
    front_s: float = 0.0
    """Seconds of a request in front of the engine: a client's TTFT and E2E hold them, a replay does
    not."""
    front_s_per_token: float = 0.0
    """Of them, seconds more for each prompt token."""

    @property
    def is_stated(self) -> bool:
        """False: the default, no worse than today."""
        return any(limit is not None for limit in (self.ttft_s, self.tpot_s, self.e2e_s))

    @property
    def is_of_a_client(self) -> bool:
        """A time is stated that a client sees, from the request to a token that arrives."""
        return self.ttft_s is not None or self.e2e_s is not None
