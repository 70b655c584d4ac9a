"""The calibration of prefill and decode by latencies as users saw them, queues replayed.

The caller replays the arrivals on the stated scheduler with the constants at other values. What was
queue in a TTFT is then as much evidence as what was prefill, and preempted requests are replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from kvtrace.cost.calibration.observations import Floats
from kvtrace.cost.calibration.outcome import Calibration, solve
from kvtrace.cost.calibration.parameters import parameters_of, with_values
from kvtrace.cost.calibration.problem import Problem, Series, first_half
from kvtrace.cost.deployment import Deployment

REPLAYED: Final = ("prefill_rate", "decode_bandwidth")
"""What is fitted unless somebody names others: queues tell few constants apart."""
_STEP: Final = 0.02
"""Relative step of the derivative: a replay answers to less by jumps."""


def calibrate_replayed(
    deployment: Deployment,
    replay: Callable[[Deployment], Series],
    observed: Series,
    *,
    arrived_s: Floats,
    prompt_tokens: Floats,
    names: Sequence[str] | None = None,
    notes: Sequence[str] = (),
    seed: int = 0,
) -> Calibration:
    """Fit constants to TTFT and TPOT of the requests that arrived in the earlier half.

    `replay` gives (requests,) seconds of `ttft` and `tpot` on a deployment, as `observed` has them.

    Raises:
        ModelError: the FLOPs of the LLM are not known.
    """
    return solve(
        Problem(
            subject="requests, replayed",
            parameters=parameters_of(deployment, names or REPLAYED),
            observed=observed,
            predict=lambda values: replay(with_values(deployment, values)),
            fitted=first_half(arrived_s),
            buckets={"prompt_tokens": np.asarray(prompt_tokens, dtype=np.float64)},
            informed_by=lambda _: ("ttft", "tpot"),
            refused={},
            notes=tuple(notes),
            is_forced=True,
        ),
        seed=seed,
        step=_STEP,
    )
