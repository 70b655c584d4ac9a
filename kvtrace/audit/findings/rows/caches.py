"""Findings on which cache serves the reuse, and what a pool adds."""

from __future__ import annotations

from typing import Final

from kvtrace.audit import thresholds
from kvtrace.audit.findings import limits as limit
from kvtrace.audit.findings import modelled as by_model
from kvtrace.audit.findings.check import Check
from kvtrace.audit.findings.kv_events import RESTORED_TABLE, restored_tokens

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
)
