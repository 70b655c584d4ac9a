-- name: reuse/hot_blocks
-- question: How much of the reuse comes from the few blocks that are reused most?
-- grain: one row per top_share
-- params: top_shares DOUBLE[] = null
-- reads: reuse
-- order: top_share
-- note: top_shares null: 0.01, 0.1, 1, 10 and 100 % of the distinct blocks; the nearest whole number
-- note: of blocks, at least one. Blocks are told apart inside an atom too, so that the cut is exact.
-- note: no rows without blocks.
with distinct_atoms as (   -- one row per distinct atom of a domain: how often it was reused
    select
        max(block_count) as block_count,
        count(*) filter (is_reusable) as reuses
    from reuse
    group by cache_domain, atom
),
levels as (   -- one row per number of reuses: the blocks that were reused so often
    select
        reuses,
        sum(block_count)::bigint as distinct_blocks
    from distinct_atoms
    group by reuses
),
ranked as (   -- one row per number of reuses: the blocks and reuses of this and higher numbers
    select
        reuses,
        distinct_blocks,
        sum(distinct_blocks) over (order by reuses desc) as blocks_down_to,
        sum(distinct_blocks * reuses) over (order by reuses desc) as reuses_down_to,
        sum(distinct_blocks) over (order by reuses) as blocks_up_to
    from levels
),
totals as (   -- one row; 1 - 2 × the area under the Lorenz curve of reuses over blocks
    select
        sum(distinct_blocks)::bigint as distinct_blocks,
        sum(distinct_blocks * reuses)::bigint as reusable_blocks,
        sum(distinct_blocks * reuses * (2 * blocks_up_to - distinct_blocks))
            / nullif(sum(distinct_blocks) * sum(distinct_blocks * reuses), 0) - 1 as gini
    from ranked
),
tops as (   -- one row per share that is asked for
    select distinct
        shares.top_share,
        least(
            greatest(round(shares.top_share * totals.distinct_blocks)::bigint, 1),
            totals.distinct_blocks
        ) as top_blocks
    from totals, unnest(
        coalesce(getvariable('top_shares')::double[], [0.0001, 0.001, 0.01, 0.1, 1.0])
    ) as shares (top_share)
    where totals.distinct_blocks > 0 and shares.top_share > 0
),
reached as (   -- one row per share: the last number of reuses that it reaches into, and what it takes
    select
        tops.top_share,
        tops.top_blocks,
        ranked.reuses as least_reuses,
        ranked.reuses_down_to - (ranked.blocks_down_to - tops.top_blocks) * ranked.reuses
            as top_reusable_blocks
    from tops
    asof join ranked on ranked.blocks_down_to >= tops.top_blocks
)
select
    reached.top_share,                                     -- ratio: of the distinct blocks, the most reused first
    reached.top_blocks,                                    -- blocks: so many distinct blocks
    reached.least_reuses::bigint as least_reuses,          -- count: each of these was reused at least so often
    reached.top_reusable_blocks::bigint as top_reusable_blocks,   -- blocks: reusable references to these
    reached.top_reusable_blocks / nullif(totals.reusable_blocks, 0) as reusable_blocks_share,   -- ratio: top_reusable_blocks / all reusable references
    totals.gini                                            -- ratio: of reuses over all distinct blocks, 0 even, near 1 all on a few; the same in each row
from reached, totals
order by reached.top_share
