-- name: reuse/ttl_curve
-- question: How much of the reuse does a cache keep that drops a block some time after its last use?
-- grain: one row per ttl_s
-- params: ttls_s DOUBLE[] = null
-- reads: requests, reuse
-- order: ttl_s
-- note: exact for every time to live. A block is there while the time since its last use is at most
-- note: the TTL, whatever the capacity; each use starts the time anew. A request hits its leading
-- note: run: up to the first block that is gone.
-- note: ttls_s null: 1, 10, 30 s, 1, 5, 10, 30 min, 1, 3, 6, 12 h, 1, 3, 7 d as far as there are
-- note: longer gaps, and the longest gap.
-- note: reuse whose gap is not known counts nowhere; a trace without a clock gives no rows.
with reused_atoms as (   -- one row per reusable atom: the longest gap of the run that it ends
    select
        facts.block_count,
        case when served.prompt_tokens is null then 0 else facts.token_count end as token_count,
        case
            when bool_and(facts.reuse_gap_ns is not null) over leading_run
            then max(facts.reuse_gap_ns) over leading_run
        end as run_gap_ns
    from reuse as facts
    join requests as served on served.request_key = facts.request_key
    where facts.is_reusable
    window leading_run as (partition by facts.request_key order by facts.position)
),
gaps as (   -- one row per distinct gap
    select
        run_gap_ns,
        sum(block_count) as reusable_blocks,
        sum(token_count) as reusable_tokens
    from reused_atoms
    where run_gap_ns is not null
    group by run_gap_ns
),
totals as (   -- one row
    select
        max(run_gap_ns) as longest_gap_ns,
        sum(reusable_blocks) as reusable_blocks,
        sum(reusable_tokens) as reusable_tokens,
        (
            select sum(prompt_tokens) from requests where is_headline and status = 'ok'
        ) as prompt_tokens
    from gaps
),
ttls as (   -- one row per time to live that is asked for
    select
        ttl_s,
        round(ttl_s * 1e9)::bigint as ttl_ns
    from unnest(getvariable('ttls_s')::double[]) as asked (ttl_s)
    union
    select
        grid.ttl_s,
        (grid.ttl_s * 1e9)::bigint
    from totals, unnest(
        [1, 10, 30, 60, 300, 600, 1800, 3600, 10800, 21600, 43200, 86400, 259200, 604800]
    ) as grid (ttl_s)
    where getvariable('ttls_s')::double[] is null and grid.ttl_s < totals.longest_gap_ns / 1e9
    union
    select
        longest_gap_ns / 1e9,
        longest_gap_ns
    from totals
    where getvariable('ttls_s')::double[] is null and longest_gap_ns is not null
),
steps as (   -- one row per time to live with gaps within it that the next shorter one does not have
    select
        ttls.ttl_ns,
        sum(gaps.reusable_blocks) as reusable_blocks,
        sum(gaps.reusable_tokens) as reusable_tokens
    from gaps
    asof join ttls on ttls.ttl_ns >= gaps.run_gap_ns
    group by ttls.ttl_ns
),
kept as (   -- one row per time to live
    select
        ttls.ttl_s,
        coalesce(sum(steps.reusable_blocks) over within_ttl, 0) as kept_blocks,
        coalesce(sum(steps.reusable_tokens) over within_ttl, 0) as kept_tokens
    from ttls
    left join steps on steps.ttl_ns = ttls.ttl_ns
    window within_ttl as (order by ttls.ttl_ns, ttls.ttl_s)
)
select
    kept.ttl_s,                                                 -- s: time since its last use after which a block is dropped
    kept.kept_blocks::bigint as kept_blocks,                    -- blocks: reusable references that are still there
    kept.kept_tokens::bigint as kept_tokens,                    -- tokens: in these, of known prompts
    kept.kept_blocks / nullif(totals.reusable_blocks, 0) as kept_ratio_blocks,   -- ratio: kept_blocks / reusable blocks with a known gap
    kept.kept_tokens / nullif(totals.reusable_tokens, 0) as kept_ratio_tokens,   -- ratio: kept_tokens / reusable tokens with a known gap
    kept.kept_tokens / nullif(totals.prompt_tokens, 0) as hit_ratio_tokens       -- ratio: kept_tokens / prompt tokens of all requests
from kept, totals
where totals.reusable_blocks is not null
order by kept.ttl_s
