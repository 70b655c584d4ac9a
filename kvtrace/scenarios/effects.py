"""Keys of a scenario that would do nothing beside the others: an error, not a silent figure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from kvtrace.cost.deployment import Deployment
from kvtrace.replay.scenario import Scenario
from kvtrace.replay.topology import scenario_faults
from kvtrace.scenarios.plan import Plan

_SUBJECT: Final = re.compile(r"\b(tier|link) `([^`]+)`")


@dataclass(frozen=True, slots=True)
class _Idle:
    """A key that does nothing, and what would make it do something."""

    key: tuple[str, ...]
    cause: str
    hint: str


def check_usable(plan: Plan, scenario: Scenario) -> None:
    """Refuse a scenario that cannot be replayed, with the file and the line.

    Raises:
        UsageError: what is wrong, as the replay would say.
    """
    faults = scenario_faults(scenario)
    if not faults:
        return
    found = _SUBJECT.search(faults[0])
    path = () if found is None else (found.group(1), found.group(2))
    hint = "; ".join(faults[1:]) or "correct it there, or leave the key out"
    raise plan.reader.fault_at(path, faults[0], hint=hint)


def check_effects(plan: Plan, scenario: Scenario, deployment: Deployment) -> None:
    """Refuse a stated key that changes nothing; a sweep may set what gives it an effect.

    Raises:
        UsageError: the key with its line.
    """
    if plan.document.swept:
        return
    idle = next(_idle_keys(plan, scenario, deployment), None)
    if idle is not None:
        raise plan.reader.fault_at(idle.key, idle.cause, hint=idle.hint)


def _idle_keys(plan: Plan, scenario: Scenario, deployment: Deployment) -> Iterator[_Idle]:
    stated = plan.fields
    if "handoff" in stated and not scenario.prefill_instances:
        yield _Idle(
            ("handoff",),
            "`[handoff]` does nothing: no instance is for prefill alone",
            "state `prefill_instances`, or leave the table out",
        )
    if "load_threshold_tokens" in stated and scenario.load_decision != "threshold":
        yield _Idle(
            ("load_threshold_tokens",),
            f"`load_threshold_tokens` does nothing: `load_decision` is `{scenario.load_decision}`",
            'state `load_decision = "threshold"`, or leave it out',
        )
    if "overlap" in stated and scenario.overlap == "pipelined" and not scenario.load_chunk_tokens:
        yield _Idle(
            ("overlap",),
            "`pipelined` does nothing: a load of one chunk passes the stages one by one",
            "state `load_chunk_tokens`, as 256",
        )
    if "load_chunk_tokens" in stated and scenario.overlap != "pipelined":
        yield _Idle(
            ("load_chunk_tokens",),
            f"`load_chunk_tokens` does nothing: `overlap` is `{scenario.overlap}`",
            'state `overlap = "pipelined"`, or leave it out',
        )
    if plan.layout.get("ep", 1) > 1 and deployment.llm.experts is None:
        yield _Idle(
            ("ep",),
            f"`ep` does nothing: {deployment.llm.name} has no experts to spread",
            "leave it out, or name an LLM with experts",
        )
    yield from _tiers_outside(plan)


def _tiers_outside(plan: Plan) -> Iterator[_Idle]:
    """Tiers that the file states and the chain leaves out."""
    if plan.chain is None:
        return
    for name in plan.tiers:
        if name not in plan.chain:
            yield _Idle(
                ("tier", name),
                f"tier `{name}` does nothing: `chain` leaves it out",
                f"name `{name}` in `chain`, or leave the table out",
            )
