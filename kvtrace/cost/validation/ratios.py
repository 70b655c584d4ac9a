"""Predictions of ratios: a tier on against off, what it saves, where it breaks even."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

from kvtrace.cost.validation.bench import Bench
from kvtrace.cost.validation.compute import batched_prefill_s
from kvtrace.cost.validation.moves import hit_ttft_s
from kvtrace.cost.validation.paths import PathText, parse_path
from kvtrace.cost.validation.points import Point
from kvtrace.cost.validation.quantities import unit_of, written_in
from kvtrace.cost.validation.routes import CannotPredictError
from kvtrace.cost.validation.workloads import (
    LOOP_CLIENTS,
    LOOP_OUTPUT_TOKENS,
    HitShares,
    read_hits,
    read_loop,
    stated_hits,
)

STAND_INS: Final = {"model": "Meta-Llama-3.1-70B", "gpu": "H100-SXM5"}
"""What stands in where a row about a whole system names none: its sign is what is asked."""
_PROMPT_TOKENS: Final = 8192
_HIT_SHARE: Final = 0.5
"""Share of the prompt that the tier serves, where a row does not say."""
_LOCAL_SHARE: Final = 0.5
"""Share of a pool's hits that one instance's own cache has, where a row does not say."""
_TIER_PATHS: Final = (
    (("ssd", "disk", "nvme", "flash"), "NVMe>DRAM>PCIe>HBM"),
    (("object", "s3"), "object store>DRAM>PCIe>HBM"),
    (("nfs",), "NFS>DRAM>PCIe>HBM"),
    (("3fs",), "3FS>DRAM>PCIe>HBM"),
    (("file", "lustre", "gpfs", "weka", "vast", "storage", "ceph"), "file system>DRAM>PCIe>HBM"),
    (("pool", "global", "remote", "mooncake", "shared"), "pool>8xRDMA200G>DRAM>PCIe>HBM"),
)
_LONGEST_TOKENS: Final = 1 << 20


_SAVED: Final = ("saved", "reduction", "saving", "decrease", "lower", "cut")
"""Words of a metric that says how much less of something there is with the tier."""
_CHANGED: Final = ("change", "gain", "improvement", "increase", "uplift", "higher", "more")
"""Words of one that says by how much something is different."""
_DECODE_ONLY: Final = re.compile(r"(?:^|_)(?:itl|tpot)(?:_|$)|inter_token|per_output_token")
"""Metrics of one request's decode, whose steps with and without a tier are not modelled."""
_TIMES: Final = ("ttft", "latency", "e2e", "prefill_time", "first_token")
_RATES: Final = (
    "throughput", "tput", "rps", "qps", "tokens_per", "tok_s", "requests_per", "goodput",
    "capacity", "toks",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sides:
    """A prompt with a tier and without it."""

    off_ttft_s: float
    on_ttft_s: float
    off_gpu_s: float
    on_gpu_s: float


def baseline(metric: str, unit: str, kind: str = "economics") -> float:
    """What a ratio is compared with: 1 for one side over the other, 0 for savings and changes.

    `_over_`, `speedup` and the unit `x` say that it is one side over the other; a row of kind
    `ab_ratio` is so unless its metric names a saving or a change.
    """
    words = metric.lower()
    if "_over_" in words or unit == "x" or "speedup" in words:
        return 1.0
    is_ratio = kind == "ab_ratio" and not any(word in words for word in (*_SAVED, *_CHANGED))
    return 1.0 if is_ratio else 0.0


def sign(value: float, metric: str, unit: str, kind: str = "economics") -> int:
    """-1, 0 or 1: below, at or above what the ratio is compared with."""
    compared = value * unit_of(unit)[1] - baseline(metric, unit, kind)
    return 0 if abs(compared) < 1e-9 else 1 if compared > 0 else -1


def tier_ratio(bench: Bench) -> float:
    """The ratio that a tier makes to TTFT, throughput, GPU time or cost."""
    metric, unit = bench.point.metric.lower(), bench.point.unit
    dimension = unit_of(unit)[0]
    if dimension != "ratio":
        raise CannotPredictError(f"the unit `{unit}` is not one of a ratio")
    if _DECODE_ONLY.search(metric):
        raise CannotPredictError(f"`{metric}`: a tier's effect on decode steps is not modelled")
    if _is_of_hits(metric):
        value = 1.0 / _LOCAL_SHARE if baseline(metric, unit) == 1.0 else _HIT_SHARE
    else:
        filled = replace(bench, point=_filled(bench.point))
        is_system = not bench.point.cached_tokens
        ratio = _quantity(filled, metric, is_system=is_system)
        value = _form(ratio, metric, unit, bench.point.kind)
    return written_in(unit, dimension, value)


def assumed(point: Point) -> tuple[str, ...]:
    """What stands in for cells that a row about a whole system leaves empty."""
    if _is_of_hits(point.metric.lower()):
        return ("hit share 0.5, one instance's own cache has half of a pool's hits",)
    found = [f"{name} {value}" for name, value in STAND_INS.items() if not getattr(point, name)]
    if not point.cached_tokens:
        hit = "hits as stated" if _states_hits(point) else "half of them hit"
        found.append(f"{_PROMPT_TOKENS} prompt tokens, {hit}")
        if point.kind == "ab_ratio":
            found.append(f"{LOOP_CLIENTS} requests at once, {LOOP_OUTPUT_TOKENS} output tokens")
    if isinstance(parse_path(point.path), str):
        found.append(f"path {_path_text(point)}")
    return tuple(found)


def sides(bench: Bench, hits: HitShares | None = None) -> Sides:
    """Both sides of a prompt: computed whole, or moved in part; loads keep the GPU from others.

    `hits` mixes requests that find the cached part with requests that do not; those that find it
    without the tier have it in HBM. Null: none without the tier, all with it.
    """
    shares = hits or HitShares(0.0, 1.0)
    point, path = bench.point, _path(bench)
    cached = bench.cached_tokens
    new = point.new_tokens or 1
    route = bench.route_of(path)
    placed = replace(bench, point=replace(point, path=_path_text(point)))
    move = route.seconds(bench.moved_bytes(cached)) if route.stages else 0.0
    missed = (bench.ttft_s(new + cached, 0), batched_prefill_s(bench, new + cached, 0))
    kept = (bench.ttft_s(new, cached), batched_prefill_s(bench, new, cached))
    moved = (hit_ttft_s(placed, route, new, cached), kept[1] + move)

    def mixed(kind: int, hit: float, loaded: float) -> float:
        return (1 - hit - loaded) * missed[kind] + hit * kept[kind] + loaded * moved[kind]

    from_tier = max(0.0, shares.on - shares.off)
    off, on = (shares.off, 0.0), (min(shares.off, shares.on), from_tier)
    return Sides(
        off_ttft_s=mixed(0, *off),
        on_ttft_s=mixed(0, *on),
        off_gpu_s=mixed(1, *off),
        on_gpu_s=mixed(1, *on),
    )


def speedup(bench: Bench) -> float:
    """TTFT without the hit over TTFT with it, or what of it the metric asks for."""
    metric, unit = bench.point.metric.lower(), bench.point.unit
    if not bench.cached_tokens:
        raise CannotPredictError("no cached_tokens")
    both = sides(bench)
    ratio = both.on_ttft_s / both.off_ttft_s
    if "on_over_off" in metric or "with_over_without" in metric:
        return written_in(unit, "ratio", ratio)
    if any(word in metric for word in (*_SAVED, *_CHANGED)) and unit != "x":
        return written_in(unit, "ratio", _form(ratio, metric, unit, bench.point.kind))
    return written_in(unit, "ratio", 1.0 / ratio)


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
        flops = bench.llm.prefill_flops(tokens, 0)
        if "mooncake" in bench.point.source.lower():
            flops = _mooncake_flops(bench, tokens)
        return flops / (bench.tp * peak)
    new = bench.point.new_tokens or 1
    return bench.engine_s(new + tokens, 0) - bench.engine_s(new, tokens)


def _mooncake_flops(bench: Bench, tokens: int) -> float:
    """FLOPs of a prefill as Mooncake's break-even formula counts them.

    Formula: layers (4 n^2 d + 22 n d^2): no causal mask, and matrices of Llama-2-70B's shape.
    Source: Mooncake, FAST 2025, equation 2.
    """
    hidden = float(bench.llm.hidden)
    return bench.llm.layers * (4.0 * tokens * tokens * hidden + 22.0 * tokens * hidden * hidden)


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
    """The point with stand-ins for what it leaves open.

    A row that states hit rates and no tokens has them as shares of the prompt's tokens: the prompt
    is then cached whole, and found by that share of the requests.
    """
    share = 1.0 if _states_hits(point) else _HIT_SHARE
    cached = point.cached_tokens or min(_PROMPT_TOKENS - 1, round(_PROMPT_TOKENS * share))
    new = point.new_tokens or (1 if point.cached_tokens else _PROMPT_TOKENS - cached)
    return replace(
        point,
        model=point.model or STAND_INS["model"],
        gpu=point.gpu or STAND_INS["gpu"],
        cached_tokens=cached,
        new_tokens=new,
    )


def _states_hits(point: Point) -> bool:
    return (
        point.kind == "ab_ratio" and stated_hits(f"{point.words} {point.path.lower()}") is not None
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


def _quantity(bench: Bench, metric: str, *, is_system: bool) -> float:
    """The tier's side over the other side, of what the metric measures."""
    both = sides(bench, read_hits(bench))
    on, off = both.on_gpu_s, both.off_gpu_s
    if "global_over_local" in metric:
        local = off - _LOCAL_SHARE * (off - on)
        return on / local
    loop = read_loop(bench, is_system=is_system) if bench.point.kind == "ab_ratio" else None
    if any(word in metric for word in _TIMES):
        loaded, alone = (loop.wait_s(on), loop.wait_s(off)) if loop else (0.0, 0.0)
        return (both.on_ttft_s + loaded) / (both.off_ttft_s + alone)
    decode = 0.0 if loop is None or "prefill" in metric else loop.decode_s
    on, off = on + decode, off + decode
    return off / on if any(word in metric for word in _RATES) else on / off


def _form(on_over_off: float, metric: str, unit: str, kind: str) -> float:
    """What the metric makes of one side over the other."""
    is_rate = any(word in metric for word in _RATES)
    if "off_over_on" in metric or "without_over_with" in metric:
        return 1.0 / on_over_off
    if "on_over_off" in metric or "with_over_without" in metric:
        return on_over_off
    if any(word in metric for word in _SAVED):
        return 1.0 / on_over_off if unit == "x" else 1.0 - on_over_off
    if "speedup" in metric or "faster" in metric:
        return on_over_off if is_rate else 1.0 / on_over_off
    if any(word in metric for word in _CHANGED):
        if unit == "x":
            return on_over_off if is_rate else 1.0 / on_over_off
        is_better = "improvement" in metric and not is_rate
        return 1.0 - on_over_off if is_better else on_over_off - 1.0
    return on_over_off


def _is_of_hits(metric: str) -> bool:
    """Whether the metric is a hit rate itself, not a time or rate of requests that hit."""
    return "hit" in metric and not any(word in metric for word in (*_TIMES, *_RATES, "gpu_time"))
