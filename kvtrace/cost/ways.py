"""Ways to bring the KV of a hit: stage by stage, in chunks, layer by layer, or half of it computed.

Each has a stall: what the request waits beyond the prefill of its new tokens. Serial is the move
itself; the others hide a part of it behind another stage, that prefill, or a prefill of the head.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, get_args

from kvtrace.cost.deployment import Deployment
from kvtrace.cost.split import Split, best_split
from kvtrace.cost.transfer import MovePath

Way = Literal["serial", "pipelined", "layerwise", "split"]
"""serial: pull, then load, then prefill. pipelined: pull and load at once, a chunk behind.
layerwise: layers load while those before them compute. split: the head of the hit is computed while
its tail loads."""

WAYS: Final[tuple[Way, ...]] = get_args(Way)
LOAD_CHUNK_TOKENS: Final = 256
"""Tokens of a chunk of way `pipelined`. Source: LMCache, default of `chunk_size`."""
_LONGEST_TOKENS: Final = 1 << 21
"""Where the search for a break-even length ends."""
_OCTAVES: Final = 40
"""Powers of two of the path's rate that the search for a break-even rate spans, up and down."""
_HALVINGS: Final = 40
"""Of an octave: to a trillionth, which is all that a float is good for after sums."""


@dataclass(frozen=True, slots=True)
class Hit:
    """One request's hit, and what it saves."""

    deployment: Deployment
    tokens: int
    reusable_tokens: int
    """Of the cached ones, down to the last checkpoint where layers keep a state."""
    kv_bytes: int
    """Of the reusable ones, over all ranks, replication included, in whole blocks."""
    prefill_full_s: float
    prefill_new_s: float
    """Of the tokens that are not reused, after those that are."""
    block_size_tokens: int | None

    @property
    def recompute_s(self) -> float:
        """Prefill seconds that the hit saves."""
        return self.prefill_full_s - self.prefill_new_s

    def tail_bytes(self, tokens: int) -> int:
        """Bytes of the last `tokens` of the reusable ones, over all ranks.

        Windows keep only what lies at the end, and a state is whole there, so that a tail is as
        large as a sequence of its length.
        """
        return self.deployment.kv_bytes(tokens, block_size_tokens=self.block_size_tokens)


@dataclass(frozen=True, slots=True)
class WayLedger:
    """One way of one path."""

    way: Way
    stall_s: float
    """What the request waits beyond the prefill of its new tokens."""
    ttft_change_s: float
    """stall - recompute; below zero the hit is faster."""
    gpu_seconds_freed: float
    """(recompute - what the way computes itself) x GPUs, where the GPUs work on meanwhile."""
    break_even_bytes_per_s: float | None
    """Rate of the path (stages in series) above which the hit is faster; null where none is."""
    break_even_tokens: int | None
    """Least cached length from which it is faster, the new tokens kept; null where none."""
    loses_again_tokens: int | None
    """Least longer one that is slower again, as where a short move hides behind the prefill of the
    new tokens and a long one does not; null where none."""
    split: Split | None
    """Where way `split` cuts."""


def build_hit(
    deployment: Deployment,
    *,
    tokens: int,
    cached_tokens: int,
    block_size_tokens: int | None = None,
) -> Hit:
    """A hit of `cached_tokens` of a prompt of `tokens`."""
    reusable = deployment.llm.reusable_tokens(cached_tokens, kv_dtype=deployment.kv_dtype)
    prefill = deployment.prefill
    return Hit(
        deployment=deployment,
        tokens=tokens,
        reusable_tokens=reusable,
        kv_bytes=deployment.kv_bytes(reusable, block_size_tokens=block_size_tokens),
        prefill_full_s=prefill.prefill_s(float(tokens), 0.0),
        prefill_new_s=prefill.prefill_s(float(tokens - reusable), float(reusable)),
        block_size_tokens=block_size_tokens,
    )


def way_ledger(hit: Hit, path: MovePath, way: Way, *, has_break_even: bool = True) -> WayLedger:
    """The account of one way; the searches for break-even only where asked."""
    split = hit_split(hit, path) if way == "split" else None
    stall = split.seconds + path.lookup_s if split else stall_s(hit, path, way)
    computed_s = split.compute_s if split else 0.0
    has_search = has_break_even and hit.kv_bytes > 0
    new_tokens = hit.tokens - hit.reusable_tokens
    least, last = None, None
    if has_search:
        least = break_even_tokens(hit.deployment, path, new_tokens=new_tokens, way=way)
        last = loses_again_tokens(hit.deployment, path, new_tokens=new_tokens, way=way, least=least)
    return WayLedger(
        way=way,
        stall_s=stall,
        ttft_change_s=stall - hit.recompute_s,
        gpu_seconds_freed=(hit.recompute_s - computed_s) * hit.deployment.busy_gpus,
        break_even_bytes_per_s=break_even_rate(hit, path, way) if has_search else None,
        break_even_tokens=least,
        loses_again_tokens=last,
        split=split,
    )


