"""Query results as tables of the record: what the report may show and copy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kvtrace.audit.inputs import ResultOfQuery
from kvtrace.audit.record import Basis, Table
from kvtrace.audit.view import Value

MAX_ROWS: Final = 2000
"""More than a chart can show; longer results are cut, and the table says how long they were."""

CHECKS: Final = "quality/"
"""Queries that return offending rows; all of them are carried."""

TITLES: Final[Mapping[str, str]] = {
    "block_size/what_if": "Reuse in blocks of other sizes (unlimited cache)",
    "coverage/fields": "Which fields the sources supply",
    "coverage/over_time": "Requests and known fields over time",
    "coverage/statuses": "Requests by status",
    "generated/by_turn": "Reuse with generated tokens kept, by turn (range)",
    "generated/kept_outputs": "Reuse with generated tokens kept (range)",
    "kv/bytes_distribution": "KV bytes per request",
    "kv/summary": "KV bytes in all",
    "kv_events/moves": "Moves of KV blocks between media (KV events)",
    "kv_events/over_time": "Tokens computed and computed again over time (KV events)",
    "kv_events/residency": "How long KV blocks stay (KV events)",
    "kv_events/restored_summary": "Tokens computed again in all (KV events)",
    "kv_events/restored_tokens": "Tokens computed again by place and age (KV events)",
    "latency/behind_long_prompts": "Short prompts behind long ones (measured)",
    "latency/by_prompt_bucket": "Latency by prompt length (measured)",
    "latency/hit_price": "What a hit takes from TTFT, and what it adds (measured)",
    "latency/hit_and_ttft_thirds": "Hit ratio and TTFT by third of the window (measured)",
    "latency/hit_and_ttft_over_time": "Hit ratio and TTFT over time (measured)",
    "latency/prefill_by_reuse": "Prefill by prompt length and reuse (measured)",
    "latency/quantiles": "Intervals of these quantiles of latency (measured)",
    "latency/quantiles_by_cached_share": "Quantiles of latency by cached share (measured)",
    "latency/quantiles_by_kv_bytes": "Quantiles of latency by KV bytes of the prompt (measured)",
    "latency/quantiles_by_prompt": "Quantiles of latency by prompt length (measured)",
    "latency/summary": "Latency (measured)",
    "latency/tail_causes": "What slow first tokens have that others have not (measured)",
    "latency/tail_split": "What slow first tokens take longer: queue or prefill (measured)",
    "latency/ttft_by_cached_share": "What a cached token saves of TTFT (measured)",
    "links/measured_bytes": "Bytes over each link, over time (measured)",
    "links/measured_summary": "Bytes over each kind of link (measured)",
    "moves/alone_and_together": "Moves of KV alone and at once, by path (measured)",
    "moves/measured_rates": "Observed moves of KV by path (measured)",
    "moves/read_and_written": "Written below HBM against read (measured)",
    "policies/gaps": "What a better policy brings, and what more capacity (idealised)",
    "policies/hits": "Hits by eviction policy and capacity, with bounds (idealised)",
    "policies/second_use": "Writes on second use: saved and lost (idealised)",
    "pooling/added": "What a shared pool adds over HBM and idle DRAM (idealised)",
    "pooling/hit_ratio": "Private caches against one pool of the same bytes (idealised)",
    "reuse/by_adapter": "Reuse by LoRA adapter (unlimited cache)",
    "reuse/by_hour_of_day": "Reuse by hour of the day (unlimited cache)",
    "reuse/by_llm": "Reuse by LLM (unlimited cache)",
    "reuse/by_prompt_bucket": "Reuse by prompt length (unlimited cache)",
    "reuse/by_request_type": "Reuse by kind of request (unlimited cache)",
    "reuse/by_session": "Reuse by conversation (unlimited cache)",
    "reuse/by_tenant": "Reuse by tenant (unlimited cache)",
    "reuse/by_user": "Reuse by end user (unlimited cache)",
    "reuse/capacity_curve": "Hit ratio by capacity of one LRU cache (idealised)",
    "reuse/capacity_marks": "Hit ratio of an LRU cache as large as each tier (idealised)",
    "reuse/cold_and_warm": "Cold start and compulsory misses (unlimited cache)",
    "reuse/definitions": "One hit rate, several definitions",
    "reuse/definitions_explained": "Why definitions of a hit rate differ here",
    "reuse/gaps": "Time between uses of a block",
    "reuse/hot_blocks": "How concentrated reuse is",
    "reuse/lifespans": "How long blocks are of use",
    "reuse/over_time": "Reuse over time (unlimited cache)",
    "reuse/still_climbing": "Does reuse still climb at the end (unlimited cache)",
    "reuse/summary": "Reuse in all (unlimited cache)",
    "reuse/ttl_curve": "Reuse that a time to live keeps",
    "reuse/working_set": "Blocks in use over time",
    "samples/below_hbm": "What the running system showed below HBM (measured)",
    "samples/catalogue": "What was observed, and how often (measured)",
    "samples/hit_ratio_over_time": "Hit ratios that engines report, over time (measured)",
    "samples/kv_usage": "Room for KV in use over time (measured)",
    "samples/over_time": "Engine-wide observations over time",
    "samples/queue_depth": "Running and waiting requests over time (measured)",
    "samples/token_rates": "Tokens a second over time (measured)",
    "samples/transfer_throughput": "KV moves over time (measured)",
    "sharing/by_turn": "Reuse by turn of the conversation (unlimited cache)",
    "sharing/continuation_and_sharing": "Whose blocks are reused (unlimited cache)",
    "sharing/how_known": "How requests are known to go on from earlier ones",
    "sharing/largest_conversation": "The conversation that reuses most (unlimited cache)",
    "sharing/roots": "Prefixes that many conversations begin with",
    "sharing/scopes": "Reuse by who shares the cache, and what isolation costs (idealised)",
    "sharing/top_prefixes": "Top shared prefixes (unlimited cache)",
    "sizing/placement": "What to keep where, by the time since its last use (modelled)",
    "sizing/pool_curve": "What each size of a pool serves beyond HBM and idle DRAM (modelled)",
    "sizing/pool_size": "Where the curve of a pool flattens (modelled)",
    "sizing/pool_traffic": "Bytes a second into and out of a pool, by minute (modelled)",
    "sizing/residency": "Reuse within each tier's break-even residency (modelled)",
    "writes/endurance": "SSD writes a day and life of the drives (idealised)",
    "writes/second_use": "Storing at the first or at the second use (unlimited cache)",
    "writes/summary": "Written against read (unlimited cache)",
}


_ON_SIZES: Final = (
    "policies/hits",
    "pooling/",
    "replay/",
    "reuse/capacity_marks",
    "sizing/",
    "writes/endurance",
)
"""Queries over replays, or over sizes of tiers (or a usual life of drives) that are settings."""
_ON_BLOCKS: Final = (
    "block_size/",
    "generated/",
    "kv/",
    "policies/",
    "reuse/",
    "sharing/",
    "writes/",
)
"""Queries over block identity: caches without a clock of their own."""


def is_carried(name: str) -> bool:
    """Whether the record carries the result of a query: it has a title here, or is a check."""
    return name in TITLES or name.startswith(CHECKS)


def build_tables(queries: Mapping[str, ResultOfQuery]) -> dict[str, Table]:
    """Every query result as a table, by query name."""
    return {name: _table(name, queries[name]) for name in sorted(queries)}


def _table(name: str, result: ResultOfQuery) -> Table:
    height = result.frame.height
    rows = [[_cell(value) for value in row] for row in result.frame.head(MAX_ROWS).iter_rows()]
    return Table(
        id=name,
        title=TITLES.get(name, _default_title(name)),
        query=name,
        columns=list(result.columns),
        units=list(result.units),
        meanings=list(result.meanings),
        rows=rows,
        basis=basis_of(name),
        truncated_from=height if height > MAX_ROWS else None,
    )


def basis_of(name: str) -> Basis:
    """What the result of a query rests on, by its name."""
    if name.startswith(_ON_SIZES):
        return "modelled"
    return "idealised" if name.startswith(_ON_BLOCKS) else "measured"


def _default_title(name: str) -> str:
    topic, _, question = name.partition("/")
    words = (question or topic).replace("_", " ")
    return f"{topic.capitalize()}: {words}" if question else words.capitalize()


def _cell(value: object) -> Value:
    """A cell that JSON can hold: lists and structs become text."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else None
    return str(value)
