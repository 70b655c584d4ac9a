"""The bandwidth ledger: what a hit saves, what its move costs, and where the two break even."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from kvtrace.cost.deployment import Deployment
from kvtrace.cost.transfer import MovePath
from kvtrace.cost.ways import (
    WAYS,
    Hit,
    Way,
    WayLedger,
    break_even_bytes_per_s,
    break_even_tokens,
    build_hit,
    way_ledger,
)
from kvtrace.errors import UsageError

LedgerVerdict = Literal["move_wins", "recompute_wins", "nothing_to_move"]
"""nothing_to_move: the hit ends before the first checkpoint of a recurrent state."""

LedgerDepth = Literal["whole", "serial", "figures"]
"""serial: without the ways of loading. figures: without the searches for break-even."""

LEDGER_LENGTHS: Final = (512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)


@dataclass(frozen=True, slots=True)
class PathLedger:
    """One path's account of moving the cached part instead of recomputing it."""

    path_id: str
    lookup_s: float
    pull_s: float
    load_s: float
    move_s: float
    """lookup + pull + load: what the request stalls where nothing hides it (way `serial`)."""
    write_s: float | None
    """Bringing the same KV into the store, once, before any hit; it delays no request. Null where
    nobody published the rate of writes, or it was not asked."""
    ways: tuple[WayLedger, ...]
    """What is left of the move by each way of loading, in the order of `WAYS`; empty: not asked."""
    ttft_change_s: float
    """move - recompute; below zero the hit is faster."""
    gpu_seconds_freed_sync: float
    """(recompute - move) x GPUs, where the GPUs wait for the move; below zero they are lost."""
    verdict: LedgerVerdict
    path_bytes_per_s: float
    """What the path gives, all ranks together, without its fixed seconds."""
    fixed_s: float
    """Seconds of the path for no byte."""
    break_even_bytes_per_s: float | None
    """Rate of the path above which the move wins; null where no rate is enough."""
    break_even_tokens: int | None
    """Least cached length from which the move wins, the new tokens kept; null where none."""

    def way(self, way: Way) -> WayLedger:
        """The account of one way of loading."""
        return self.ways[WAYS.index(way)]


@dataclass(frozen=True, slots=True)
class Ledger:
    """One request of `tokens`, of which `cached_tokens` could be moved instead of computed."""

    tokens: int
    cached_tokens: int
    reusable_tokens: int
    """Of the cached ones, down to the last checkpoint where layers keep a state: these move."""
    kv_bytes: int
    """Moved, over all ranks, replication included."""
    recompute_s: float
    """Prefill seconds that the hit saves: prefill(all, 0) - prefill(new, reusable)."""
    prefill_full_s: float
    prefill_new_s: float
    gpu_seconds_freed: float
    """recompute_s x the GPUs that one prefill keeps busy, where loads leave them to others."""
    paths: tuple[PathLedger, ...]

    def path(self, path_id: str) -> PathLedger:
        """The account of one path."""
        return next(path for path in self.paths if path.path_id == path_id)


@dataclass(frozen=True, slots=True)
class LedgerTable:
    """The ledger over prompt lengths; arrays of shape (lengths,)."""

    tokens: NDArray[np.int64]
    cached_tokens: NDArray[np.int64]
    kv_bytes: NDArray[np.float64]
    recompute_s: NDArray[np.float64]
    prefill_full_s: NDArray[np.float64]
    prefill_new_s: NDArray[np.float64]
    break_even_bytes_per_s: Mapping[str, NDArray[np.float64]]
    """NaN where no rate is enough."""
    move_s: Mapping[str, NDArray[np.float64]]
    rows: tuple[Ledger, ...]


