"""Predictions of prefill and decode."""

from __future__ import annotations

from typing import Final

from kvtrace.cost.step import PREFILL_CHUNK_TOKENS
from kvtrace.cost.validation.bench import Bench
from kvtrace.cost.validation.quantities import unit_of, written_in
from kvtrace.cost.validation.routes import CannotPredictError

_LONG_CONTEXT: Final = 1e6
"""Beyond all windows."""
_PROMPT_TOKENS: Final = 4096
"""Prompt of a throughput run that does not say."""


def prefill_time(bench: Bench) -> float:
    """Seconds to the first token, or of the kernels alone for sums of measured kernels."""
    if unit_of(bench.point.unit)[0] == "tokens_per_s":
        return prefill_throughput(bench)
    new, cached = bench.new_tokens, bench.cached_tokens
    if bench.point.kind == "prefill_composed" or "kernel" in bench.point.metric:
        seconds = bench.prefill.kernels_s(new, cached)
    else:
        seconds = served_ttft_s(bench, new, cached)
    return written_in(bench.point.unit, "seconds", seconds)


def served_ttft_s(bench: Bench, new_tokens: float, cached_tokens: float) -> float:
    """TTFT of a closed loop of `batch` requests: alone, and what others' prefills add.

    Formula: S + (B - 1) S / C * S / 2, C the seconds of a whole request: a request arrives while
    one of the others is prefilled with probability S / C each, and waits for half of it.
    """
    alone = bench.ttft_s(new_tokens, cached_tokens)
    if bench.batch == 1:
        return alone
    engine = bench.engine_s(new_tokens, cached_tokens)
    cycle = alone + bench.output_tokens * bench.step_s
    return alone + (bench.batch - 1) * engine / cycle * engine / 2


def batched_prefill_s(bench: Bench, new_tokens: float, cached_tokens: float) -> float:
    """GPU seconds of one prompt among many: its share of full steps, and its own attention."""
    model = bench.prefill
    step_tokens = max(new_tokens, PREFILL_CHUNK_TOKENS)
    tokens = model.tokens_s(step_tokens, is_start=False) * new_tokens / step_tokens
    return bench.software("prefill") * (tokens + model.attention_s(new_tokens, cached_tokens))


def prefill_throughput(bench: Bench) -> float:
    """Prompt tokens a second of a saturated instance, a GPU of it, or a node of such.

    Experts on GPUs without a stated TP: attention is data-parallel and experts are spread, so each
    GPU is a group with prompts of its own.
    """
    point, metric = bench.point, bench.point.metric.lower()
    new = point.new_tokens or _PROMPT_TOKENS
    gpus = point.n_gpus or bench.tp
    rate = bench.layout.dp * new / batched_prefill_s(bench, new, bench.cached_tokens)
    if "gpu" in metric.split("_"):
        rate /= gpus
    return written_in(point.unit, "tokens_per_s", rate)


def decode(bench: Bench) -> float:
    """Seconds of a step: its slope, its intercept, or with its batch and context."""
    point, metric = bench.point, bench.point.metric.lower()
    model, dimension = bench.decode, unit_of(bench.point.unit)[0]
    if dimension == "s_per_token":
        slope = model.kv_s(1, _LONG_CONTEXT + 1) - model.kv_s(1, _LONG_CONTEXT)
        return written_in(point.unit, dimension, slope)
    if "intercept" in metric:
        return written_in(point.unit, "seconds", model.step_s(1, 0))
    context = bench.cached_tokens
    if not context:
        raise CannotPredictError("the context is not in the row")
    is_run = "tpot" in metric or bench.batch > 1
    if not is_run:
        seconds = bench.software("decode") * model.step_s(1, context)
    else:
        seconds = bench.step_s
        others = (bench.batch - 1) * batched_prefill_s(bench, context, 0)
        seconds += others / bench.output_tokens
    if dimension == "tokens_per_s":
        shared = 1 if "user" in metric else bench.batch
        return written_in(point.unit, dimension, shared / seconds)
    return written_in(point.unit, "seconds", seconds)
