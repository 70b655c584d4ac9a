-- name: sizing/pool_curve
-- question: What does each further GB of a pool serve beyond HBM and idle DRAM, and is that worth its price?
-- grain: one row per pool_bytes
-- params: pool_sizes DOUBLE[] = null, held_bytes DOUBLE = null, kv_bytes_per_token DOUBLE = null, block_size_tokens BIGINT = null, usd_per_reused_token DOUBLE = null, windows_per_month DOUBLE = null, pool_dram_usd_per_gb_month DOUBLE = null, pool_ssd_usd_per_gb_month DOUBLE = null
-- reads: requests, reuse, continuations
-- order: pool_bytes
-- note: the exact LRU capacity curve of one cache (reuse/capacity_curve): what HBM and idle DRAM of all instances hold is its first held_bytes (null: none; the larger of the two where DRAM keeps copies of HBM), the pool what comes behind. An inclusive pool, which keeps copies of that, needs held_bytes more for the same hits.
-- note: private caches hold copies of what they share, so that they serve less than one cache of held_bytes; pooling/added has them as they are.
-- note: no rows without kv_bytes_per_token. Each cache domain has caches of these sizes to itself. pool_sizes null: 1, 2, 4, 8 … GiB and what holds every block.
-- note: money counts freed GPU time by the second, before rounding to whole instances; takes moves as free of GPU time, and the pool's nodes, DRAM, ports and power as growing with its size.
with domains as (   -- one row per cache domain with blocks: tokens of a block
    select
        cache_domain,
        greatest(
            coalesce(getvariable('block_size_tokens')::bigint, max(block_size_tokens)), 1
        ) as block_size_tokens
    from continuations
    group by cache_domain
),
distinct_atoms as (   -- one row per distinct atom of a domain
    select facts.cache_domain, max(facts.block_count * domains.block_size_tokens) as tokens
    from reuse as facts
    join domains on domains.cache_domain = facts.cache_domain
    group by facts.cache_domain, facts.atom
),
totals as (   -- one row: what is held above the pool, what holds every block, the denominator
    select
        max(tokens) as all_tokens,
        floor(
            coalesce(getvariable('held_bytes')::double, 0)
            / getvariable('kv_bytes_per_token')::double
        )::bigint as above_tokens,
        (
            select sum(prompt_tokens) from requests where is_headline and status = 'ok'
        )::bigint as prompt_tokens
    from (
        select sum(tokens) as tokens from distinct_atoms group by cache_domain
    ) as of_domain
    having max(tokens) is not null
),
bends as (   -- one row per capacity at which an atom begins or ends to be hit, token by token
    select from_tokens, sum(slope) as slope
    from (
        select
            (facts.distance_blocks - 1) * domains.block_size_tokens as from_tokens,
            1 as slope,
            facts.request_key
        from reuse as facts
        join domains on domains.cache_domain = facts.cache_domain
        where facts.is_reusable
        union all
        select
            (facts.distance_blocks - 1) * domains.block_size_tokens
                + least(facts.token_count, facts.block_count * domains.block_size_tokens),
            -1,
            facts.request_key
        from reuse as facts
        join domains on domains.cache_domain = facts.cache_domain
        where facts.is_reusable
    ) as ends
    join requests as served on served.request_key = ends.request_key
    where served.prompt_tokens is not null
    group by from_tokens
),
slopes as (   -- one row per bend: hits at a capacity C from there on are C × slope - offset
    select
        from_tokens,
        sum(slope) over up_to as slope,
        sum(slope * from_tokens) over up_to as offset_tokens
    from bends
    window up_to as (order by from_tokens)
),
pools as (   -- one row per size of the pool, and 0
    select pool_bytes
    from (
        select unnest(getvariable('pool_sizes')::double[]) as pool_bytes
        union
        select pow(2, exponent) * 1073741824
        from totals, range(0, 24) as exponents (exponent)
        where getvariable('pool_sizes')::double[] is null
            and pow(2, exponent) * 1073741824
                < (all_tokens - above_tokens) * getvariable('kv_bytes_per_token')::double
        union
        select (all_tokens - above_tokens) * getvariable('kv_bytes_per_token')::double
        from totals
        where getvariable('pool_sizes')::double[] is null and all_tokens > above_tokens
        union
        select 0
    ) as sizes
    where pool_bytes >= 0
),
capacities as (   -- one row per size: what HBM, idle DRAM and the pool hold together
    select
        pools.pool_bytes,
        totals.above_tokens
            + floor(pools.pool_bytes / getvariable('kv_bytes_per_token')::double)::bigint
            as capacity_tokens
    from pools, totals
    where totals.above_tokens is not null
),
served as (   -- one row per size: tokens that all of it serves
    select
        capacities.pool_bytes,
        capacities.capacity_tokens,
        coalesce(
            capacities.capacity_tokens * slopes.slope - slopes.offset_tokens, 0
        ) as hit_tokens
    from capacities
    asof left join slopes on slopes.from_tokens <= capacities.capacity_tokens
),
steps as (   -- one row per size above 0: what the pool adds, and what it adds over the size before
    select
        pool_bytes,
        capacity_tokens,
        hit_tokens,
        hit_tokens - first_value(hit_tokens) over sizes as pool_hit_tokens,
        hit_tokens - lag(hit_tokens) over sizes as step_tokens,
        (pool_bytes - lag(pool_bytes) over sizes) / 1e9 as step_gb
    from served
    window sizes as (order by pool_bytes)
    qualify row_number() over sizes > 1
),
priced as (   -- one row per size: its money
    select
        steps.pool_bytes,
        steps.capacity_tokens,
        steps.hit_tokens,
        steps.pool_hit_tokens,
        steps.step_tokens,
        steps.pool_hit_tokens * getvariable('usd_per_reused_token')::double
            * getvariable('windows_per_month')::double as value_usd_per_month,
        steps.step_tokens / nullif(steps.step_gb, 0) * getvariable('usd_per_reused_token')::double
            * getvariable('windows_per_month')::double as marginal_usd_per_gb_month
    from steps
)
select
    priced.pool_bytes,                                             -- bytes: size of the pool
    (priced.capacity_tokens * getvariable('kv_bytes_per_token')::double) as capacity_bytes,   -- bytes: HBM and idle DRAM of all instances, and the pool, in whole tokens
    priced.hit_tokens::bigint as hit_tokens,                       -- tokens: prompt tokens that all of it serves
    priced.pool_hit_tokens::bigint as pool_hit_tokens,             -- tokens: of these, beyond HBM and idle DRAM
    priced.pool_hit_tokens / nullif(totals.prompt_tokens, 0) as pool_hit_ratio_tokens,   -- ratio: pool_hit_tokens / prompt tokens of all requests
    priced.step_tokens::bigint as step_tokens,                     -- tokens: that this size serves more than the one before
    priced.value_usd_per_month,                                    -- USD/month: GPU time that the pool's hits free, by the second; null without a price or a month
    priced.marginal_usd_per_gb_month,                              -- USD/GB-month: the same of a GB between the size before and this one
    getvariable('pool_dram_usd_per_gb_month')::double as dram_usd_per_gb_month,   -- USD/GB-month: what a GB of pool DRAM costs
    getvariable('pool_ssd_usd_per_gb_month')::double as ssd_usd_per_gb_month,     -- USD/GB-month: what a GB of pool flash costs
    priced.marginal_usd_per_gb_month >= getvariable('pool_dram_usd_per_gb_month')::double as is_worth_dram,   -- flag: a GB between the two sizes is worth its DRAM; null: unknown
    priced.marginal_usd_per_gb_month >= getvariable('pool_ssd_usd_per_gb_month')::double as is_worth_ssd      -- flag: the same, its flash
from priced
cross join totals
order by priced.pool_bytes
