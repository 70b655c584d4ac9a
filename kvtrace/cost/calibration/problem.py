"""What a calibration fits to what, and the half of the rows that it fits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kvtrace.cost.calibration.observations import Bools, Floats
from kvtrace.cost.calibration.parameters import Parameter

Series = Mapping[str, Floats]
"""By metric: (rows,) seconds; NaN where there is none."""


@dataclass(frozen=True, slots=True)
class Problem:
    """What is fitted to what."""

    subject: str
    parameters: tuple[Parameter, ...]
    observed: Series
    predict: Callable[[Mapping[str, float]], Series]
    """Seconds with constants (by id) at these values."""
    fitted: Bools
    """(rows,) of the half that is fitted; the rest is held against the fit."""
    buckets: Series
    informed_by: Callable[[str], Sequence[str]]
    """Metrics that a parameter (by name) moves."""
    refused: Mapping[str, str]
    """Parameters that the data cannot tell, beforehand."""
    notes: tuple[str, ...] = ()
    is_forced: bool = False
    """All parameters join the fit, whether or not later requests gain by it."""


def first_half(at: Floats) -> Bools:
    """(rows,) whether a row is of the earlier half; rows without an instant are of neither."""
    known = np.isfinite(at)
    if not known.any():
        return known
    order = np.argsort(np.where(known, at, np.inf), kind="stable")
    early = np.zeros(len(at), dtype=np.bool_)
    early[order[: (int(known.sum()) + 1) // 2]] = True
    return early
