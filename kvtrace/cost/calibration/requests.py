"""The calibration of prefill and decode by what requests took, without a model of the queue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from kvtrace.cost.calibration.direct import DirectModel, measured
from kvtrace.cost.calibration.observations import Bools, Floats, RequestTimes
from kvtrace.cost.calibration.outcome import Calibration, metrics_of_requests, solve
from kvtrace.cost.calibration.parameters import NAMES, parameters_of
from kvtrace.cost.calibration.problem import Problem, Series, first_half
from kvtrace.cost.calibration.screen import hits_taken_as_none, lone_queues_as_none, screen
from kvtrace.cost.deployment import Deployment

_AHEAD: Final = (
    "the engine stamps a request's first step while the step before runs: a step of the batch is "
    "taken off each prefill"
)


def calibrate_requests(
    times: RequestTimes,
    deployment: Deployment,
    *,
    chunk_tokens: int,
    instances: int = 1,
    names: Sequence[str] | None = None,
    kv_capacity_tokens: float | None = None,
    prefix_caching: bool | None = None,
    assumes_no_hits: bool = False,
    seed: int = 0,
) -> Calibration:
    """Fit the constants of prefill and decode to the seconds of the earlier half of the requests.

    `instances`: engines that served them, each as much as the others.

    Raises:
        ModelError: the FLOPs of the LLM are not known.
    """
    times, refused, notes = hits_taken_as_none(
        times, prefix_caching=prefix_caching, assumes_no_hits=assumes_no_hits
    )
    times, of_queues = lone_queues_as_none(times)
    notes += of_queues
    model = DirectModel(deployment, times, chunk_tokens=chunk_tokens, instances=instances)
    found = screen(
        times,
        model.timeline,
        model.decoding.context_tokens,
        kv_capacity_tokens=kv_capacity_tokens,
    )
    seen = measured(times)
    early = first_half(times.arrived_s)
    observed = {
        "prefill": np.where(found.prefill, seen.prefill_s, np.nan),
        "decode": np.where(found.decode, seen.decode_s, np.nan),
    }
    model.ahead_steps = _ahead_steps(model, observed["prefill"][early], early)
    if model.ahead_steps:
        notes = (*notes, _AHEAD)

    def predict(values: Mapping[str, float]) -> Series:
        seconds = model.predict(values)
        return {"prefill": seconds.prefill_s, "decode": seconds.decode_s}

    return solve(
        Problem(
            subject="requests",
            parameters=parameters_of(deployment, names or NAMES),
            observed=observed,
            predict=predict,
            fitted=early,
            buckets={"prompt_tokens": times.prompt_tokens, "batch": model.decoding.batch},
            informed_by=metrics_of_requests,
            refused={**found.refused, **refused},
            notes=(*notes, *found.notes),
            is_forced=names is not None,
        ),
        seed=seed,
    )


def _ahead_steps(model: DirectModel, prefill_s: Floats, early: Bools) -> float:
    """0 or 1, whichever explains the measured prefills of the earlier half better."""
    errors = []
    for steps in (0.0, 1.0):
        model.ahead_steps = steps
        ratio = model.predict({}).prefill_s[early] / prefill_s
        known = np.isfinite(ratio) & (ratio > 0)
        spread = np.log(ratio[known])
        spread = spread - np.median(spread) if len(spread) else spread
        errors.append(float(np.median(np.abs(spread))) if len(spread) else 0.0)
    return 1.0 if errors[1] < errors[0] else 0.0