def stall_s(hit: Hit, path: MovePath, way: Way) -> float:
    """Seconds that the request waits beyond the prefill of its new tokens; see `WayLedger`."""
    if hit.kv_bytes <= 0:
        return path.lookup_s
    if way == "split":
        return path.lookup_s + hit_split(hit, path).seconds
    if way == "pipelined":
        return path.pipelined_s(hit.kv_bytes, chunks=hit.reusable_tokens / LOAD_CHUNK_TOKENS)
    if way == "layerwise":
        return stall_layerwise_s(
            lookup_s=path.lookup_s,
            transfer_s=path.move_s(hit.kv_bytes) - path.lookup_s,
            prefill_s=hit.prefill_new_s,
            layers=hit.deployment.llm.layers,
        )
    return path.move_s(hit.kv_bytes)


def hit_split(hit: Hit, path: MovePath) -> Split:
    """Where the hit is cut so that it is there soonest, after the lookup.

    A head is a prefill of its own, and the new tokens another; computing all of the hit is one.
    """
    whole = hit.reusable_tokens

    def compute_s(tokens: int) -> float:
        if tokens == whole:
            return hit.recompute_s
        return hit.deployment.prefill.prefill_s(float(tokens), 0.0)

    return best_split(
        whole,
        compute_s=compute_s,
        load_s=lambda tokens: path.move_s(hit.tail_bytes(tokens)) - path.lookup_s,
        step_tokens=hit.block_size_tokens or 1,
    )


def stall_layerwise_s(
    *, lookup_s: float, transfer_s: float, prefill_s: float, layers: int
) -> float:
    """What a request waits beyond its prefill where each layer's load hides behind the last one's.

    Formula: lookup + d + (L - 1) max(c, d) + c - L c, with d = transfer / L, c = prefill / L.
    Assumes: the fixed seconds of the transfer spread over the layers as its bytes do.
    """
    moved, computed = transfer_s / layers, prefill_s / layers
    return lookup_s + moved + (layers - 1) * (max(computed, moved) - computed)


def break_even_rate(hit: Hit, path: MovePath, way: Way) -> float | None:
    """Rate of the path, its stages in series, above which this way beats recomputing.

    All links of the path are scaled alike, fixed seconds kept; by bisection, null where an
    endless rate would not do. What no rate can lose with (a cut may leave all to compute) is 0.
    """

    def gain_s(factor: float) -> float:
        return hit.recompute_s - stall_s(hit, path.scaled(factor), way)

    if gain_s(math.exp2(_OCTAVES)) <= 0:
        return None
    if gain_s(math.exp2(-_OCTAVES)) > 0:
        return 0.0
    low, high = float(-_OCTAVES), float(_OCTAVES)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if gain_s(math.exp2(middle)) > 0 else (middle, high)
    return path.bytes_per_s * math.exp2(high)


def break_even_tokens(
    deployment: Deployment, path: MovePath, *, new_tokens: int, way: Way = "serial"
) -> int | None:
    """Least cached length from which the hit is faster, before `new_tokens` computed ones.

    The gain is scanned in powers of two, then bisected; null where nothing is gained up to
    2 097 152 tokens.
    Assumes: the gain changes sign once per octave at most.
    """
    return _least(lambda cached: _gain_s(deployment, path, new_tokens, cached, way) > 0)


def loses_again_tokens(
    deployment: Deployment, path: MovePath, *, new_tokens: int, way: Way, least: int | None
) -> int | None:
    """Least cached length above `least` at which the hit is slower; found as `least` is."""
    if least is None:
        return None
    return _least(
        lambda cached: _gain_s(deployment, path, new_tokens, cached, way) <= 0, above=least
    )


def _gain_s(
    deployment: Deployment, path: MovePath, new_tokens: int, cached: int, way: Way
) -> float:
    """Seconds by which a hit on `cached` tokens is faster; 0 before the first checkpoint."""
    hit = build_hit(deployment, tokens=new_tokens + cached, cached_tokens=cached)
    return hit.recompute_s - stall_s(hit, path, way) if hit.reusable_tokens else 0.0


def _least(holds: Callable[[int], bool], *, above: int = 0) -> int | None:
    """Least length over `above` for which it holds, scanned in powers of two, then bisected."""
    below, at = above, max(1, 2 * above)
    while not holds(at):
        below, at = at, at * 2
        if at > _LONGEST_TOKENS:
            return None
    while at - below > 1:
        middle = (below + at) // 2
        below, at = (below, middle) if holds(middle) else (middle, at)
    return at


def break_even_bytes_per_s(*, kv_bytes: float, recompute_s: float, fixed_s: float) -> float | None:
    """Rate above which moving `kv_bytes` beats `recompute_s`; null where no rate is enough.

    Formula: B* = bytes / (recompute - fixed).
    """
    spare_s = recompute_s - fixed_s
    return kv_bytes / spare_s if spare_s > 0 else None
