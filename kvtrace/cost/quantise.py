"""What it takes to hold KV in fewer bits than the engine computes with: two passes over memory."""

from __future__ import annotations

from dataclasses import dataclass

from kvtrace.cost.deployment import Deployment
from kvtrace.cost.efficiency import efficiency_table
from kvtrace.cost.evidence import Constant
from kvtrace.cost.providers.pricing import PrefillPricing, StepPricing


@dataclass(frozen=True, slots=True, eq=False)
class QuantisedPrefill:
    """Prefill that packs the KV of new tokens, and unpacks that of cached ones once."""

    base: PrefillPricing
    token_s: float
    """Seconds a token, either way; see `conversion_s_per_token`."""

    @property
    def evidence(self) -> tuple[Constant, ...]:
        """What the seconds follow from."""
        return self.base.evidence

    def prefill_s(self, new_tokens: float, cached_tokens: float) -> float:
        """Seconds to compute `new_tokens` after `cached_tokens`."""
        tokens = new_tokens + cached_tokens
        return self.base.prefill_s(new_tokens, cached_tokens) + self.token_s * tokens


@dataclass(frozen=True, slots=True, eq=False)
class QuantisedStep:
    """Steps of such prefills; a decode step unpacks in its kernel, beside its read."""

    base: StepPricing
    token_s: float

    def work_s(self, new_tokens: float, cached_tokens: float) -> float:
        """Seconds that a request adds to its steps whatever it shares them with."""
        tokens = new_tokens + cached_tokens
        return self.base.work_s(new_tokens, cached_tokens) + self.token_s * tokens

    def added_s(
        self, new_tokens: float, work_s: float, *, steps: int, is_start: bool, batch: int
    ) -> float:
        """Seconds that `new_tokens` and `work_s` in all add to `steps` decode steps of `batch`."""
        return self.base.added_s(new_tokens, work_s, steps=steps, is_start=is_start, batch=batch)


def conversion_s_per_token(wide: Deployment, narrow: Deployment) -> float:
    """Seconds to turn the KV of one token from the wide into the narrow format, or back.

    Formula: (bytes read + bytes written) / (ranks x HBM bytes/s x share of it that reads reach).
    Assumes: a kernel of its own, so that nothing of it hides behind attention; fused kernels take
    less.
    """
    gpu = wide.hardware.gpu
    table = wide.efficiencies or efficiency_table()
    rate = gpu.hbm_bytes_per_s.value * table.kv_read(gpu.family).value * wide.tp
    return (wide.kv_bytes_per_token + narrow.kv_bytes_per_token) / rate
