-- name: reuse/lifespans
-- question: How long is a block of use, from its first use to its last, and how often is it used?
-- grain: one row per lifespan_bucket_s that holds a block
-- params: none
-- reads: requests, reuse
-- order: lifespan_bucket_s
-- note: blocks that are used once live 0 s; lives that reach over the ends of the trace are cut
-- note: there. A trace without a clock gives no rows.
with lives as (   -- one row per distinct atom of a domain whose uses are all on a clock
    select
        max(facts.block_count) as block_count,
        count(*) as uses,
        max(served.arrived_at_ns) - min(served.arrived_at_ns) as lifespan_ns
    from reuse as facts
    join requests as served on served.request_key = facts.request_key
    group by facts.cache_domain, facts.atom
    having bool_and(served.arrived_at_ns is not null and served.clock != 'order')
),
buckets as (   -- one row per bucket
    select
        case
            when lifespan_ns >= 1000000000
            then 1::bigint << (length(bin(lifespan_ns // 1000000000)) - 1)
            else 0
        end as lifespan_bucket_s,
        sum(block_count) as distinct_blocks,
        coalesce(sum(block_count) filter (uses = 1), 0) as used_once_blocks,
        sum(block_count * uses) as block_refs
    from lives
    group by lifespan_bucket_s
)
select
    lifespan_bucket_s::bigint as lifespan_bucket_s,        -- s: lower bound of the half-open range of lifespans up to twice this; 0 holds lifespans below 1 s
    distinct_blocks::bigint as distinct_blocks,            -- blocks: with such a lifespan
    used_once_blocks::bigint as used_once_blocks,          -- blocks: of these, used once
    block_refs::bigint as block_refs,                      -- blocks: references to these
    block_refs / nullif(distinct_blocks, 0) as uses_mean,  -- count: block_refs / distinct_blocks
    distinct_blocks / nullif(sum(distinct_blocks) over (), 0) as distinct_blocks_share,   -- ratio: of all distinct blocks
    block_refs / nullif(sum(block_refs) over (), 0) as block_refs_share   -- ratio: of all references
from buckets
order by lifespan_bucket_s
