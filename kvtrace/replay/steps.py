"""Steps priced by single requests, for scenarios that bring no model of shared steps."""

from __future__ import annotations

from kvtrace.replay.scenario import PrefillTime, Scenario, StepTime


class SummedSteps:
    """No step is shared: the prefills of a step add up, and so do the decode steps beside them."""

    __slots__ = ("_prefill",)

    def __init__(self, prefill: PrefillTime) -> None:
        self._prefill = prefill

    def work_s(self, new_tokens: float, cached_tokens: float) -> float:
        """The whole prefill."""
        return self._prefill.prefill_s(new_tokens, cached_tokens) if new_tokens > 0 else 0.0

    def added_s(
        self, new_tokens: float, work_s: float, *, steps: int, is_start: bool, batch: int
    ) -> float:
        """The prefills, however they share their steps."""
        return work_s


def step_time(scenario: Scenario) -> StepTime:
    """What prices the steps of a scenario."""
    return scenario.step or SummedSteps(scenario.prefill)