def build_ledger(
    deployment: Deployment,
    *,
    tokens: int,
    cached_tokens: int,
    paths: Sequence[MovePath] | None = None,
    writes: Mapping[str, MovePath | None] | None = None,
    block_size_tokens: int | None = None,
    depth: LedgerDepth = "whole",
) -> Ledger:
    """The account of one request, for every path (those of the deployment unless told).

    `writes` has the way into the store of each path id.

    Raises:
        UsageError: not 0 < cached_tokens < tokens; the last token is always computed.
    """
    if not 0 < cached_tokens < tokens:
        raise UsageError(
            "KVT-C070",
            f"{cached_tokens} cached of {tokens} tokens is not possible",
            cause="at least the last prompt token is computed",
            hint=f"use 1 to {tokens - 1} cached tokens" if tokens > 1 else "`--tokens 2000`",
        )
    hit = build_hit(
        deployment,
        tokens=tokens,
        cached_tokens=cached_tokens,
        block_size_tokens=block_size_tokens,
    )
    new_tokens = tokens - cached_tokens
    chosen = deployment.paths if paths is None else paths
    return Ledger(
        tokens=tokens,
        cached_tokens=cached_tokens,
        reusable_tokens=hit.reusable_tokens,
        kv_bytes=hit.kv_bytes,
        recompute_s=hit.recompute_s,
        prefill_full_s=hit.prefill_full_s,
        prefill_new_s=hit.prefill_new_s,
        gpu_seconds_freed=hit.recompute_s * deployment.busy_gpus,
        paths=tuple(
            _path_ledger(hit, path, (writes or {}).get(path.path_id), new_tokens, depth)
            for path in chosen
        ),
    )


def ledger_table(
    deployment: Deployment,
    lengths: Sequence[int] = LEDGER_LENGTHS,
    cached_share: float = 0.95,
    *,
    paths: Sequence[MovePath] | None = None,
    block_size_tokens: int | None = None,
) -> LedgerTable:
    """The ledger over prompt lengths with the same cached share (rounded down, at least 1)."""
    chosen = deployment.paths if paths is None else paths
    rows = tuple(
        build_ledger(
            deployment,
            tokens=tokens,
            cached_tokens=min(tokens - 1, max(1, int(tokens * cached_share))),
            paths=chosen,
            block_size_tokens=block_size_tokens,
            depth="serial",
        )
        for tokens in lengths
    )
    ids = [str(path.path_id) for path in chosen]

    def column(value: Callable[[Ledger], float]) -> NDArray[np.float64]:
        return np.array([value(row) for row in rows], dtype=np.float64)

    return LedgerTable(
        tokens=np.array([row.tokens for row in rows], dtype=np.int64),
        cached_tokens=np.array([row.cached_tokens for row in rows], dtype=np.int64),
        kv_bytes=column(lambda row: row.kv_bytes),
        recompute_s=column(lambda row: row.recompute_s),
        prefill_full_s=column(lambda row: row.prefill_full_s),
        prefill_new_s=column(lambda row: row.prefill_new_s),
        break_even_bytes_per_s={
            path_id: np.array(
                [_or_nan(row.path(path_id).break_even_bytes_per_s) for row in rows],
                dtype=np.float64,
            )
            for path_id in ids
        },
        move_s={
            path_id: np.array([row.path(path_id).move_s for row in rows], dtype=np.float64)
            for path_id in ids
        },
        rows=rows,
    )


def _path_ledger(
    hit: Hit, path: MovePath, write: MovePath | None, new_tokens: int, depth: LedgerDepth
) -> PathLedger:
    recompute_s, has_move = hit.recompute_s, hit.kv_bytes > 0
    none = {"lookup": path.lookup_s, "pull": 0.0, "load": 0.0}
    times = path.stage_times(hit.kv_bytes) if has_move else none
    move_s = math.fsum(times.values())
    wins: LedgerVerdict = "move_wins" if move_s < recompute_s else "recompute_wins"
    needed = break_even_bytes_per_s(
        kv_bytes=hit.kv_bytes, recompute_s=recompute_s, fixed_s=path.fixed_s
    )
    is_whole = depth == "whole"
    return PathLedger(
        path_id=path.path_id,
        lookup_s=times["lookup"],
        pull_s=times["pull"],
        load_s=times["load"],
        move_s=move_s,
        write_s=write.move_s(hit.kv_bytes) if write is not None and has_move else None,
        ways=()
        if depth == "serial"
        else tuple(way_ledger(hit, path, way, has_break_even=is_whole) for way in WAYS),
        ttft_change_s=move_s - recompute_s,
        gpu_seconds_freed_sync=(recompute_s - move_s) * hit.deployment.busy_gpus,
        verdict=wins if has_move else "nothing_to_move",
        path_bytes_per_s=path.bytes_per_s,
        fixed_s=path.fixed_s,
        break_even_bytes_per_s=needed if has_move else None,
        break_even_tokens=None
        if depth == "figures"
        else break_even_tokens(hit.deployment, path, new_tokens=new_tokens),
    )


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value
