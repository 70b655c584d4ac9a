"""Rounds of a multi-turn benchmark: what an LRU of a known size serves, from the row's own words.

A row says `20 clients x 10 rounds x 4096 tokens, max-parallel 4, …, round barrier`: in each round
every client appends as many tokens to its conversation and sends it whole, in an order drawn anew.
"""

from __future__ import annotations

import math
import random
import re
from dataclasses import dataclass
from functools import cache
from typing import Final

from kvtrace.cost.validation.bench import Bench
from kvtrace.cost.validation.quantities import written_in
from kvtrace.cost.validation.routes import CannotPredictError, storage_tier
from kvtrace.units import parse_bytes

_RUN: Final = re.compile(r"(\d+) clients? x (\d+) rounds? x (\d+) tokens")
_PARALLEL: Final = re.compile(r"max-parallel (\d+)")
_ROUND: Final = re.compile(r"round_(\d+)")
_POOL: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([GT]i?B)")
_HOST_RATIO: Final = re.compile(r"host ratio (\d+(?:\.\d+)?)")
_POOL_FILL: Final = 0.925
"""Mean fill of a pool that evicts 5 % of it whenever it is 95 % full. Source: defaults of
Mooncake's master, `eviction_high_watermark_ratio` and `eviction_ratio`."""
_STATIC_SHARES: Final = ((8, 0.81), (4, 0.85), (2, 0.87), (1, 0.88))
"""Least TP to the share of HBM that SGLang gives to weights and KV. Source: SGLang 0.4,
`ServerArgs`, defaults of `mem_fraction_static`."""
_CONTEXT_BYTES: Final = 2e9
"""HBM of a GPU that the driver and the communicator hold; assumed."""
_ORDERS: Final = 16
"""Orders over which hits are averaged."""


@dataclass(frozen=True, slots=True)
class Run:
    """A multi-turn run as a row describes it."""

    clients: int
    rounds: int
    turn_tokens: int
    parallel: int
    index: int
    """Round of the row, 0 the first."""


def hit_ratio(bench: Bench) -> float:
    """Share of a round's prompt tokens that the tiers serve."""
    run = read_run(bench)
    return written_in(bench.point.unit, "ratio", _hit_share(bench, run))


def mean_ttft(bench: Bench) -> float:
    """Mean TTFT of a round: `parallel` prompts are loaded and prefilled in steps that they share.

    Formula: parallel x (load of the hit + prefill of the rest).
    """
    run = read_run(bench)
    prompt = (run.index + 1) * run.turn_tokens
    cached = round(prompt * _hit_share(bench, run))
    seconds = bench.engine_s(prompt - cached, cached) + bench.frontend_s(prompt) / run.parallel
    if cached and ("mooncake" in bench.point.path.lower() or "host" in bench.point.path.lower()):
        seconds += _load_s(bench, cached)
    return written_in(bench.point.unit, "seconds", run.parallel * seconds)


def read_run(bench: Bench) -> Run:
    """The run that a row describes.

    Raises:
        CannotPredictError: the row does not describe one, or not which round it is of.
    """
    point = bench.point
    shape, place = _RUN.search(point.note), _ROUND.search(point.metric)
    if shape is None or place is None:
        raise CannotPredictError(
            f"`{point.metric}` follows from the order of requests, which is not in the row"
        )
    clients, rounds, turn_tokens = (int(number) for number in shape.groups())
    parallel = _PARALLEL.search(point.note)
    index = int(place.group(1))
    if point.kind == "replay_hit" and point.cached_tokens is not None:
        index = point.cached_tokens // turn_tokens
    return Run(clients, rounds, turn_tokens, int(parallel.group(1)) if parallel else 1, index)


@cache
def lru_hits(clients: int, rounds: int, capacity_turns: float) -> tuple[float, ...]:
    """Share of each round's tokens that an LRU of `capacity_turns` turns serves.

    The conversation that waited longest loses its tail first. Each round's order is drawn from a
    fixed seed; the mean over some orders is returned, one value a round.
    """
    totals = [0.0] * rounds
    for seed in range(_ORDERS):
        for index, hits in enumerate(_one_order(clients, rounds, capacity_turns, seed)):
            totals[index] += hits
    return tuple(total / (_ORDERS * clients * (index + 1)) for index, total in enumerate(totals))


def _one_order(clients: int, rounds: int, capacity: float, seed: int) -> list[float]:
    drawn = random.Random(seed)  # noqa: S311  an order of a benchmark, not a secret
    kept = dict.fromkeys(range(clients), 0.0)  # from the longest unused to the last used
    order = list(range(clients))
    hits = []
    for turn in range(rounds):
        drawn.shuffle(order)
        hits.append(math.fsum(_serve(kept, client, turn + 1, capacity) for client in order))
    return hits


def _serve(kept: dict[int, float], client: int, turns: int, capacity: float) -> float:
    """Turns that were there; the conversation is there whole afterwards, as far as it fits."""
    hit = kept.pop(client)
    room = max(0.0, capacity - turns)
    over = math.fsum(kept.values()) - room
    for other, turns_kept in kept.items():
        if over <= 0:
            break
        kept[other] = turns_kept - min(turns_kept, over)
        over -= turns_kept
    kept[client] = min(float(turns), capacity)
    return hit


def _hit_share(bench: Bench, run: Run) -> float:
    if not 0 <= run.index < run.rounds + 1:
        raise CannotPredictError(f"round {run.index} is not one of the run")
    turn_bytes = bench.llm.kv_bytes(run.turn_tokens, kv_dtype=bench.kv_dtype, tp=bench.tp)
    capacity = min(_capacity_bytes(bench) / turn_bytes, float(run.clients * (run.rounds + 1)))
    return lru_hits(run.clients, run.rounds + 1, round(capacity, 3))[run.index]


def _capacity_bytes(bench: Bench) -> float:
    """The largest tier: each holds what those above it hold too. SSDs hold all of a benchmark."""
    path = bench.point.path
    held = [_hbm_bytes(bench)]
    if "ssd" in path.lower() or "disk" in path.lower():
        return math.inf
    ratio, pool = _HOST_RATIO.search(path), _POOL.search(path)
    if ratio is not None:
        held.append(held[0] * float(ratio.group(1)))
    if pool is not None:
        held.append(_POOL_FILL * parse_bytes("".join(pool.groups())))
    return max(held)


def _hbm_bytes(bench: Bench) -> float:
    if "sglang" not in bench.point.engine.lower():
        return bench.deployment.hbm_cache_bytes
    share = next(share for tp, share in _STATIC_SHARES if bench.tp >= tp)
    hbm = bench.hardware.gpu.hbm_bytes.value - _CONTEXT_BYTES
    left = bench.tp * hbm * share - bench.deployment.weight_bytes
    if left <= 0:
        raise CannotPredictError("the weights do not fit")
    return left


def _load_s(bench: Bench, tokens: int) -> float:
    """Seconds to load a prompt's hit over the host link, from SSDs where the path ends in them."""
    moved = bench.moved_bytes(tokens)
    seconds = moved / bench.hardware.load_bytes_per_s(bench.tp)
    if "ssd" in bench.point.path.lower():
        rate, latency = storage_tier("raid0_5_drives_3_gen4_2_gen3", 1)
        seconds += latency + moved / rate
    return seconds
