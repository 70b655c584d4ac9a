"""A scenario with one resource that never runs out: what binds is what helps when it is free."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal

from kvtrace.replay.scenario import DecodeTime, PrefillTime, Scenario, StepTime

Resource = Literal["prefill", "decode", "hbm_capacity", "links"]
RESOURCES: Final[tuple[Resource, ...]] = ("prefill", "decode", "hbm_capacity", "links")
_LEFT: Final = 1e-6
"""Of the seconds of a free resource: not zero, since prices are divided by them."""


@dataclass(frozen=True, slots=True)
class _FreePrefill:
    inner: PrefillTime

    def prefill_s(self, new_tokens: float, cached_tokens: float) -> float:
        return _LEFT * self.inner.prefill_s(new_tokens, cached_tokens)


@dataclass(frozen=True, slots=True)
class _FreeSteps:
    inner: StepTime

    def work_s(self, new_tokens: float, cached_tokens: float) -> float:
        return _LEFT * self.inner.work_s(new_tokens, cached_tokens)

    def added_s(
        self, new_tokens: float, work_s: float, *, steps: int, is_start: bool, batch: int
    ) -> float:
        added_s = self.inner.added_s(
            new_tokens, work_s / _LEFT, steps=steps, is_start=is_start, batch=batch
        )
        return _LEFT * added_s


@dataclass(frozen=True, slots=True)
class _FreeDecode:
    inner: DecodeTime

    def step_s(self, batch: float, context_tokens: float) -> float:
        return _LEFT * self.inner.step_s(batch, context_tokens)


def without_limit(scenario: Scenario, resource: Resource) -> Scenario:
    """The scenario with that resource a million times as fast or as large; all else stays.

    Latencies of links and lookups stay: they are no bandwidth.
    """
    if resource == "prefill":
        step = None if scenario.step is None else _FreeSteps(scenario.step)
        return replace(scenario, prefill=_FreePrefill(scenario.prefill), step=step)
    if resource == "decode":
        return replace(scenario, decode=_FreeDecode(scenario.decode))
    if resource == "hbm_capacity":
        return replace(scenario, hbm_capacity_bytes=scenario.hbm_capacity_bytes / _LEFT)
    faster = {
        name: replace(link, bytes_per_s=link.bytes_per_s / _LEFT)
        for name, link in scenario.links.items()
    }
    return replace(scenario, links=faster)
