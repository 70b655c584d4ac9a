"""The roles of a cost provider, and the choice between them by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from kvtrace.cost.evidence import Constant
from kvtrace.errors import UsageError

if TYPE_CHECKING:
    from kvtrace.cost.deployment import Deployment

OWN_PROVIDER: Final = "kvtrace"
OTHER_PROVIDER: Final = "aiconfigurator"
FRAMEWORKS: Final = ("vllm", "sglang", "trtllm")
"""Engines whose kernels the other provider knows; the first unless told."""


class PrefillPricing(Protocol):
    """Prefill seconds of one instance."""

    @property
    def evidence(self) -> tuple[Constant, ...]:
        """What the seconds follow from."""
        ...

    def prefill_s(self, new_tokens: float, cached_tokens: float) -> float:
        """Seconds to compute `new_tokens` after `cached_tokens`; 0 for no new token."""
        ...


class DecodePricing(Protocol):
    """Decode seconds of one instance."""

    @property
    def evidence(self) -> tuple[Constant, ...]:
        """What the seconds follow from."""
        ...

    def step_s(self, batch: float, context_tokens: float) -> float:
        """Seconds of one step of `batch` sequences that hold `context_tokens` of KV in all."""
        ...


class StepPricing(Protocol):
    """Seconds of steps that prompts share with a decode batch; as `replay.scenario.StepTime`."""

    def work_s(self, new_tokens: float, cached_tokens: float) -> float:
        """Seconds that a request adds to its steps whatever it shares them with."""
        ...

    def added_s(
        self, new_tokens: float, work_s: float, *, steps: int, is_start: bool, batch: int
    ) -> float:
        """Seconds that `new_tokens` and `work_s` in all add to `steps` decode steps of `batch`."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Pricing:
    """All that one provider prices."""

    prefill: PrefillPricing
    decode: DecodePricing
    step: StepPricing
    title: str
    """What it is and which tables it reads, for a reader."""


def build_pricing(provider: str, deployment: Deployment) -> Pricing:
    """The pricing of a deployment by a provider other than kvtrace's own model.

    Raises:
        UsageError: the provider is not known, or its package is absent.
        ModelError: it does not know the GPU, the LLM or the number formats.
    """
    problem = provider_problem(provider)
    if problem is not None or provider == OWN_PROVIDER:
        raise UsageError("KVT-C100", f"cost provider `{provider}` {problem or 'is built in'}")
    from kvtrace.cost.providers.aiconfigurator import build

    _, _, framework = provider.partition(":")
    return build(
        deployment.llm,
        deployment.hardware.gpu.name,
        layout=deployment.layout,
        weight_dtype=deployment.weight_dtype,
        kv_dtype=deployment.kv_dtype,
        framework=framework or FRAMEWORKS[0],
    )


def provider_problem(provider: object) -> str | None:
    """What is wrong with the name of a provider, or None."""
    if provider is None or provider == OWN_PROVIDER:
        return None
    name, colon, framework = str(provider).partition(":")
    if name == OTHER_PROVIDER and (framework in FRAMEWORKS if colon else True):
        return None
    return (
        f"must be {OWN_PROVIDER}, {OTHER_PROVIDER}, or "
        f"{OTHER_PROVIDER}: with one of {', '.join(FRAMEWORKS)}"
    )
