-- name: sizing/pool_size
-- question: How large should a pool be: where does a GB begin to cost more than the hits that it serves are worth, and where is the knee?
-- grain: one row per medium
-- params: media VARCHAR[] = null, media_usd_per_gb_month DOUBLE[] = null, held_bytes DOUBLE = null, kv_bytes_per_token DOUBLE = null, block_size_tokens BIGINT = null, usd_per_reused_token DOUBLE = null, windows_per_month DOUBLE = null, little_ratio_tokens DOUBLE = 0.02
-- reads: requests, reuse, continuations
-- order: place
-- note: as sizing/pool_curve, at every size at which the curve bends: best_bytes is where value less cost is greatest, 0 where no size is worth its price. Of equal ones the smallest.
-- note: the knee takes no price: the size whose share of the hits that an unlimited pool adds lies farthest above its share of that pool's bytes (Satopaa et al., Finding a Kneedle in a Haystack, 2011).
-- note: media null: pool_dram and pool_ssd, without prices. No rows without kv_bytes_per_token or without reuse.
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
hits_at as (   -- one row per bend: tokens that a cache of that size serves
    select
        from_tokens,
        from_tokens * lag(slope, 1, 0) over sizes
            - lag(offset_tokens, 1, 0) over sizes as hit_tokens
    from slopes
    window sizes as (order by from_tokens)
),
above as (   -- one row: what HBM and idle DRAM serve alone
    select
        totals.above_tokens,
        coalesce(
            arg_max(
                totals.above_tokens * slopes.slope - slopes.offset_tokens, slopes.from_tokens
            ),
            0
        ) as hit_tokens
    from totals
    left join slopes on slopes.from_tokens <= totals.above_tokens
    where totals.above_tokens is not null
    group by totals.above_tokens
),
pools as (   -- one row per size at which the curve bends, and 0
    select
        hits_at.from_tokens - above.above_tokens as pool_tokens,
        hits_at.hit_tokens - above.hit_tokens as pool_hit_tokens
    from hits_at
    cross join above
    where hits_at.from_tokens > above.above_tokens
    union all
    select 0, 0
    from above
    where exists (select 1 from hits_at)
),
whole as (   -- one row: the smallest pool that serves all that any pool adds
    select
        pool_tokens as all_tokens,
        pool_hit_tokens as all_hit_tokens
    from pools
    order by pool_hit_tokens desc, pool_tokens
    limit 1
),
knee as (   -- one row: the size that serves most for its bytes
    select
        pools.pool_tokens as knee_tokens,
        pools.pool_hit_tokens as knee_hit_tokens
    from pools
    cross join whole
    where pools.pool_tokens <= whole.all_tokens
    order by
        pools.pool_hit_tokens / nullif(whole.all_hit_tokens, 0)
            - pools.pool_tokens / nullif(whole.all_tokens, 0) desc nulls last,
        pools.pool_tokens
    limit 1
),
little as (   -- one row: hits that are too few to matter
    select getvariable('little_ratio_tokens')::double * prompt_tokens as hit_tokens
    from totals
),
others as (   -- one row: the smallest pool that adds hits, the smallest cache that keeps nearly all
    select
        (
            select min(pools.pool_tokens)
            from pools
            where pools.pool_hit_tokens >= little.hit_tokens and pools.pool_tokens > 0
        ) as adding_tokens,
        (
            select min(hits_at.from_tokens)
            from hits_at
            where hits_at.hit_tokens
                >= (select max(served.hit_tokens) from hits_at as served) - little.hit_tokens
                and hits_at.hit_tokens > 0
        ) as cache_tokens
    from little
),
media as (   -- one row per medium: what a GB of it costs a month
    select
        unnest(range(1, len(names.media) + 1)) as place,
        unnest(names.media) as medium,
        unnest(
            coalesce(
                getvariable('media_usd_per_gb_month')::double[], [null for each in names.media]
            )
        ) as usd_per_gb_month
    from (
        select
            coalesce(
                getvariable('media')::varchar[], ['pool_dram', 'pool_ssd']
            ) as media
    ) as names
),
priced as (   -- one row per medium and size: value and cost
    select
        media.place,
        media.medium,
        media.usd_per_gb_month,
        pools.pool_tokens,
        pools.pool_hit_tokens,
        pools.pool_hit_tokens * getvariable('usd_per_reused_token')::double
            * getvariable('windows_per_month')::double as value_usd_per_month,
        pools.pool_tokens * getvariable('kv_bytes_per_token')::double / 1e9
            * media.usd_per_gb_month as cost_usd_per_month
    from media
    cross join pools
),
best as (   -- one row per medium: the size of the greatest value less cost; null without prices
    select
        place,
        medium,
        usd_per_gb_month,
        case when value_usd_per_month - cost_usd_per_month is not null then pool_tokens end
            as pool_tokens,
        case when value_usd_per_month - cost_usd_per_month is not null then pool_hit_tokens end
            as pool_hit_tokens,
        case when cost_usd_per_month is not null then value_usd_per_month end
            as value_usd_per_month,
        case when value_usd_per_month is not null then cost_usd_per_month end
            as cost_usd_per_month
    from priced
    qualify row_number() over (
        partition by place
        order by priced.value_usd_per_month - priced.cost_usd_per_month desc nulls last,
            priced.pool_tokens
    ) = 1
)
select
    best.place::bigint as place,                               -- rank: as given, from 1
    best.medium,                                               -- name: pool_dram | pool_ssd, or as given
    best.usd_per_gb_month,                                     -- USD/GB-month: what a GB of it costs
    above.above_tokens * getvariable('kv_bytes_per_token')::double as held_bytes,   -- bytes: HBM and idle DRAM of all instances, in whole tokens
    above.hit_tokens::bigint as held_hit_tokens,               -- tokens: that these serve alone
    best.pool_tokens * getvariable('kv_bytes_per_token')::double as best_bytes,   -- bytes: of the pool beyond which a GB costs more than its hits are worth; 0: none is worth it; null: no price or no month
    best.pool_hit_tokens::bigint as best_hit_tokens,   -- tokens: that a pool of best_bytes adds
    best.value_usd_per_month,                                  -- USD/month: GPU time that these free, by the second
    best.cost_usd_per_month,                                   -- USD/month: of best_bytes
    best.value_usd_per_month - best.cost_usd_per_month as net_usd_per_month,        -- USD/month: value less cost
    knee.knee_tokens * getvariable('kv_bytes_per_token')::double as knee_bytes,     -- bytes: of the pool at the knee of the curve
    knee.knee_hit_tokens::bigint as knee_hit_tokens,           -- tokens: that it adds
    whole.all_tokens * getvariable('kv_bytes_per_token')::double as all_bytes,      -- bytes: of the smallest pool that serves all that any pool adds
    whole.all_hit_tokens::bigint as all_hit_tokens,            -- tokens: that it adds
    others.adding_tokens * getvariable('kv_bytes_per_token')::double as smallest_that_adds_bytes,   -- bytes: of the smallest pool that adds little_ratio_tokens of the prompt tokens; null: none does
    greatest(others.cache_tokens - above.above_tokens, 0) * getvariable('kv_bytes_per_token')::double as nearly_all_bytes,   -- bytes: of the smallest pool that keeps all hits but little_ratio_tokens of the prompt tokens; 0: what is held keeps them
    others.cache_tokens * getvariable('kv_bytes_per_token')::double as nearly_all_cache_bytes   -- bytes: of the smallest cache, all tiers together, that does
from best
cross join above
cross join knee
cross join whole
cross join others
order by best.place
