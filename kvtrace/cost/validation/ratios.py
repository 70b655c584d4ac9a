"""Predictions of ratios: a tier on against off, what it saves, where it breaks even."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from kvtrace.cost.validation.bench import Bench
from kvtrace.cost.validation.compute import batched_prefill_s
from kvtrace.cost.validation.moves import hit_ttft_s
from kvtrace.cost.validation.paths import PathText, parse_path
from kvtrace.cost.validation.points import Point
from kvtrace.cost.validation.quantities import unit_of, written_in
from kvtrace.cost.validation.routes import CannotPredictError

STAND_INS: Final = {"model": "Meta-Llama-3.1-70B", "gpu": "H100-SXM5"}
"""What stands in where a row about a whole system names none: its sign is what is asked."""
_PROMPT_TOKENS: Final = 8192
_HIT_SHARE: Final = 0.5
"""Share of the prompt that the tier serves, where a row does not say."""
_LOCAL_SHARE: Final = 0.5
"""Share of a pool's hits that one instance's own cache has, where a row does not say."""
_TIER_PATHS: Final = (
    (("ssd", "disk", "nvme"), "NVMe>DRAM>PCIe>HBM"),
    (("object", "s3"), "object store>DRAM>PCIe>HBM"),
    (("pool", "global", "remote", "mooncake", "shared"), "pool>8xRDMA200G>DRAM>PCIe>HBM"),
)
_LONGEST_TOKENS: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Sides:
    """A prompt with a tier and without it."""

    off_ttft_s: float
    on_ttft_s: float
    off_gpu_s: float
    on_gpu_s: float


def baseline(metric: str, unit: str) -> float | None:
    """What a ratio is compared with: 1 for `_over_` and `x`, 0 for savings and changes."""
    words = metric.lower()
    if "_over_" in words or unit == "x" or "speedup" in words:
        return 1.0
    return 0.0


def sign(value: float, metric: str, unit: str) -> int:
    """-1, 0 or 1: below, at or above what the ratio is compared with."""
    compared = value - (baseline(metric, unit) or 0.0)
    return 0 if abs(compared) < 1e-9 else 1 if compared > 0 else -1


def tier_ratio(bench: Bench) -> float:
    """The ratio that a tier makes to TTFT, throughput, GPU time or cost."""
    metric, unit = bench.point.metric.lower(), bench.point.unit
    dimension = unit_of(unit)[0]
    if dimension != "ratio":
        raise CannotPredictError(f"the unit `{unit}` is not one of a ratio")
    if "hit" in metric:
        value = 1.0 / _LOCAL_SHARE if baseline(metric, unit) == 1.0 else _HIT_SHARE
    else:
        filled = replace(bench, point=_filled(bench.point))
        value = _form(_quantity(filled, metric), metric, unit)
    return written_in(unit, dimension, value)


def assumed(point: Point) -> tuple[str, ...]:
    """What stands in for cells that a row about a whole system leaves empty."""
    if "hit" in point.metric.lower():
        return ("hit share 0.5, one instance's own cache has half of a pool's hits",)
    found = [f"{name} {value}" for name, value in STAND_INS.items() if not getattr(point, name)]
    if not point.cached_tokens:
        found.append(f"{_PROMPT_TOKENS} prompt tokens, half of them hit")
    if isinstance(parse_path(point.path), str):
        found.append(f"path {_path_text(point)}")
    return tuple(found)


def sides(bench: Bench) -> Sides:
    """Both sides of a prompt: computed whole, or moved in part; loads keep the GPU from others."""
    point, path = bench.point, _path(bench)
    cached = bench.cached_tokens
    new = point.new_tokens or 1
    route = bench.route_of(path)
    placed = replace(bench, point=replace(point, path=_path_text(point)))
    move = route.seconds(bench.moved_bytes(cached)) if route.stages else 0.0
    decode = 0.0
    if "output" in point.words or "osl" in point.words:
        decode = bench.output_tokens * bench.step_s / bench.batch
    return Sides(
        off_ttft_s=bench.ttft_s(new + cached, 0),
        on_ttft_s=hit_ttft_s(placed, route, new, cached),
        off_gpu_s=decode + batched_prefill_s(bench, new + cached, 0),
        on_gpu_s=decode + batched_prefill_s(bench, new, cached) + move,
    )


def speedup(bench: Bench) -> float:
    """TTFT without the hit over TTFT with it."""
    if not bench.cached_tokens:
        raise CannotPredictError("no cached_tokens")
    both = sides(bench)
    return written_in(bench.point.unit, "ratio", both.off_ttft_s / both.on_ttft_s)


def crossover(bench: Bench) -> float:
    """Rate above which a move beats recomputing, or the length from which it does.

    A point of provenance `formula` takes the GPUs' peak, as published break-even formulas do.
    """
    point = bench.point
    dimension = unit_of(point.unit)[0]
    if dimension == "bytes_per_s":
        if not bench.cached_tokens:
            raise CannotPredictError("no cached_tokens")
        moved = bench.moved_bytes(bench.cached_tokens)
        return written_in(point.unit, dimension, moved / _recompute_s(bench, bench.cached_tokens))
    if dimension == "count":
        return written_in(point.unit, dimension, float(_break_even_tokens(bench)))
    raise CannotPredictError(f"a crossover in `{point.unit}` is not modelled")


def _recompute_s(bench: Bench, tokens: int) -> float:
    if bench.point.provenance == "formula":
        _, peak = bench.hardware.gpu.peak_flops(bench.weight_dtype)
        return bench.llm.prefill_flops(tokens, 0) / (bench.tp * peak)
    new = bench.point.new_tokens or 1
    return bench.engine_s(new + tokens, 0) - bench.engine_s(new, tokens)


def _break_even_tokens(bench: Bench) -> int:
    route = bench.route

    def wins(tokens: int) -> bool:
        moved = bench.llm.kv_bytes(tokens, kv_dtype=bench.kv_dtype, tp=bench.point.tp or 1)
        return route.seconds(moved) < _recompute_s(bench, tokens)

    low, high = 0, 1
    while not wins(high):
        low, high = high, high * 2
        if high > _LONGEST_TOKENS:
            raise CannotPredictError("moving never wins on this path")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if wins(middle) else (middle, high)
    return high


def _filled(point: Point) -> Point:
    """The point with stand-ins for what it leaves open."""
    cached = point.cached_tokens or round(_PROMPT_TOKENS * _HIT_SHARE)
    new = point.new_tokens or (1 if point.cached_tokens else _PROMPT_TOKENS - cached)
    return replace(
        point,
        model=point.model or STAND_INS["model"],
        gpu=point.gpu or STAND_INS["gpu"],
        cached_tokens=cached,
        new_tokens=new,
    )


def _path_text(point: Point) -> str:
    if not isinstance(parse_path(point.path), str) and ">" in point.path:
        return point.path
    words = f"{point.path} {point.metric}".lower()
    if point.path.strip().lower() in ("hbm", "gpu"):
        return "HBM"
    for names, path in _TIER_PATHS:
        if any(name in words for name in names):
            return path
    return "DRAM>PCIe>HBM"


def _path(bench: Bench) -> PathText:
    parsed = parse_path(_path_text(bench.point))
    if isinstance(parsed, str):
        raise CannotPredictError(parsed)
    return parsed


def _quantity(bench: Bench, metric: str) -> float:
    """The tier's side over the other side, of what the metric measures."""
    both = sides(bench)
    on, off = both.on_gpu_s, both.off_gpu_s
    if "global_over_local" in metric:
        local = off - _LOCAL_SHARE * (off - on)
        return on / local
    if any(word in metric for word in ("ttft", "latency", "e2e")):
        return both.on_ttft_s / both.off_ttft_s
    if any(word in metric for word in ("throughput", "tput", "rps", "qps", "tokens_per", "tok_s")):
        return off / on
    return on / off


def _form(on_over_off: float, metric: str, unit: str) -> float:
    if any(word in metric for word in ("saved", "reduction", "saving")):
        return 1.0 / on_over_off if unit == "x" else 1.0 - on_over_off
    if "off_over_on" in metric or "without_over_with" in metric:
        return 1.0 / on_over_off
    if "speedup" in metric and "ttft" in metric:
        return 1.0 / on_over_off
    if "change" in metric or ("gain" in metric and unit != "x"):
        return on_over_off - 1.0
    return on_over_off
