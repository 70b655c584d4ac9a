-- name: pooling/added
-- question: What does a shared pool add over what HBM, and HBM with idle DRAM, already serve?
-- grain: one row per cache_domain, routing, instances, hbm_blocks, dram_blocks and pool_blocks
-- params: hbm_blocks BIGINT = null, dram_blocks BIGINT = null, pool_blocks BIGINT = null
-- reads: pool_hits
-- order: cache_domain, routing, instances, hbm_blocks, dram_blocks, pool_blocks
-- note: no rows until `kvtrace pooling` or `kvtrace analyze` made pool_hits; a null size means every one that was made.
-- note: the pool keeps every block that an instance computes, and renews it at each use: exact for chained ids.
-- note: HBM serves first, then DRAM of the same instance, then the pool; all HBM is counted as cache, so less is left to add here than where running requests hold some of it.
with above as (   -- one row per case that has a pool above private caches
    select
        cache_domain,
        routing,
        instances,
        hbm_blocks,
        dram_blocks,
        pool_blocks,
        hbm_hit_blocks,
        hbm_hit_tokens,
        dram_hit_blocks,
        dram_hit_tokens,
        pool_hit_blocks,
        pool_hit_tokens,
        block_refs,
        prompt_tokens
    from pool_hits
    where pool_blocks > 0 and hbm_blocks + dram_blocks > 0
),
with_hbm_alone as (   -- one row per case, beside the same pool over HBM without DRAM
    select
        above.cache_domain,
        above.routing,
        above.instances,
        above.hbm_blocks,
        above.dram_blocks,
        above.pool_blocks,
        above.hbm_hit_blocks,
        above.hbm_hit_tokens,
        above.dram_hit_blocks,
        above.dram_hit_tokens,
        above.pool_hit_blocks,
        above.pool_hit_tokens,
        alone.pool_hit_blocks as over_hbm_hit_blocks,
        alone.pool_hit_tokens as over_hbm_hit_tokens,
        above.block_refs,
        above.prompt_tokens
    from above
    left join above as alone
        on alone.cache_domain = above.cache_domain
        and alone.routing = above.routing
        and alone.instances = above.instances
        and alone.hbm_blocks = above.hbm_blocks
        and alone.dram_blocks = 0
        and alone.pool_blocks = above.pool_blocks
)
select
    cache_domain::bigint as cache_domain,        -- key: the cache domain
    routing,                                     -- name: round_robin | session_sticky | kv_centric | kv_centric_exact
    instances,                                   -- count: instances that the requests are routed to
    hbm_blocks,                                  -- blocks: capacity of each instance's HBM
    dram_blocks,                                 -- blocks: capacity of each instance's DRAM
    pool_blocks,                                 -- blocks: capacity of the pool that all share
    hbm_hit_tokens,                              -- tokens: prompt tokens served from HBM
    dram_hit_tokens,                             -- tokens: served from the instance's DRAM beyond HBM
    over_hbm_hit_tokens,                         -- tokens: what the pool adds over HBM alone; null where that case was not made
    pool_hit_tokens as over_hbm_and_dram_hit_tokens,   -- tokens: what the pool adds over HBM and DRAM
    prompt_tokens,                               -- tokens: prompt tokens of all requests
    hbm_hit_blocks,                              -- blocks: references served from HBM
    dram_hit_blocks,                             -- blocks: served from the instance's DRAM beyond HBM
    over_hbm_hit_blocks,                         -- blocks: what the pool adds over HBM alone; null where that case was not made
    pool_hit_blocks as over_hbm_and_dram_hit_blocks,   -- blocks: what the pool adds over HBM and DRAM
    block_refs,                                  -- blocks: references in all
    hbm_hit_tokens / nullif(prompt_tokens, 0) as hbm_hit_ratio_tokens,     -- ratio: hbm_hit_tokens / prompt_tokens
    dram_hit_tokens / nullif(prompt_tokens, 0) as dram_hit_ratio_tokens,   -- ratio: dram_hit_tokens / prompt_tokens
    over_hbm_hit_tokens / nullif(prompt_tokens, 0) as over_hbm_hit_ratio_tokens,                -- ratio: over_hbm_hit_tokens / prompt_tokens
    pool_hit_tokens / nullif(prompt_tokens, 0) as over_hbm_and_dram_hit_ratio_tokens            -- ratio: over_hbm_and_dram_hit_tokens / prompt_tokens
from with_hbm_alone
where (getvariable('hbm_blocks')::bigint is null or hbm_blocks = getvariable('hbm_blocks')::bigint)
    and (getvariable('dram_blocks')::bigint is null or dram_blocks = getvariable('dram_blocks')::bigint)
    and (getvariable('pool_blocks')::bigint is null or pool_blocks = getvariable('pool_blocks')::bigint)
order by cache_domain, routing, instances, hbm_blocks, dram_blocks, pool_blocks
