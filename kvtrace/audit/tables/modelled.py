"""Tables that a model made: moves against recomputing, regret, replay over time, ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from kvtrace.audit.bounds import knows_flops
from kvtrace.audit.options.kinds import is_local, is_pool
from kvtrace.audit.record import Cell, Table
from kvtrace.audit.tables.shape import ColumnSpec, TableShape
from kvtrace.audit.uncertainty.ranges import finite
from kvtrace.cost.deployment import Deployment
from kvtrace.cost.ledger import ledger_table
from kvtrace.replay.result import ReplayResult
from kvtrace.replay.summary import (
    BucketRow,
    by_kv_bucket,
    by_prompt_bucket,
    over_time,
    top_regret,
)
from kvtrace.schema.arrays import RequestTrace

_REGRETS: Final = 20
"""Worst requests shown per option."""

_OPTION: Final[ColumnSpec] = ("option_id", "name", "the option")
_MOVE_COLUMNS: Final[tuple[ColumnSpec, ...]] = (
    ("requests", "requests", "in the bucket"),
    ("hits", "requests", "of these, with something loaded from below HBM"),
    ("moved_bytes_mean", "bytes", "moved per hit"),
    ("move_p50_s", "s", "lookup, pull and load of a hit, median"),
    ("move_p90_s", "s", "the same, 90 %"),
    ("recompute_p50_s", "s", "recomputing what the hit brought, median"),
    ("recompute_p90_s", "s", "the same, 90 %"),
    ("net_negative_hits", "requests", "hits whose move takes longer than recomputing"),
    ("net_negative_ratio", "ratio", "net_negative_hits / hits; null without hits"),
    ("ttft_p50_s", "s", "TTFT of all requests in the bucket, median"),
    ("ttft_p90_s", "s", "the same, 90 %"),
)
_BY_PROMPT: Final = TableShape(
    "replay/move_by_prompt_bucket",
    "Move against recompute by prompt length (modelled)",
    (
        _OPTION,
        ("prompt_bucket", "tokens", "lower bound of the half-open range up to twice this"),
        *_MOVE_COLUMNS,
    ),
)
_BY_KV: Final = TableShape(
    "replay/move_by_kv_bucket",
    "Move against recompute by KV bytes of the prompt (modelled)",
    (
        _OPTION,
        ("kv_bytes_bucket", "bytes", "lower bound of the half-open range up to twice this"),
        *_MOVE_COLUMNS,
    ),
)
_OVER_TIME: Final = TableShape(
    "replay/over_time",
    "Hit ratio, moved bytes and TTFT over time (modelled)",
    (
        _OPTION,
        ("slice_start_s", "s", "start of the slice, from the first replayed arrival"),
        ("requests", "requests", "that arrived in the slice"),
        ("hit_ratio_tokens", "ratio", "tokens served from any tier / prompt tokens"),
        ("moved_bytes", "bytes", "loaded for them from below HBM"),
        ("ttft_p50_s", "s", "median TTFT"),
        ("ttft_p90_s", "s", "90 % of them"),
    ),
)
_REGRET: Final = TableShape(
    "replay/top_regret",
    "Requests that lost most time by loading (modelled)",
    (
        _OPTION,
        ("request_rank", "rank", "of the replayed requests by arrival, from 0"),
        ("prompt_tokens", "tokens", "of its prompt"),
        ("moved_bytes", "bytes", "loaded for it"),
        ("move_s", "s", "lookup, pull and load"),
        ("recompute_s", "s", "recomputing what was loaded"),
        ("regret_s", "s", "move - recompute"),
        ("ttft_s", "s", "its TTFT"),
    ),
)
_LEDGER: Final = TableShape(
    "cost/ledger",
    "One request alone: moving 95 % of its prompt against recomputing it (modelled)",
    (
        ("path_id", "name", "the path of the move"),
        ("prompt_tokens", "tokens", "of the request"),
        ("cached_tokens", "tokens", "moved instead of computed"),
        ("kv_bytes", "bytes", "moved, all ranks together"),
        ("recompute_s", "s", "prefill that the cached part saves"),
        ("lookup_s", "s", "lookup"),
        ("pull_s", "s", "over the network into host memory or HBM"),
        ("load_s", "s", "from host memory into HBM"),
        ("move_s", "s", "lookup, pull and load"),
        ("ttft_change_s", "s", "move - recompute; below zero the hit is faster"),
        ("path_bytes_per_s", "bytes/s", "what the path gives, all ranks together"),
        ("break_even_bytes_per_s", "bytes/s", "above it the move wins; null where no rate does"),
        ("break_even_tokens", "tokens", "least cached length that wins; null where none does"),
    ),
)


def build_modelled_tables(
    trace: RequestTrace | None, results: Sequence[ReplayResult], deployment: Deployment
) -> dict[str, Table]:
    """Tables of the replays (options with something below HBM) and of the cost model."""
    tables = [_ledger(deployment)] if knows_flops(deployment) else []
    if trace is not None:
        tiered = [result for result in results if result.scenario.tiers]
        compared = [r for r in results if _is_compared(r.scenario.option_id)]
        tables += [
            _moves(_BY_PROMPT, tiered, lambda result: by_prompt_bucket(trace, result)),
            _moves(_BY_KV, tiered, lambda result: by_kv_bucket(trace, result)),
            _OVER_TIME.table([row for r in compared for row in _slices(trace, r)]),
            _REGRET.table([row for r in tiered for row in _regrets(trace, r)]),
        ]
    return {table.id: table for table in tables if table.rows}


def _is_compared(option_id: str) -> bool:
    return is_pool(option_id) or is_local(option_id)


def _moves(
    shape: TableShape,
    results: Sequence[ReplayResult],
    buckets: Callable[[ReplayResult], list[BucketRow]],
) -> Table:
    return shape.table(
        [
            [
                result.scenario.option_id,
                row.bucket,
                row.requests,
                row.hits,
                row.moved_bytes_mean,
                row.move_p50_s,
                row.move_p90_s,
                row.recompute_p50_s,
                row.recompute_p90_s,
                row.net_negative_hits,
                row.net_negative_share,
                row.ttft_p50_s,
                row.ttft_p90_s,
            ]
            for result in results
            for row in buckets(result)
        ]
    )


def _slices(trace: RequestTrace, result: ReplayResult) -> Iterator[list[Cell]]:
    for row in over_time(trace, result):
        yield [
            result.scenario.option_id,
            row.start_s,
            row.requests,
            row.hit_ratio_tokens,
            row.moved_bytes,
            row.ttft_p50_s,
            row.ttft_p90_s,
        ]


def _regrets(trace: RequestTrace, result: ReplayResult) -> Iterator[list[Cell]]:
    for row in top_regret(trace, result, _REGRETS):
        yield [
            result.scenario.option_id,
            row.request,
            row.prompt_tokens,
            row.moved_bytes,
            row.move_s,
            row.recompute_s,
            row.regret_s,
            row.ttft_s,
        ]


def _ledger(deployment: Deployment) -> Table:
    return _LEDGER.table(
        [
            [
                path.path_id,
                row.tokens,
                row.cached_tokens,
                row.kv_bytes,
                row.recompute_s,
                path.lookup_s,
                path.pull_s,
                path.load_s,
                path.move_s,
                path.ttft_change_s,
                path.path_bytes_per_s,
                finite(path.break_even_bytes_per_s),
                path.break_even_tokens,
            ]
            for row in ledger_table(deployment).rows
            for path in row.paths
        ]
    )
