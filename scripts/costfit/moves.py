"""Constants of links and moves, fitted together, and errors on sources that a fit did not see."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from kvtrace.cost import hardware
from kvtrace.cost.evidence import number, read_toml
from kvtrace.cost.validation import Point, Prediction, bench, predict

MOVE_KINDS: Final = ("kv_load", "link_bw", "link_chunk_bw")
_LARGEST_RESIDUAL: Final = 6.0


@dataclass(frozen=True, slots=True)
class MoveParameter:
    """A constant of links.toml or moves.toml that published moves settle."""

    file: str
    section: str
    entry: str
    key: str
    start: float
    """What stands for it where no row says more: its line rate's usual share, or an estimate."""
    prior: float
    """How far the start is trusted: a standard deviation in log space."""

    @property
    def name(self) -> str:
        """Such as `links.pcie5_x16.op_s`."""
        return ".".join(part for part in (self.section, self.entry, self.key) if part != "value")


def _link(entry: str, start: float, prior: float, key: str = "max_bytes_per_s") -> MoveParameter:
    return MoveParameter("links.toml", "links", entry, key, start, prior)


def _move(entry: str, start: float, prior: float) -> MoveParameter:
    return MoveParameter("moves.toml", "constants", entry, "value", start, prior)


MOVE_PARAMETERS: Final = (
    _link("pcie5_x16", 49e9, 0.1),
    _link("pcie5_x16", 3.2e-6, 0.7, "op_s"),
    _link("pcie5_x16_kernel", 49e9, 0.15),
    _link("pcie5_x16_kernel", 0.3e-6, 1.0, "op_s"),
    _link("rdma_100g", 11.8e9, 0.1),
    _link("rdma_200g", 23.5e9, 0.15),
    _link("rdma_400g", 47e9, 0.1),
    _link("efa_200g", 22.5e9, 0.15),
    _link("efa_200g", 10e-6, 0.7, "op_s"),
    _link("efa_400g", 45e9, 0.1),
    _link("tcp_100g", 5e9, 0.7),
    _link("tcp_400g", 5e9, 0.7),
    _link("nvlink4", 0.5e-6, 1.0, "op_s"),
    _link("storage_scale_client", 80e9, 0.5),
    _move("load_efficiency", 0.9, 0.1),
    _move("load_contention", 0.1, 0.7),
    _move("handover_s", 0.5e-3, 1.0),
    _move("rdma_setup_s", 0.5e-3, 1.0),
    _move("peer_setup_s", 2e-3, 1.0),
)


def movable(points: Sequence[Point]) -> tuple[Point, ...]:
    """The points of moves that the model can express."""
    return tuple(p for p in points if p.kind in MOVE_KINDS and (predict(p).predicted or 0) > 0)


def source_of(point: Point) -> str:
    """What is left out as one: a document, whatever its figure or section."""
    return point.source.split(" figure")[0].split(" section")[0].split(",")[0].strip()


def written_values() -> list[float]:
    """The parameters as the data files have them."""
    return [number(_slot(parameter)["value"]) for parameter in MOVE_PARAMETERS]


def fit_moves(points: Sequence[Point]) -> NDArray[np.float64]:
    """The values that fit these points.

    Residuals: log(predicted / measured) / (0.05 + trust), Cauchy loss, and a prior around each
    start.
    """
    start = np.log([parameter.start for parameter in MOVE_PARAMETERS])
    priors = np.array([parameter.prior for parameter in MOVE_PARAMETERS])
    weights = np.array([1.0 / (0.05 + (point.tol_rel or 0.3)) for point in points])

    def residuals(logs: NDArray[np.float64]) -> NDArray[np.float64]:
        with _values(np.exp(logs).tolist()):
            errors = np.array([_log_error(predict(point)) for point in points])
        robust = np.sign(errors) * np.sqrt(np.log1p((errors * weights) ** 2))
        return np.concatenate([robust, 0.2 * (logs - start) / priors])

    found = least_squares(residuals, start, max_nfev=12, x_scale="jac")
    return np.asarray(np.exp(found.x), dtype=np.float64)


def cross_validate_moves(points: Sequence[Point]) -> tuple[Prediction, ...]:
    """Predictions of every point by a fit that saw no point of its source."""
    found: list[Prediction] = []
    for source in sorted({source_of(point) for point in points}):
        inside = [point for point in points if source_of(point) != source]
        outside = [point for point in points if source_of(point) == source]
        with _values(fit_moves(inside).tolist()):
            found += [predict(point) for point in outside]
    return tuple(found)


@contextmanager
def _values(values: Sequence[float]) -> Iterator[None]:
    """The cached data files with other values in them, for the time of the block."""
    slots = [_slot(parameter) for parameter in MOVE_PARAMETERS]
    before = [dict(slot) for slot in slots]
    for slot, value in zip(slots, values, strict=True):
        slot |= {"value": float(value), "low": float(value), "high": float(value)}
    _forget()
    try:
        yield
    finally:
        for slot, kept in zip(slots, before, strict=True):
            slot |= kept
        _forget()


def _forget() -> None:
    """Profiles that were built from the data files are built again."""
    hardware._built_in.cache_clear()
    bench._hardware.cache_clear()


def _slot(parameter: MoveParameter) -> dict[str, object]:
    entry = read_toml(parameter.file)[parameter.section][parameter.entry]
    slot = entry if parameter.key == "value" else entry[parameter.key]
    if not isinstance(slot, dict):
        raise ValueError(f"{parameter.name} is not a table")
    return slot


def _log_error(one: Prediction) -> float:
    if one.predicted is None or one.predicted <= 0:
        return _LARGEST_RESIDUAL
    return math.log(one.predicted / one.point.value)
