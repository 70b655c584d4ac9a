"""Predictions of moves: link rates, loads, loads with the prefill that follows or overlaps."""

from __future__ import annotations

from kvtrace.cost.evidence import moves_constant
from kvtrace.cost.validation.bench import Bench
from kvtrace.cost.validation.quantities import unit_of, written_in
from kvtrace.cost.validation.routes import CannotPredictError, Route

_ENGINE_METRICS = ("ttft", "latency", "prefill", "e2e")


def link_rate(bench: Bench) -> float:
    """Bytes a second that a copy benchmark reaches."""
    return written_in(bench.point.unit, "bytes_per_s", _moving(bench.route).bytes_per_s)


def kv_load(bench: Bench) -> float:
    """Seconds or rate of a load; with the first token where the metric reaches to it."""
    point = bench.point
    dimension = unit_of(point.unit)[0]
    route = bench.route
    if dimension == "bytes_per_s":
        rate = _moving(route).bytes_per_s
        moved = point.bytes or (bench.moved_bytes(point.cached_tokens or 0) if point.model else 0)
        if moved:
            rate = moved / route.seconds(moved)
        return written_in(point.unit, dimension, rate)
    if dimension == "s_per_byte":
        return written_in(point.unit, dimension, 1.0 / _moving(route).bytes_per_s)
    if dimension == "tokens_per_s":
        each = bench.llm.cached_token_bytes(bench.kv_dtype, point.tp or 1)
        return written_in(point.unit, dimension, _moving(route).bytes_per_s / each)
    return written_in(point.unit, "seconds", _seconds(bench, route))


def hit_ttft_s(bench: Bench, route: Route, new_tokens: float, cached_tokens: float) -> float:
    """Seconds to the first token of a prompt whose cached part moves first.

    Formula: front + lookup + move + engine step; layer-wise d + (L - 1) max(c, d) + c of the
    layers' seconds d to move and c to compute, the host's seconds kept apart.
    """
    front = bench.frontend_s(new_tokens + cached_tokens)
    if not route.stages:
        return front + bench.engine_s(new_tokens, cached_tokens)
    lookup = "pool_lookup_s" if len(route.stages) > 1 else "dram_lookup_s"
    front += moves_constant(lookup).value + moves_constant("handover_s").value
    move = route.seconds(bench.moved_bytes(int(cached_tokens)))
    engine = bench.engine_s(new_tokens, cached_tokens)
    if "layerwise" not in bench.path.words:
        return front + move + engine
    host = min(engine, bench.prefill.host_s + bench.prefill.host_token_s * new_tokens)
    compute = engine - host
    layers = bench.llm.layers
    overlapped = (move + compute + (layers - 1) * max(move, compute)) / layers
    return front + host + overlapped


def _seconds(bench: Bench, route: Route) -> float:
    point = bench.point
    cached = bench.cached_tokens
    if any(word in point.metric for word in _ENGINE_METRICS):
        if not cached:
            raise CannotPredictError("no cached_tokens")
        return hit_ttft_s(bench, route, point.new_tokens or 1, cached)
    if not point.bytes and not cached:
        raise CannotPredictError("neither bytes nor cached_tokens")
    moved = bench.moved_bytes(cached)
    if bench.path.is_per_rank and point.tp:
        moved //= point.tp
    return route.seconds(moved)


def _moving(route: Route) -> Route:
    if not route.stages:
        raise CannotPredictError("nothing moves on this path")
    return route
