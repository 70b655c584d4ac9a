"""What one reused token is worth: the GPU time of recomputing it."""

from __future__ import annotations

from dataclasses import dataclass

from kvtrace.audit.uncertainty.ranges import Range
from kvtrace.units import GB


@dataclass(frozen=True, slots=True)
class ReuseValue:
    """The mean reusable token of a trace, at the deployment's prefill and the fleet's GPU price."""

    gpu_s_per_token: Range
    """GPU-seconds of prefill that one reused token frees; low and high: the GEMM efficiency."""
    usd_per_token: Range | None
    """USD of the paid GPU time that these are worth, as if it could be given back by the second.
    Whole instances give back more or less, which only replays show: a little freed time can be the
    last that one of them needed, or too little for one. Null: by the contract of the GPUs nothing
    is saved by giving them back."""
    tokens: int
    """That it is the mean of."""
    is_of_reuse: bool = True
    """Of the reusable tokens of the trace; False: no reuse is known, and it is the mean token of
    whole prompts."""

    def usd_per_gb(self, kv_bytes_per_token: float) -> Range | None:
        """USD that one hit on a GB (10^9 bytes) of KV is worth; null: nothing is known to be saved.

        Formula: USD per token x 10^9 / bytes per token.
        """
        usd = self.usd_per_token
        return None if usd is None else usd.scaled(GB / kv_bytes_per_token)

    def gpu_s_per_gb(self, kv_bytes_per_token: float) -> Range:
        """GPU-seconds that one hit on a GB of KV frees."""
        return self.gpu_s_per_token.scaled(GB / kv_bytes_per_token)
