"""Predictions of KV sizes and of what fits."""

from __future__ import annotations

import math
import re

from kvtrace.cost.kv_group import KvGroup
from kvtrace.cost.validation.bench import Bench
from kvtrace.cost.validation.quantities import written_in
from kvtrace.cost.validation.routes import CannotPredictError


def kv_size(bench: Bench) -> float:
    """Bytes of KV: of a token, a block, a layer's entry, a sequence, or a recurrent state."""
    metric, point = bench.point.metric.lower(), bench.point
    tokens = point.cached_tokens or point.new_tokens or _tokens_in(metric)
    if "state" in metric:
        size = bench.llm.state_bytes
    elif "layer" in metric:
        size = _entry_bytes(bench, metric)
    elif "block" in metric or "page" in metric:
        if not tokens:
            raise CannotPredictError("the block's tokens are not in the row")
        size = _all_ranks(bench, tokens)
    elif "per_token" in metric or ("_token" in metric and not tokens):
        size = _per_token(bench, tokens)
    elif tokens:
        size = _all_ranks(bench, tokens)
    else:
        raise CannotPredictError("the tokens are not in the row")
    if "per_rank" in metric or "per_gpu" in metric:
        size /= point.tp or point.n_gpus or 1
    return written_in(point.unit, "bytes", size)


def _all_ranks(bench: Bench, tokens: int) -> float:
    tp = bench.point.tp or 1
    return float(bench.llm.kv_bytes(tokens, kv_dtype=bench.kv_dtype, tp=tp))


def _per_token(bench: Bench, tokens: int | None) -> float:
    """Of one more token beyond the windows, or of a mean token of a sequence of `tokens`."""
    if tokens:
        return _all_ranks(bench, tokens) / tokens
    llm, tp = bench.llm, bench.point.tp or 1
    if "short" in bench.point.metric.lower() or "window" in bench.point.metric.lower():
        return math.fsum(group.bytes_per_token(bench.kv_dtype, tp) for group in llm.groups)
    return llm.cached_token_bytes(bench.kv_dtype, tp)


def _entry_bytes(bench: Bench, metric: str) -> float:
    groups = bench.llm.groups
    wanted = "indexer" if "index" in metric else "window" if "window" in metric else None

    def fits(group: KvGroup) -> bool:
        return group.group == wanted if wanted else group.group in ("latent", "full")

    found = next((group for group in groups if fits(group)), None)
    if found is None:
        raise CannotPredictError(f"{bench.llm.name} has no {wanted or 'full'} layers")
    return found.entry_bytes(bench.kv_dtype)


def _tokens_in(metric: str) -> int | None:
    """`kv_bytes_1m_tokens` is of 2^20 tokens, `kv_bytes_128k` of 2^17."""
    found = re.search(r"_(\d+)(k|m)(?:_|$)", metric)
    if found is None:
        return None
    return int(found.group(1)) << (10 if found.group(2) == "k" else 20)


def capacity(bench: Bench) -> float:
    """Users of a context whose KV the HBM of an instance holds, or tokens in all."""
    metric = bench.point.metric.lower()
    tokens = bench.cached_tokens or bench.point.new_tokens
    if "cpu" in metric or "host" in metric or "dram" in metric:
        raise CannotPredictError("the host memory given to the cache is not in the row")
    held = bench.deployment.hbm_cache_bytes
    if bench.point.unit.lower() in ("tokens", "token", "tok"):
        return written_in(bench.point.unit, "count", held / bench.deployment.kv_bytes_per_token)
    if not tokens:
        raise CannotPredictError("the tokens of a user are not in the row")
    each = bench.deployment.kv_bytes(tokens)
    return written_in(bench.point.unit, "count", held / each)
