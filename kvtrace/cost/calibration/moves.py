"""The calibration of links by observed moves of KV.

Formula: seconds = fixed + bytes (1 + contention (n - 1)) / rate, n the moves of the path that were
under way on average while it lasted; the rate is that of the path's model at the ranks of the row.
Contention 1: the moves share the path evenly, as a replay assumes; 0: they do not feel each other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

import numpy as np

from kvtrace.cost.calibration.exposure import spread_between
from kvtrace.cost.calibration.observations import Floats, MoveTimes, clock_step_s
from kvtrace.cost.calibration.outcome import Calibration, solve
from kvtrace.cost.calibration.parameters import Parameter
from kvtrace.cost.calibration.problem import Problem, Series, first_half
from kvtrace.cost.calibration.screen import ENOUGH
from kvtrace.cost.deployment import Deployment
from kvtrace.cost.evidence import Constant
from kvtrace.cost.hardware import HardwareProfile
from kvtrace.cost.transfer import Direction, HopKind, PathId, build_path
from kvtrace.cost.walk import replaced_constants

OBSERVED_PATHS: Final[Mapping[str, tuple[PathId, Direction, HopKind | None]]] = MappingProxyType(
    {
        "host>device": ("dram_pcie", "read", None),
        "device>host": ("dram_pcie", "write", None),
        "remote>device": ("pool_rdma_direct", "read", None),
        "device>remote": ("pool_rdma_direct", "write", None),
        "device>device": ("pool_rdma_direct", "read", None),
        "remote>host": ("pool_rdma_bounce", "read", "pull"),
        "host>remote": ("pool_rdma_bounce", "write", "pull"),
        "remote>host>device": ("pool_rdma_bounce", "read", None),
        "device>host>remote": ("pool_rdma_bounce", "write", None),
    }
)
"""Path as the logs say it: path of the model, way, and the one stage that it is (null: all)."""
CONTENTION_ID: Final = "calibration.contention"
"""No constant of the model, which shares links evenly: a figure to compare with 1."""
_SPAN: Final = 50.0
"""A constant is sought from the model's value over this up to it times this."""
_COARSE: Final = 0.2
"""Step of the clock over the median move above which durations say too little."""
_SOME_COMPANY: Final = 1.2
"""Moves under way on average below which contention cannot be told."""
_TWO_SIZES: Final = 2.0
"""Sizes whose 90th percentile is less than so many times their 10th are one size."""


@dataclass(frozen=True, slots=True)
class _Path:
    """One observed path on the hardware."""

    hardware: HardwareProfile
    path: PathId
    direction: Direction
    stage: HopKind | None
    tp: int


def calibrate_moves(moves: MoveTimes, deployment: Deployment, *, seed: int = 0) -> Calibration:
    """Fit rate, fixed seconds and contention of one path to the earlier half of its moves."""
    known = OBSERVED_PATHS.get(moves.path)
    subject = f"moves over {moves.path}"
    if known is None:
        return Calibration(subject, 0, 0, (), (), (), ("this path is not in the cost model",))
    path = _Path(deployment.hardware, *known, deployment.tp)
    company = _company(moves)
    timed = np.isfinite(moves.moved_bytes) & np.isfinite(moves.seconds)
    timed &= (moves.seconds > 0) & (moves.moved_bytes > 0)

    def predict(values: Mapping[str, float]) -> Series:
        return {"move": _seconds(path, moves, company, values)}

    return solve(
        Problem(
            subject=subject,
            parameters=_parameters(path),
            observed={"move": np.where(timed, moves.seconds, np.nan)},
            predict=predict,
            fitted=first_half(np.where(timed, _order(moves), np.nan)),
            buckets={"moved_bytes": moves.moved_bytes, "under_way": company},
            informed_by=lambda _: ("move",),
            refused=_refused(moves, timed, company),
        ),
        seed=seed,
    )


def _order(moves: MoveTimes) -> Floats:
    """By start; in the order of the log where no move says when it began."""
    if np.isfinite(moves.started_s).any():
        return moves.started_s
    return np.arange(len(moves.seconds), dtype=np.float64)


