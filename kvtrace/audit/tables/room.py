"""The HBM of an instance: what takes it, what is left for KV, and how many contexts fit."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np

from kvtrace.audit.record import Cell, Table
from kvtrace.audit.tables.shape import TableShape
from kvtrace.cost.deployment import Deployment
from kvtrace.cost.efficiency import efficiency_table
from kvtrace.replay.result import ReplayResult
from kvtrace.schema.arrays import RequestTrace

BUDGET_TABLE: Final = "kv/hbm_budget"
CONTEXTS_TABLE: Final = "kv/contexts"
CONTEXTS: Final = (2_048, 8_192, 32_768, 131_072)
_BUDGET: Final = TableShape(
    BUDGET_TABLE,
    "HBM of one instance (modelled)",
    (
        ("part", "name", "what takes it; the parts under hbm add up to it"),
        ("instance_bytes", "bytes", "of all GPUs of an instance together; null: unknown"),
        ("gpu_bytes", "bytes", "the same over its GPUs, as if spread evenly"),
        ("ratio_hbm", "ratio", "of the HBM"),
        ("basis", "text", "where the number comes from"),
    ),
)
_CONTEXTS: Final = TableShape(
    CONTEXTS_TABLE,
    "Contexts that fit into the HBM that is left for KV (modelled)",
    (
        ("context_tokens", "tokens", "of one sequence"),
        ("kv_bytes", "bytes", "its KV over all ranks that hold it, copies included"),
        ("fit_instance", "contexts", "whole ones at once in an instance, running or cached"),
        ("fit_gpu", "contexts", "fit_instance / GPUs of an instance"),
        ("fit_beside_running", "contexts", "whole ones beside the mean running KV; null: unknown"),
    ),
)


class Room(NamedTuple):
    """Bytes of one instance; they add up to its HBM."""

    hbm: float
    weights: float
    free: float
    """What the engine does not touch."""
    activations: float
    """And its workspace: what is left of the HBM after all others."""
    kv: float
    """For KV, running and cached."""
    running: float | None
    """KV of the requests that run, mean of the replay; null: not known."""
    is_measured: bool
    """The room for KV was printed at start-up; else it is worked out."""

    @property
    def cache(self) -> float | None:
        """Room for KV that no running request holds, on the mean."""
        return None if self.running is None else max(0.0, self.kv - self.running)


def running_kv_bytes(
    trace: RequestTrace | None, result: ReplayResult | None, deployment: Deployment
) -> float | None:
    """Mean KV bytes of the running requests of an instance; null without times.

    Formula: Little's law: sum over requests of seconds in the engine x KV bytes / (span x
    instances); in the engine: all of it but the queue; KV: of the prompt and half of what it
    generates.
    """
    if trace is None or result is None or not result.span_s:
        return None
    held_s = result.timeline.e2e_s - result.timeline.queue_s
    known = np.isfinite(held_s)
    if not known.any():
        return None
    tokens = trace.prompt_tokens + trace.output_tokens / 2.0 * trace.output_known
    bytes_s = math.fsum((held_s[known] * tokens[known]).tolist()) * deployment.kv_bytes_per_token
    return bytes_s / result.span_s / result.scenario.instances


def hbm_room(deployment: Deployment, running: float | None) -> Room:
    """The budget of one instance.

    Raises:
        ModelError: the weights do not fit.
    """
    hardware = deployment.hardware
    hbm = deployment.gpus * hardware.gpu.hbm_bytes.value
    free = hbm * (1.0 - hardware.gpu_memory_utilisation.value)
    weights, room = deployment.weight_bytes, deployment.hbm_cache_bytes
    left = hbm - weights - room
    is_measured = deployment.measured_kv_tokens is not None
    if is_measured and left < free:  # the engine was given more of the HBM than by default
        free = max(0.0, left - deployment.gpus * hardware.activation_reserve_bytes.value)
    return Room(
        hbm=hbm,
        weights=weights,
        free=free,
        activations=max(0.0, left - free),
        kv=room,
        running=None if running is None else min(running, room),
        is_measured=is_measured,
    )


def fitting(deployment: Deployment, room_bytes: float, context_tokens: int) -> int:
    """Whole sequences whose KV fits into `room_bytes` of an instance at once.

    Formula: groups x floor(room of a group / KV of a sequence); groups of data-parallel attention.
    """
    each = deployment.kv_bytes(context_tokens)
    return deployment.dp * math.floor(room_bytes / deployment.dp / each)


def room_tables(
    deployment: Deployment, trace: RequestTrace | None, today: ReplayResult | None
) -> list[Table]:
    """The budget, and the contexts that fit."""
    room = hbm_room(deployment, running_kv_bytes(trace, today, deployment))
    return [
        _BUDGET.table(_budget_rows(room, deployment)),
        _CONTEXTS.table([_context_row(room, deployment, tokens) for tokens in CONTEXTS]),
    ]


def _budget_rows(room: Room, deployment: Deployment) -> list[list[Cell]]:
    hardware = deployment.hardware
    share = hardware.gpu_memory_utilisation
    kv = "start-up log" if room.is_measured else "HBM x utilisation - activations - weights"
    parts: list[tuple[str, float | None, str]] = [
        ("hbm", room.hbm, f"{deployment.gpus:,} x {hardware.gpu.name}"),
        ("weights", room.weights, f"parameters in {deployment.weight_dtype}"),
        (
            "activations",
            room.activations,
            "what is left of the HBM beside the others"
            if room.is_measured
            else f"reserve of each GPU ({hardware.activation_reserve_bytes.kind})",
        ),
        ("unused", room.free, f"left free: utilisation {share.value:g} ({share.kind})"),
        ("running_kv", room.running, "mean of the replay of today's option, by Little's law"),
        ("cache", room.cache, f"room for KV ({kv}) less the running KV"),
    ]  # fmt: skip
    if room.running is None:
        parts[-2:] = [("kv", room.kv, f"{kv}; running KV is not known without a replay")]
    return [
        [name, size, None if size is None else size / deployment.gpus, _over(size, room.hbm), how]
        for name, size, how in parts
    ]


def _over(size: float | None, hbm: float) -> float | None:
    return None if size is None else size / hbm


def _context_row(room: Room, deployment: Deployment, tokens: int) -> list[Cell]:
    whole = fitting(deployment, room.kv, tokens)
    return [
        tokens,
        float(deployment.kv_bytes(tokens)),
        whole,
        whole / deployment.gpus,
        None if room.cache is None else fitting(deployment, room.cache, tokens),
    ]


def hbm_bytes_per_s(deployment: Deployment) -> float:
    """What reads of KV reach of the HBM of the ranks that hold a sequence, together."""
    gpu = deployment.hardware.gpu
    table = deployment.efficiencies or efficiency_table()
    return deployment.kv_ranks * gpu.hbm_bytes_per_s.value * table.kv_read(gpu.family).value
