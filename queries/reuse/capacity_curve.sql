-- name: reuse/capacity_curve
-- question: How much would an LRU cache of each capacity have hit, when blocks are there at once?
-- grain: one row per capacity_blocks
-- params: capacities BIGINT[] = null, kv_bytes_per_token DOUBLE = null, block_size_tokens BIGINT = null
-- reads: requests, reuse, continuations
-- order: capacity_blocks
-- note: exact for every capacity. Each cache domain has a cache of this capacity to itself; where
-- note: blocks of domains differ in size, a capacity counts blocks of the largest, and each cache
-- note: holds as many tokens. A capacity of 0 hits nothing; negative ones give no row.
-- note: capacities null: 1, 2, 5, 10, 20, 50 … and the distinct blocks of the largest domain.
-- note: block_size_tokens null: that of each cache domain.
-- note: an atom at distance d hits clamp(C - d + 1, 0, its blocks) blocks: over C a ramp that bends
-- note: twice, so that running sums over the bends give the hits at every capacity.
with distinct_atoms as (   -- one row per distinct atom of a domain
    select
        cache_domain,
        max(block_count) as block_count,
        count(*) * max(block_count) as block_refs
    from reuse
    group by cache_domain, atom
),
domains as (   -- one row per cache domain with blocks
    select
        cache_domain,
        sum(block_count) as distinct_blocks,
        sum(block_refs) as block_refs,
        greatest(
            coalesce(
                getvariable('block_size_tokens')::bigint,
                (
                    select max(turns.block_size_tokens)
                    from continuations as turns
                    where turns.cache_domain = distinct_atoms.cache_domain
                )
            ),
            1
        ) as block_size_tokens
    from distinct_atoms
    group by cache_domain
),
totals as (   -- one row: the denominators and the size of an unlimited cache
    select
        count(*) as cache_domains,
        max(block_size_tokens)::bigint as block_size_tokens,
        (
            (max(distinct_blocks * block_size_tokens) + max(block_size_tokens) - 1)
            // max(block_size_tokens)
        )::bigint as distinct_blocks,
        sum(block_refs)::bigint as block_refs,
        (
            select sum(prompt_tokens) from requests where is_headline and status = 'ok'
        )::bigint as prompt_tokens
    from domains
),
round_numbers as (   -- one row per 1, 2, 5, 10, 20, 50 …
    select (leading_digit * pow(10, exponent))::bigint as capacity_blocks
    from unnest([1, 2, 5]) as digits (leading_digit), range(0, 18) as exponents (exponent)
),
capacities as (   -- one row per capacity that is asked for
    select unnest(getvariable('capacities')::bigint[]) as capacity_blocks
    union
    select round_numbers.capacity_blocks
    from round_numbers, totals
    where getvariable('capacities')::bigint[] is null
        and round_numbers.capacity_blocks < totals.distinct_blocks
    union
    select distinct_blocks
    from totals
    where getvariable('capacities')::bigint[] is null and distinct_blocks > 0
),
own_capacities as (   -- one row per capacity and block size: the capacity in blocks of that size
    select
        sizes.block_size_tokens,
        capacities.capacity_blocks,
        capacities.capacity_blocks * totals.block_size_tokens // sizes.block_size_tokens as own_blocks
    from capacities
    cross join totals
    cross join (select distinct block_size_tokens from domains) as sizes
    where capacities.capacity_blocks >= 0
),
ramps as (   -- one row per reusable atom: its first block hits above a capacity of from_blocks
    select
        domains.block_size_tokens,
        facts.distance_blocks - 1 as from_blocks,
        facts.block_count,
        case   -- tokens count only where the prompt is known
            when served.prompt_tokens is null then 0
            else least(facts.token_count, facts.block_count * domains.block_size_tokens)
        end as token_count
    from reuse as facts
    join domains on domains.cache_domain = facts.cache_domain
    join requests as served on served.request_key = facts.request_key
    where facts.is_reusable
),
bends as (   -- one row per bend of a ramp; a wholly hit partial block counts its tokens, as a step
    select
        block_size_tokens,
        from_blocks,
        1 as blocks_slope,
        block_size_tokens as tokens_slope,
        0 as tokens_step
    from ramps
    union all
    select
        block_size_tokens,
        from_blocks + token_count // block_size_tokens,
        0,
        -block_size_tokens,
        token_count % block_size_tokens
    from ramps
    union all
    select block_size_tokens, from_blocks + block_count, -1, 0, 0
    from ramps
),
places as (   -- one row per block size and place with bends
    select
        block_size_tokens,
        from_blocks,
        sum(blocks_slope) as blocks_slope,
        sum(tokens_slope) as tokens_slope,
        sum(tokens_step) as tokens_step
    from bends
    group by block_size_tokens, from_blocks
),
sums as (   -- one row per block size and capacity: sums over the bends below it, above the one before
    select
        own.block_size_tokens,
        own.capacity_blocks,
        sum(places.blocks_slope) as blocks_slope,
        sum(places.blocks_slope * places.from_blocks) as blocks_offset,
        sum(places.tokens_slope) as tokens_slope,
        sum(places.tokens_slope * places.from_blocks - places.tokens_step) as tokens_offset
    from places
    asof join own_capacities as own
        on own.block_size_tokens = places.block_size_tokens
        and own.own_blocks > places.from_blocks
    group by own.block_size_tokens, own.capacity_blocks
),
own_hits as (   -- one row per block size and capacity: hits of the domains with such blocks
    select
        own.capacity_blocks,
        own.own_blocks * sum(sums.blocks_slope) over below - sum(sums.blocks_offset) over below
            as hit_blocks,
        own.own_blocks * sum(sums.tokens_slope) over below - sum(sums.tokens_offset) over below
            as hit_tokens
    from own_capacities as own
    left join sums
        on sums.block_size_tokens = own.block_size_tokens
        and sums.capacity_blocks = own.capacity_blocks
    window below as (partition by own.block_size_tokens order by own.capacity_blocks)
),
hits as (   -- one row per capacity
    select
        capacity_blocks,
        coalesce(sum(hit_blocks), 0)::bigint as hit_blocks,
        coalesce(sum(hit_tokens), 0)::bigint as hit_tokens
    from own_hits
    group by capacity_blocks
)
select
    hits.capacity_blocks,                                       -- blocks: capacity of the cache
    hits.capacity_blocks * totals.block_size_tokens as capacity_tokens,   -- tokens: the same in tokens of whole blocks
    hits.capacity_blocks * totals.block_size_tokens * getvariable('kv_bytes_per_token')::double as capacity_bytes,   -- bytes: the same in KV bytes; null without kv_bytes_per_token
    hits.hit_blocks,                                            -- blocks: references served from the cache
    hits.hit_tokens,                                            -- tokens: prompt tokens served from the cache
    hits.hit_blocks / nullif(totals.block_refs, 0) as hit_ratio_blocks,      -- ratio: hit_blocks / block references
    hits.hit_tokens / nullif(totals.prompt_tokens, 0) as hit_ratio_tokens,   -- ratio: hit_tokens / prompt tokens of all requests
    totals.cache_domains                                        -- count: caches of this capacity, one for each cache domain
from hits
cross join totals
order by hits.capacity_blocks
