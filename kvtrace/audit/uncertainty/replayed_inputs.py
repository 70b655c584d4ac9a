"""Which inputs a replay depends on are open, and what a scenario is at other values of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from kvtrace.audit.uncertainty.sensitivity import path_of_option
from kvtrace.audit.uncertainty.settling import settled_by
from kvtrace.audit.uncertainty.unknowns import Unknown, unknown_of
from kvtrace.cost.deployment import Deployment
from kvtrace.cost.evidence import Constant
from kvtrace.cost.fleet import Fleet
from kvtrace.cost.hardware_file.calibration import CALIBRATED
from kvtrace.cost.interval import with_constant
from kvtrace.cost.residuals import ErrorKind, held_out_error
from kvtrace.replay.scenario import DecodeTime, PrefillTime, Scenario, StepTime

ERRORS: Final[tuple[ErrorKind, ...]] = ("prefill", "decode", "moves")
_FLEET_FIELDS: Final = ("dram_idle_bytes_per_instance", "pool_dram_bytes_per_s")
_CHOICES: Final = ("ports_per_node", "peak_bytes_per_s")
"""Ends of constants that say what was bought, no uncertainty."""


def candidate_unknowns(
    deployment: Deployment, fleet: Fleet, option_ids: Sequence[str]
) -> tuple[Unknown, ...]:
    """Errors of the model, and the ranges of constants that they do not have in them.

    A constant that was fitted to the rows whose held-out errors are the model's error is not moved
    beside it; one that a calibration fitted to the service's own log is moved in its place.
    """
    found: dict[str, Unknown | None] = {}
    for kind in ERRORS:
        calibrated = [c for c in _of_kind(deployment, kind, option_ids) if _is_calibrated(c)]
        for constant in calibrated:
            found[constant.id] = _unknown(constant)
        if not calibrated:
            factor = held_out_error(kind, is_moe=deployment.llm.is_moe).factor
            one = _unknown(factor)
            found[factor.id] = None if one is None else replace(one, distribution="lognormal")
    for constant in (*_of_paths(deployment, option_ids), *_of_times(deployment)):
        is_choice = constant.id.endswith(_CHOICES)
        if constant.kind != "fitted" and not is_choice:
            found.setdefault(constant.id, _unknown(constant))
    for field in _FLEET_FIELDS:
        constant = getattr(fleet, field)
        found.setdefault(constant.id, _unknown(constant))
    return tuple(one for one in found.values() if one is not None)


def _unknown(constant: Constant) -> Unknown | None:
    settle, line = settled_by(constant)
    return unknown_of(constant, settle=settle, line=line)


def _is_calibrated(constant: Constant) -> bool:
    return constant.kind == "fitted" and constant.source.startswith(CALIBRATED)


def _of_kind(
    deployment: Deployment, kind: ErrorKind, option_ids: Sequence[str]
) -> Iterable[Constant]:
    if kind == "moves":
        return _of_paths(deployment, option_ids)
    return deployment.prefill.evidence if kind == "prefill" else deployment.decode.evidence


def _of_paths(deployment: Deployment, option_ids: Sequence[str]) -> Iterator[Constant]:
    for option_id in option_ids:
        path_id = path_of_option(option_id)
        if path_id is not None:
            yield from deployment.path(path_id).evidence


def _of_times(deployment: Deployment) -> Iterator[Constant]:
    """Of prefill and decode, what was not fitted or measured with the rows of the errors."""
    for constant in (*deployment.prefill.evidence, *deployment.decode.evidence):
        if constant.kind == "assumed":
            yield constant


def stated_at(
    deployment: Deployment, fleet: Fleet, values: Mapping[str, float]
) -> tuple[Deployment, Fleet]:
    """Deployment and fleet with these constants at these values, by id."""
    moved = deployment
    for ident, value in values.items():
        if not ident.startswith(("fleet.", "model_error.")):
            moved = with_constant(moved, ident, value)
    changes: dict[str, Constant] = {}
    for field in _FLEET_FIELDS:
        constant = getattr(fleet, field)
        if constant.id in values:
            changes[field] = constant.given(values[constant.id], source=constant.source)
    port = fleet.pool_nic_bytes_per_s
    if port.kind != "given":
        changes["pool_nic_bytes_per_s"] = port.scaled(_port_rate(moved) / _port_rate(deployment))
    return moved, replace(fleet, **changes)  # type: ignore[arg-type]


def _port_rate(deployment: Deployment) -> float:
    hardware = deployment.hardware
    return hardware.rdma.port.bytes_per_s(hardware.chunk_bytes.value)


def with_errors(scenario: Scenario, values: Mapping[str, float]) -> Scenario:
    """The scenario with the model's seconds times the errors in `values`."""
    prefill, decode, moves = (values.get(f"model_error.{kind}", 1.0) for kind in ERRORS)
    links = {
        name: replace(link, bytes_per_s=link.bytes_per_s / moves)
        for name, link in scenario.links.items()
    }
    tiers = tuple(
        replace(
            tier,
            read=tuple(replace(s, latency_s=s.latency_s * moves) for s in tier.read),
            write=tuple(replace(s, latency_s=s.latency_s * moves) for s in tier.write),
        )
        for tier in scenario.tiers
    )
    return replace(
        scenario,
        links=links,
        tiers=tiers,
        prefill=_SlowerPrefill(scenario.prefill, prefill),
        decode=_SlowerDecode(scenario.decode, decode),
        step=None if scenario.step is None else _SlowerStep(scenario.step, prefill),
    )


@dataclass(frozen=True, slots=True)
class _SlowerPrefill:
    model: PrefillTime
    factor: float

    def prefill_s(self, new_tokens: float, cached_tokens: float) -> float:
        return self.factor * self.model.prefill_s(new_tokens, cached_tokens)


@dataclass(frozen=True, slots=True)
class _SlowerDecode:
    model: DecodeTime
    factor: float

    def step_s(self, batch: float, context_tokens: float) -> float:
        return self.factor * self.model.step_s(batch, context_tokens)


@dataclass(frozen=True, slots=True)
class _SlowerStep:
    """Both seconds are of prefill: what a step takes for its prompts."""

    model: StepTime
    factor: float

    def work_s(self, new_tokens: float, cached_tokens: float) -> float:
        return self.factor * self.model.work_s(new_tokens, cached_tokens)

    def added_s(
        self, new_tokens: float, work_s: float, *, steps: int, is_start: bool, batch: int
    ) -> float:
        own = work_s / self.factor
        return self.factor * self.model.added_s(
            new_tokens, own, steps=steps, is_start=is_start, batch=batch
        )


def alone_s(scenario: Scenario, kv_bytes: float) -> float:
    """Seconds of one move of `kv_bytes` from the option's first tier, alone on its links."""
    if not scenario.tiers:
        return 0.0
    tier = scenario.tiers[0]
    return tier.lookup_s + sum(
        stage.latency_s + kv_bytes / min(scenario.links[i].bytes_per_s for i in stage.link_ids)
        for stage in tier.read
    )
