-- name: pooling/hit_ratio
-- question: What hit ratio would one shared pool have against private caches of the same total bytes?
-- grain: one row per cache_domain, routing, instances and capacity_blocks
-- params: instances BIGINT = null, routing VARCHAR = null
-- reads: pool_hits
-- order: cache_domain, routing, instances, capacity_blocks
-- note: no rows until `kvtrace pooling` or `kvtrace analyze` made pool_hits; LRU, blocks are there at once.
-- note: a pool is not better by law: a private cache may keep what a pool of the same bytes evicts.
-- note: the last capacity of each number of instances is one without limit; beyond it lies what only sharing gives.
-- note: how the requests were routed, and the weight of a match, stands in the manifest (derived, pool_hits).
with private_caches as (   -- one row per routing, instances and capacity of an instance, without any pool
    select
        cache_domain,
        routing,
        instances,
        hbm_blocks,
        instances * hbm_blocks as total_blocks,
        hbm_hit_blocks,
        hbm_hit_tokens,
        block_refs,
        prompt_tokens,
        busiest_prompt_tokens
    from pool_hits
    where dram_blocks = 0 and pool_blocks = 0 and hbm_blocks > 0
),
pools as (   -- one row per routing, instances and capacity of a pool, without private caches
    select
        cache_domain,
        routing,
        instances,
        pool_blocks,
        pool_hit_blocks,
        pool_hit_tokens
    from pool_hits
    where hbm_blocks = 0 and dram_blocks = 0 and pool_blocks > 0
),
same_bytes as (   -- one row per routing, instances and capacity: private caches beside a pool of their bytes
    select
        private_caches.cache_domain,
        private_caches.routing,
        private_caches.instances,
        private_caches.hbm_blocks,
        private_caches.total_blocks,
        private_caches.hbm_hit_blocks,
        private_caches.hbm_hit_tokens,
        pools.pool_hit_blocks,
        pools.pool_hit_tokens,
        private_caches.block_refs,
        private_caches.prompt_tokens,
        private_caches.busiest_prompt_tokens
    from private_caches
    join pools
        on pools.cache_domain = private_caches.cache_domain
        and pools.routing = private_caches.routing
        and pools.instances = private_caches.instances
        and pools.pool_blocks = private_caches.total_blocks
)
select
    cache_domain::bigint as cache_domain,            -- key: the cache domain
    routing,                                         -- name: round_robin | session_sticky | kv_centric | kv_centric_exact
    instances,                                       -- count: instances that the requests are routed to
    hbm_blocks as capacity_blocks,                   -- blocks: capacity of each private cache
    total_blocks as total_capacity_blocks,           -- blocks: capacity of all private caches together, and of the pool
    hbm_hit_blocks as private_hit_blocks,            -- blocks: references served from the instance's own cache
    pool_hit_blocks as pooled_hit_blocks,            -- blocks: references served from a pool of the same bytes
    block_refs,                                      -- blocks: references in all
    hbm_hit_tokens as private_hit_tokens,            -- tokens: prompt tokens served from the instance's own cache
    pool_hit_tokens as pooled_hit_tokens,            -- tokens: prompt tokens served from the pool
    prompt_tokens,                                   -- tokens: prompt tokens of all requests
    hbm_hit_blocks / nullif(block_refs, 0) as private_hit_ratio_blocks,        -- ratio: private_hit_blocks / block_refs
    pool_hit_blocks / nullif(block_refs, 0) as pooled_hit_ratio_blocks,        -- ratio: pooled_hit_blocks / block_refs
    hbm_hit_tokens / nullif(prompt_tokens, 0) as private_hit_ratio_tokens,     -- ratio: private_hit_tokens / prompt_tokens
    pool_hit_tokens / nullif(prompt_tokens, 0) as pooled_hit_ratio_tokens,     -- ratio: pooled_hit_tokens / prompt_tokens
    (pool_hit_tokens - hbm_hit_tokens) / nullif(prompt_tokens, 0) as added_hit_ratio_tokens,   -- ratio: pooled less private, over prompt_tokens; below zero where pooling loses
    busiest_prompt_tokens * instances / nullif(prompt_tokens, 0) as busiest_over_mean          -- ratio: prompt tokens of the busiest instance / mean of all instances
from same_bytes
where (getvariable('instances')::bigint is null or instances = getvariable('instances')::bigint)
    and (getvariable('routing')::varchar is null or routing = getvariable('routing')::varchar)
order by cache_domain, routing, instances, capacity_blocks
