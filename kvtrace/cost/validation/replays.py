"""Predictions of whole runs, where a closed form says enough."""

from __future__ import annotations

from kvtrace.cost.validation.bench import Bench
from kvtrace.cost.validation.compute import batched_prefill_s
from kvtrace.cost.validation.quantities import written_in
from kvtrace.cost.validation.routes import CannotPredictError


def throughput(bench: Bench) -> float:
    """Prompt tokens a second of a saturated instance whose requests hit in part.

    Formula: (new + cached) / (batched prefill of new + move of cached): copies and kernels share
    the GPU, so their seconds add.
    """
    new, cached = bench.point.new_tokens or 0, bench.cached_tokens
    if not new + cached:
        raise CannotPredictError("no tokens")
    seconds = batched_prefill_s(bench, new, cached) if new else 0.0
    if cached:
        route = bench.route
        if route.stages:
            seconds += bench.moved_bytes(cached) / route.bytes_per_s
    if seconds <= 0.0:
        raise CannotPredictError("nothing is computed and nothing moves")
    return written_in(bench.point.unit, "tokens_per_s", (new + cached) / seconds)
