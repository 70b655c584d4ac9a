-- name: reuse/summary
-- question: How much of the prefill work is a repeat that an unlimited cache would have caught?
-- grain: one row
-- params: none
-- reads: requests, blocks, reuse
-- order: requests (a single row)
with partial_ends as (   -- one row per request whose last block is partial, and where it ends
    select
        request_key,
        max(position + block_count) as end_position
    from blocks
    group by request_key
    having max(tail_tokens) > 0
),
reused_requests as (   -- one row per request that has blocks
    select
        facts.request_key,
        sum(facts.block_count) as block_refs,
        sum(facts.block_count) filter (facts.is_reusable) as reusable_blocks,
        sum(facts.token_count) filter (facts.is_reusable) as reusable_tokens,
        count(ends.end_position) as partial_blocks,
        count(ends.end_position) filter (facts.is_reusable) as reusable_partial_blocks
    from reuse as facts
    left join partial_ends as ends
        on ends.request_key = facts.request_key
        and ends.end_position = facts.position + facts.block_count
    group by facts.request_key
),
per_request as (   -- one row per ok headline request; block figures are null where it has no blocks
    select
        served.request_key,
        served.prompt_tokens,
        reused.block_refs,
        coalesce(reused.reusable_blocks, 0) as reusable_blocks,
        coalesce(reused.reusable_tokens, 0) as reusable_tokens,
        reused.block_refs - reused.partial_blocks as full_block_refs,
        coalesce(reused.reusable_blocks, 0) - reused.reusable_partial_blocks as reusable_full_blocks
    from requests as served
    left join reused_requests as reused on reused.request_key = served.request_key
    where served.is_headline and served.status = 'ok'
),
totals as (   -- one row; sums of reuse are null where no request has blocks
    select
        count(*) as requests,
        sum(prompt_tokens) as prompt_tokens,
        sum(block_refs) as block_refs,
        sum(reusable_blocks) filter (block_refs is not null) as reusable_blocks,
        sum(full_block_refs) as full_block_refs,
        sum(reusable_full_blocks) as reusable_full_blocks,
        sum(reusable_tokens) filter (block_refs is not null and prompt_tokens is not null)
            as reusable_tokens,
        count(*) filter (reusable_blocks > 0) as requests_with_reuse,
        fsum(reusable_tokens / nullif(prompt_tokens, 0) order by request_key)
            / nullif(count(*) filter (prompt_tokens > 0), 0) as ratio_mean_tokens,
        fsum(reusable_blocks / nullif(block_refs, 0) order by request_key)
            / nullif(count(*) filter (block_refs > 0), 0) as ratio_mean_blocks
    from per_request
)
select
    requests::bigint as requests,                          -- requests: `ok` headline requests
    block_refs::bigint as block_refs,                      -- blocks: references in all prompts, partial last blocks included; null without blocks
    reusable_blocks::bigint as reusable_blocks,            -- blocks: references that an earlier request held, with all before them; null without blocks
    full_block_refs::bigint as full_block_refs,            -- blocks: references without partial last blocks; null without blocks
    reusable_full_blocks::bigint as reusable_full_blocks,  -- blocks: of these, reusable; null without blocks
    prompt_tokens::bigint as prompt_tokens,                -- tokens: sum of known prompts; null when none is known
    reusable_tokens::bigint as reusable_tokens,            -- tokens: in reusable blocks of known prompts; null without blocks
    reusable_blocks / nullif(block_refs, 0) as reusable_ratio_blocks,             -- ratio: reusable_blocks / block_refs
    case when block_refs is not null then reusable_tokens / nullif(prompt_tokens, 0) end as reusable_ratio_tokens,   -- ratio: reusable_tokens / prompt_tokens
    case when block_refs is not null then ratio_mean_tokens end as reusable_ratio_requests_mean,   -- ratio: mean over requests of reusable / prompt tokens; without blocks of its own a request counts as 0
    case when block_refs is not null then ratio_mean_blocks end as reusable_ratio_requests_mean_blocks,   -- ratio: mean over requests with blocks of reusable / all blocks
    reusable_full_blocks / nullif(full_block_refs, 0) as reusable_ratio_full_blocks,   -- ratio: reusable_full_blocks / full_block_refs
    case when block_refs is not null then requests_with_reuse end::bigint as requests_with_reuse,   -- requests: with at least one reusable block; null without blocks
    case when block_refs is not null then requests_with_reuse / nullif(requests, 0) end as requests_with_reuse_ratio   -- ratio: requests_with_reuse / requests
from totals
order by requests
