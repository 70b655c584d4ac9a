-- name: reuse/capacity_curve
-- question: How much would an LRU cache of each capacity have hit, when blocks are there at once?
-- grain: one row per capacity_blocks
-- params: capacities BIGINT[] = null, kv_bytes_per_token DOUBLE = null, block_size_tokens BIGINT = null
-- reads: requests, reuse
-- order: capacity_blocks
-- note: exact for every capacity. Each cache domain has a cache of this capacity to itself.
-- note: capacities null: 1, 2, 5, 10, 20, 50 … and the number of distinct blocks.
-- note: block_size_tokens null: the largest mean tokens per block of an atom.
with atoms as (   -- one row per atom of a request; tokens count only where the prompt is known
    select
        facts.cache_domain,
        facts.atom,
        facts.block_count,
        case when served.prompt_tokens is null then 0 else facts.token_count end as token_count,
        facts.is_reusable,
        facts.distance_blocks,
        coalesce(
            getvariable('block_size_tokens')::bigint,
            max(facts.token_count // facts.block_count) over (partition by facts.cache_domain)
        ) as block_size_tokens
    from reuse as facts
    join requests as served on served.request_key = facts.request_key
    where served.is_headline and served.status = 'ok'
),
distinct_atoms as (   -- one row per distinct atom of a domain
    select cache_domain, atom, max(block_count) as block_count
    from atoms
    group by cache_domain, atom
),
totals as (   -- one row: the denominators and the size of an unlimited cache
    select
        (select sum(block_count) from distinct_atoms)::bigint as distinct_blocks,
        (select sum(block_count) from atoms)::bigint as block_refs,
        (select max(block_size_tokens) from atoms)::bigint as block_size_tokens,
        (
            select sum(prompt_tokens) from requests where is_headline and status = 'ok'
        )::bigint as prompt_tokens
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
atom_hits as (   -- one row per capacity and reusable atom: the blocks of it that are still there
    select
        capacities.capacity_blocks,
        greatest(0, least(atoms.block_count, capacities.capacity_blocks - atoms.distance_blocks + 1))
            as hit_blocks,
        atoms.token_count,
        atoms.block_size_tokens
    from capacities
    cross join atoms
    where atoms.is_reusable
),
hits as (   -- one row per capacity with any reusable atom; a wholly hit partial block counts its tokens
    select
        capacity_blocks,
        sum(hit_blocks)::bigint as hit_blocks,
        sum(least(token_count, hit_blocks * block_size_tokens))::bigint as hit_tokens
    from atom_hits
    group by capacity_blocks
)
select
    capacities.capacity_blocks,                                 -- blocks: capacity of the cache
    capacities.capacity_blocks * totals.block_size_tokens * getvariable('kv_bytes_per_token')::double as capacity_bytes,   -- bytes: the same in KV bytes; null without kv_bytes_per_token
    coalesce(hits.hit_blocks, 0)::bigint as hit_blocks,         -- blocks: references served from the cache
    coalesce(hits.hit_tokens, 0)::bigint as hit_tokens,         -- tokens: prompt tokens served from the cache
    coalesce(hits.hit_blocks, 0) / nullif(totals.block_refs, 0) as hit_ratio_blocks,      -- ratio: hit_blocks / block references
    coalesce(hits.hit_tokens, 0) / nullif(totals.prompt_tokens, 0) as hit_ratio_tokens    -- ratio: hit_tokens / prompt tokens of all requests
from capacities
cross join totals
left join hits on hits.capacity_blocks = capacities.capacity_blocks
where capacities.capacity_blocks > 0 and totals.block_refs > 0
order by capacities.capacity_blocks
