-- name: reuse/gaps
-- question: How long must a cache keep a block until its next use?
-- grain: one row per gap_bucket_s that holds a reuse
-- params: none
-- reads: reuse
-- order: gap_bucket_s
-- note: only reuse whose gap is known; a trace without a clock gives no rows.
with reused_atoms as (   -- one row per reusable atom with a known gap
    select
        case
            when reuse_gap_ns >= 1000000000
            then 1::bigint << (length(bin(reuse_gap_ns // 1000000000)) - 1)
            else 0
        end as gap_bucket_s,
        block_count,
        token_count
    from reuse
    where is_reusable and reuse_gap_ns is not null
),
buckets as (   -- one row per bucket
    select
        gap_bucket_s,
        sum(block_count) as reused_blocks,
        sum(token_count) as reused_tokens
    from reused_atoms
    group by gap_bucket_s
)
select
    gap_bucket_s::bigint as gap_bucket_s,                -- s: lower bound of the half-open range of gaps up to twice this; 0 holds gaps below 1 s
    reused_blocks::bigint as reused_blocks,              -- blocks: reusable references after such a gap
    reused_tokens::bigint as reused_tokens,              -- tokens: in these
    reused_blocks / nullif(sum(reused_blocks) over (), 0) as reused_blocks_share,   -- ratio: of all reusable blocks with a known gap
    reused_tokens / nullif(sum(reused_tokens) over (), 0) as reused_tokens_share,   -- ratio: of all reusable tokens with a known gap
    sum(reused_tokens) over (order by gap_bucket_s) / nullif(sum(reused_tokens) over (), 0) as reused_tokens_share_within   -- ratio: of these tokens, in this bucket or a shorter one; what a time-to-live of the bucket's upper end would keep
from buckets
order by gap_bucket_s
