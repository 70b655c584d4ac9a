"""Findings on which cache serves the reuse, and what a pool adds."""

from __future__ import annotations

from typing import Final

from kvtrace.audit import thresholds
from kvtrace.audit.findings import limits as limit
from kvtrace.audit.findings import modelled as by_model
from kvtrace.audit.findings.check import Check
from kvtrace.audit.findings.kv_events import RESTORED_TABLE, restored_tokens
from kvtrace.audit.findings.sizes import drives_wear_out, pool_size_is_off
from kvtrace.audit.findings.tiers import (
    READ_TABLE,
    WINDOW_TABLE,
    lower_tiers_hardly_hit,
    routing_loses_local_hits,
    write_only_tier,
)

CHECKS: Final[tuple[Check, ...]] = (
    Check(
        id="hits_end_at_hbm",
        title="HBM already holds the working set",
        question="Does HBM alone serve the reuse that there is?",
        threshold=thresholds.NEARLY_ALL,
        look=by_model.hits_end_at_hbm,
        is_replayed=True,
        action="Keep prefix caching on and route for it; do not buy a tier below HBM",
        action_kind="nearer",
        production_check="PromQL: rate(vllm:prefix_cache_hits_total[1h]) / "
        "rate(vllm:prefix_cache_queries_total[1h]) is near the reusable ratio",
        table="reuse/capacity_curve",
    ),
    Check(
        id="working_set_fits_dram",
        title="Idle DRAM holds the working set",
        question="Does the idle DRAM of the GPU nodes serve the reuse that HBM drops?",
        threshold=thresholds.NEARLY_ALL,
        look=by_model.working_set_fits_dram,
        is_replayed=True,
        action="Switch on local offload to host DRAM before a pool (vLLM --kv-offloading-size, "
        "SGLang --enable-hierarchical-cache)",
        action_kind="nearer",
        production_check="Free memory of the GPU nodes, and the host hit ratio after the switch: "
        "vllm:prompt_tokens_cached_by_source, sglang:cached_tokens_total{cache_source='host'}",
        table="reuse/capacity_curve",
    ),
    Check(
        id="pool_adds_little",
        title="A pool adds few hits",
        question="How many hits does a pool serve beyond the best option without one?",
        threshold=thresholds.LITTLE,
        look=by_model.pool_adds_little,
        is_replayed=True,
        action="Take the best option without a pool; look at a pool again when the working set "
        "has outgrown it",
        action_kind="nearer",
        production_check="PromQL: rate(vllm:external_prefix_cache_hits_total[1h]) against "
        "rate(vllm:prefix_cache_hits_total[1h]) in a trial with two instances",
    ),
    Check(
        id="restored_tokens",
        title="Tokens computed again (KV events)",
        question="How much of what the fleet computes had it computed before?",
        threshold=limit.RESTORED_SHARE,
        look=restored_tokens,
        action="Weigh these tokens, and no more, against the cost of a pool: first route requests "
        "to the instance that holds their blocks, then offload to the DRAM of the GPU nodes",
        action_kind="nearer",
        production_check="The same events during a trial: tokens of BlockStored on medium GPU with "
        "the tier against without; PromQL: rate(vllm:external_prefix_cache_hits_total[1h])",
        table=RESTORED_TABLE,
    ),
    Check(
        id="lower_tiers_hardly_hit",
        title="The tiers below HBM hardly hit",
        question="What do the tiers below HBM serve beyond HBM?",
        threshold=thresholds.LITTLE,
        look=lower_tiers_hardly_hit,
        action="Switch the tier below HBM off on one instance for an hour: where TTFT stays, "
        "leave it off; else find why it misses (size, routing, block size, keys that differ) "
        "before it is enlarged",
        action_kind="nearer",
        production_check="PromQL: rate(vllm:external_prefix_cache_hits_total[1h]) / "
        "rate(vllm:prompt_tokens_total[1h]); vllm:prompt_tokens_cached_by_source, "
        "sglang:cached_tokens_total by cache_source",
        table=WINDOW_TABLE,
    ),
    Check(
        id="write_only_tier",
        title="A tier that is written and hardly read",
        question="Is what is written below HBM read back?",
        threshold=limit.READ_BACK,
        look=write_only_tier,
        action="Write less: on the second use of a block, or on eviction only, and nothing that "
        "is never shared; or switch the tier off",
        action_kind="move_less",
        production_check="PromQL: rate(mooncake_transfer_read_bytes_total[1h]) / "
        "rate(mooncake_transfer_write_bytes_total[1h]); vLLM log `KV Transfer metrics`: "
        "`vllm:kv_offload_load_bytes` against `vllm:kv_offload_store_bytes`; LMCache lines "
        "`Retrieved` against `Stored`",
        table=READ_TABLE,
    ),
    Check(
        id="routing_loses_local_hits",
        title="Routing loses hits that an instance holds",
        question="Is KV computed again while another instance holds it?",
        threshold=limit.ROUTING_GAIN,
        look=routing_loses_local_hits,
        action="Route by what caches hold (a prefix-aware or KV-aware router) before buying a "
        "pool: it costs nothing and moves nothing",
        action_kind="nearer",
        production_check="KV events: BlockStored of a hash that another instance has not removed; "
        "PromQL: rate(vllm:prefix_cache_hits_total[1h]) / "
        "rate(vllm:prefix_cache_queries_total[1h]) with sessions pinned to instances for an hour",
    ),
    Check(
        id="pool_size_is_off",
        title="The size of the pool is off",
        question="Does the pool hold the reuse that there is, and not much more?",
        threshold=limit.SIZE_GAP,
        look=pool_size_is_off,
        is_replayed=True,
        action="Size the pool by the recommended size (section on sizes), which weighs the price "
        "of a GB against its hits; beyond the size that keeps nearly all hits more bytes add none",
        action_kind="nearer",
        production_check="Mooncake master: master_allocated_bytes / master_total_capacity_bytes, "
        "beside rate(master_evicted_size_bytes[1h]); the external hit ratio as it is enlarged "
        "step by step",
        table="reuse/capacity_curve",
    ),
    Check(
        id="drives_wear_out",
        title="Drives are written faster than they are rated for",
        question="How often a day are the drives of a tier written over?",
        threshold=limit.DRIVE_WRITES,
        look=drives_wear_out,
        is_replayed=True,
        action="Write on the second use, or on eviction from DRAM only; or buy drives for writing "
        "(3 writes a day) and price them so",
        action_kind="move_less",
        production_check="PromQL: rate(node_disk_written_bytes_total[1d]) * 86400 over the "
        "capacity of the drive; `nvme smart-log`: percentage_used a month",
    ),
)
