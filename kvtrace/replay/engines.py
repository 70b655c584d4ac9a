"""How engines and their KV stores keep, find and load blocks, each at the version it was read at.

A preset changes what an engine decides (match units, write moments, admission, eviction, loads,
whether blocks of generated tokens stay); tiers, capacities, links and latencies stay those of the
scenario. All of these engines keep full blocks of outputs in HBM; a store is taken to get them only
where its source says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from kvtrace.cost.names import build_index, find_name
from kvtrace.replay.scenario import Scenario, TierSpec

Fields = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class EnginePreset:
    """One engine, or an engine with one store, with its defaults."""

    engine_id: str
    version: str
    block_tokens: int
    """Unit in which HBM matches prefixes; a replay matches blocks of the trace there."""
    scenario: Fields = field(default_factory=dict)
    """Fields of `Scenario` by name."""
    host: Fields = field(default_factory=dict)
    """Fields of `TierSpec` for the first private tier, …"""
    disk: Fields = field(default_factory=dict)
    """… for further private ones, …"""
    store: Fields = field(default_factory=dict)
    """… and for shared ones."""
    source: str = ""


ENGINES: Final = (
    EnginePreset(
        "vllm",
        "0.33",
        16,
        {"kv_admission": "as_needed", "kv_block_tokens": 16, "decode_in_chunk": True}
        | {"keeps_generated": True},
        source="vLLM v1 scheduler and block pool: LRU free queue, tails first; preemption by "
        "recompute",
    ),
    EnginePreset(
        "vllm-offload",
        "0.26",
        16,
        {"kv_admission": "as_needed", "kv_block_tokens": 16, "decode_in_chunk": True}
        | {"prefetch": "off", "load_mode": "async", "keeps_generated": True},
        host={"policy": "lru", "match_tokens": 16, "admission_uses": 1, "holds_hbm": True},
        source="docs.vllm.ai v0.26.0, vllm.v1.kv_offload.cpu.manager: cache_policy lru (or arc), "
        "store_threshold 1; the offloading connector asks when it schedules and frees a request's "
        "blocks once they are stored",
    ),
    EnginePreset(
        "sglang-hicache",
        "0.5.9",
        1,
        {"overlap": "layerwise", "load_decision": "threshold", "load_threshold_tokens": 10}
        | {"prefetch": "best_effort", "keeps_generated": True},
        host={"policy": "leaf_lru", "admission_uses": 1, "takes_generated": True},
        store={"policy": "lru", "takes_generated": True},
        source="docs.sglang.io hicache_design and hicache_best_practices: write_through, loads "
        "layer by layer beside the prefill; server_args: storage prefetch policy best_effort; "
        "hiradix_cache.py: write_through_threshold 1 (2 when selective), load_back_threshold 10; a "
        "finished request's output joins the radix tree, whose nodes are written through",
    ),
    EnginePreset(
        "lmcache",
        "0.5.6 on vLLM",
        16,
        {"load_mode": "sync", "load_decision": "threshold", "load_threshold_tokens": 0}
        | {"prefetch": "off", "kv_admission": "as_needed", "kv_block_tokens": 16}
        | {"decode_in_chunk": True, "keeps_generated": True},
        host={"policy": "lru", "match_tokens": 256},
        disk={"policy": "lru", "match_tokens": 256},
        store={"policy": "lru", "match_tokens": 256},
        source="LMCache configuration: chunk_size 256, cache_policy LRU, save_unfull_chunk false, "
        "enable_async_loading false, min_retrieve_tokens 0 (pull request 2484), save_decode_cache "
        "false",
    ),
    EnginePreset(
        "mooncake",
        "store 0.3.9",
        16,
        {"prefetch": "off", "load_mode": "async", "keeps_generated": True},
        store={
            "policy": "lru",
            "match_tokens": 16,
            "high_watermark": 0.95,
            "low_watermark": 0.90,
            "lease_s": 5.0,
        },
        source="mooncake-store/include/types.h: lease 5 000 ms, high watermark 0.95, eviction "
        "ratio 0.05; Mooncake Store design page, eviction policy",
    ),
    EnginePreset(
        "trtllm",
        "1.4",
        32,
        {"load_mode": "async", "prefetch": "off", "keeps_generated": True},
        host={
            "policy": "leaf_lru",
            "match_tokens": 32,
            "write_moment": "on_evict",
            "inclusion": "exclusive",
        },
        source="TensorRT-LLM features/kvcache: a block is copied to host memory before it is "
        "evicted and copied back for reuse; tokens_per_block 32; leaves go first",
    ),
    EnginePreset(
        "dynamo-kvbm",
        "1.1",
        16,
        {"load_mode": "async", "prefetch": "off", "keeps_generated": True},
        host={"policy": "lru", "match_tokens": 16},
        disk={"policy": "lru", "match_tokens": 16, "admission_uses": 2},
        store={"policy": "lru", "match_tokens": 16},
        source="docs.nvidia.com/dynamo v1.1.1 KVBM guide: disk offload filter, frequency of 2 or "
        "more, unless DYN_KVBM_DISABLE_DISK_OFFLOAD_FILTER",
    ),
)
"""Read on 2026-11-30."""


def find_engine(name: str) -> EnginePreset:
    """The preset of a name.

    Raises:
        UsageError: unknown, with close names.
    """
    known = [preset.engine_id for preset in ENGINES]
    found = find_name(
        name,
        build_index((one, ()) for one in known),
        what="engine preset",
        code="KVT-R014",
        hint=f"use one of {', '.join(known)}",
    )
    return next(preset for preset in ENGINES if preset.engine_id == found)


def with_engine(scenario: Scenario, preset: EnginePreset, *, layers: int = 1) -> Scenario:
    """The scenario as the engine would run it; `layers` of the LLM where it loads by layers."""
    tiers: list[TierSpec] = []
    private = 0
    for tier in scenario.tiers:
        changes = preset.store
        if tier.scope == "instance":
            changes = preset.disk if private else preset.host
            private += 1
        tiers.append(replace(tier, **changes))  # type: ignore[arg-type]
    changed = replace(scenario, tiers=tuple(tiers), **preset.scenario)  # type: ignore[arg-type]
    return replace(changed, layers=layers) if changed.overlap == "layerwise" else changed