def _company(moves: MoveTimes) -> Floats:
    """(moves,) moves of the path under way while each lasted, itself included; 1 where unknown."""
    start, end = moves.started_s, moves.started_s + moves.seconds
    busy = spread_between(start, end, end - start, start, end) / (end - start)
    return np.where(np.isfinite(busy), np.maximum(busy, 1.0), 1.0)


def _parameters(path: _Path) -> tuple[Parameter, ...]:
    hardware = path.hardware
    if path.path == "dram_pcie":
        rate, fixed = hardware.load_efficiency, hardware.handover_s
        more = [_parameter("load_contention", hardware.load_contention)]
    else:
        rate, fixed = hardware.rdma.port.max_bytes_per_s, hardware.rdma.setup_s
        more = []
    if path.direction == "write" and path.path == "dram_pcie":
        fixed = hardware.host_link.latency_s
    shared = Constant(
        CONTENTION_ID, "slowdown of a move per further move under way", 1.0, "ratio", None, None,
        "assumed", "links are shared evenly", "",
    )  # fmt: skip
    return (
        _parameter("link_rate", rate),
        _parameter("link_fixed", fixed),
        _parameter("contention", shared),
        *more,
    )


def _parameter(name: str, constant: Constant) -> Parameter:
    return Parameter(name, constant, constant.value / _SPAN, constant.value * _SPAN)


def _seconds(path: _Path, moves: MoveTimes, company: Floats, values: Mapping[str, float]) -> Floats:
    contention = values.get(CONTENTION_ID, 1.0)
    crowd = 1.0 + contention * (company - 1.0)
    hardware = _changed(path.hardware, values)
    ranks = np.where(np.isfinite(moves.ranks) & (moves.ranks > 0), moves.ranks, path.tp)
    found = np.full(len(company), np.nan)
    for count in np.unique(ranks).tolist():
        fixed_s, byte_s = _line(path, hardware, int(count))
        rows = ranks == count
        found[rows] = fixed_s + byte_s * moves.moved_bytes[rows] * crowd[rows]
    return found


def _changed(hardware: HardwareProfile, values: Mapping[str, float]) -> HardwareProfile:
    known = (
        hardware.load_efficiency,
        hardware.load_contention,
        hardware.handover_s,
        hardware.host_link.latency_s,
        hardware.rdma.port.max_bytes_per_s,
        hardware.rdma.setup_s,
    )
    change = {
        one.id: replace(one, value=values[one.id], low=None, high=None)
        for one in known
        if one.id in values
    }
    return replaced_constants(hardware, change) if change else hardware


def _line(path: _Path, hardware: HardwareProfile, ranks: int) -> tuple[float, float]:
    """(fixed seconds, seconds per byte) of a move alone, without its lookup."""
    model = build_path(path.path, hardware, tp=ranks, direction=path.direction)
    hops = [hop for hop in model.stages if path.stage in (None, hop.kind)]
    return (
        math.fsum(hop.latency_s for hop in hops),
        math.fsum(1.0 / hop.bytes_per_s for hop in hops),
    )


def _refused(moves: MoveTimes, timed: np.ndarray, company: Floats) -> dict[str, str]:
    names = ("link_rate", "link_fixed", "contention", "load_contention")
    if timed.sum() < 2 * ENOUGH:
        return dict.fromkeys(names, f"fewer than {2 * ENOUGH} moves have bytes and seconds")
    seconds = moves.seconds[timed]
    began = moves.started_s[timed]
    step, middle = clock_step_s(seconds, began, began + seconds), float(np.median(seconds))
    if step is not None and step > _COARSE * middle:
        reason = f"the clock steps by {step:.3g} s, and the median move takes {middle:.3g} s"
        return dict.fromkeys(names, reason)
    refused = {}
    low, high = np.quantile(moves.moved_bytes[timed], [0.1, 0.9]).tolist()
    if high < _TWO_SIZES * low:
        refused["link_fixed"] = "moves are of one size: fixed seconds and rate cannot be told apart"
    if float(np.quantile(company[timed], 0.9)) < _SOME_COMPANY:
        refused["contention"] = "moves hardly overlap: nothing shows how they share the path"
    if len(np.unique(moves.ranks[timed & np.isfinite(moves.ranks)])) < 2:
        refused["load_contention"] = "all moves are of as many ranks"
    return refused
