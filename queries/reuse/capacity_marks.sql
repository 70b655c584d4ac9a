-- name: reuse/capacity_marks
-- question: How much would an LRU cache as large as today's HBM, DRAM or pool have hit?
-- grain: one row per label whose size is given and holds at least one block
-- params: hbm_bytes DOUBLE = null, dram_bytes DOUBLE = null, pool_bytes DOUBLE = null, kv_bytes_per_token DOUBLE = null, block_size_tokens BIGINT = null
-- reads: requests, reuse, continuations
-- order: capacity_bytes, label
-- note: exact, and equal to reuse/capacity_curve at the same blocks: blocks are there at once, each
-- note: cache domain has a cache of this size to itself. No rows without kv_bytes_per_token.
-- note: each size stands alone: a tier that holds copies of the tier above it. Tiers without copies
-- note: act as one cache of the sum of their sizes; give that sum as a size.
with sizes as (   -- one row per size that is given
    select label, bytes as capacity_bytes
    from (
        values
            ('hbm', getvariable('hbm_bytes')::double),
            ('dram', getvariable('dram_bytes')::double),
            ('pool', getvariable('pool_bytes')::double)
    ) as given (label, bytes)
    where bytes is not null
),
domains as (   -- one row per cache domain with blocks
    select
        cache_domain,
        sum(block_count) as block_refs,
        greatest(
            coalesce(
                getvariable('block_size_tokens')::bigint,
                (
                    select max(turns.block_size_tokens)
                    from continuations as turns
                    where turns.cache_domain = reuse.cache_domain
                )
            ),
            1
        ) as block_size_tokens
    from reuse
    group by cache_domain
),
totals as (   -- one row: the denominators
    select
        max(block_size_tokens)::bigint as block_size_tokens,
        sum(block_refs)::bigint as block_refs,
        (
            select sum(prompt_tokens) from requests where is_headline and status = 'ok'
        )::bigint as prompt_tokens
    from domains
),
marks as (   -- one row per size that holds a block: whole blocks, of the largest block size
    select
        sizes.label,
        sizes.capacity_bytes,
        floor(
            sizes.capacity_bytes
            / (totals.block_size_tokens * getvariable('kv_bytes_per_token')::double)
        )::bigint as capacity_blocks
    from sizes, totals
    where sizes.capacity_bytes
        >= totals.block_size_tokens * getvariable('kv_bytes_per_token')::double
),
atom_hits as (   -- one row per mark and reusable atom: the blocks of it that are still there
    select
        marks.label,
        greatest(
            0,
            least(
                facts.block_count,
                marks.capacity_blocks * totals.block_size_tokens // domains.block_size_tokens
                    - facts.distance_blocks + 1
            )
        ) as hit_blocks,
        case when served.prompt_tokens is null then 0 else facts.token_count end as token_count,
        domains.block_size_tokens
    from reuse as facts
    join domains on domains.cache_domain = facts.cache_domain
    join requests as served on served.request_key = facts.request_key
    cross join marks
    cross join totals
    where facts.is_reusable
),
hits as (   -- one row per mark with any reusable atom; a wholly hit partial block counts its tokens
    select
        label,
        sum(hit_blocks)::bigint as hit_blocks,
        sum(least(token_count, hit_blocks * block_size_tokens))::bigint as hit_tokens
    from atom_hits
    group by label
)
select
    marks.label,                                                -- name: hbm | dram | pool
    marks.capacity_bytes,                                       -- bytes: the size, as given
    marks.capacity_blocks,                                      -- blocks: whole blocks that it holds
    coalesce(hits.hit_blocks, 0)::bigint as hit_blocks,         -- blocks: references served from a cache of this size
    coalesce(hits.hit_tokens, 0)::bigint as hit_tokens,         -- tokens: prompt tokens served from it
    coalesce(hits.hit_blocks, 0) / nullif(totals.block_refs, 0) as hit_ratio_blocks,      -- ratio: hit_blocks / block references
    coalesce(hits.hit_tokens, 0) / nullif(totals.prompt_tokens, 0) as hit_ratio_tokens    -- ratio: hit_tokens / prompt tokens of all requests
from marks
cross join totals
left join hits on hits.label = marks.label
order by marks.capacity_bytes, marks.label
