"""Steps priced by single requests, for scenarios that bring no model of shared steps."""

from __future__ import annotations

from kvtrace.replay.scenario import DecodeTime, PrefillTime, Scenario, StepTime


class SummedSteps:
    """No step is shared: the prefills of a step add up, and so do the decode steps beside them."""

    __slots__ = ("_decode", "_prefill")

    def __init__(self, prefill: PrefillTime, decode: DecodeTime) -> None:
        self._prefill = prefill
        self._decode = decode

    def work_s(self, new_tokens: float, cached_tokens: float) -> float:
        """The whole prefill."""
        return self._prefill.prefill_s(new_tokens, cached_tokens) if new_tokens > 0 else 0.0

    def step_s(
        self,
        new_tokens: float,
        work_s: float,
        *,
        steps: int,
        is_start: bool,
        batch: int,
        context_tokens: float,
    ) -> float:
        """Formula: work + steps · decode step."""
        return work_s + steps * self._decode.step_s(batch, context_tokens) if batch else work_s


def step_time(scenario: Scenario) -> StepTime:
    """What prices the steps of a scenario."""
    return scenario.step or SummedSteps(scenario.prefill, scenario.decode)
