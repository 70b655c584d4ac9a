-- name: block_size/what_if
-- question: How much would be reusable if the engine cached in blocks of another size?
-- grain: one row per block size of the trace and block size that is asked for
-- params: block_sizes BIGINT[] = [16, 64, 256, 512, 784]
-- reads: requests, reuse, continuations
-- order: trace_block_tokens, block_tokens
-- note: full blocks of the asked size only, of a cache that forgets nothing; requests with a known prompt.
-- note: exact where the trace's blocks divide the asked size: whole blocks of the trace then decide. Else a range: with m matched tokens the true match lies in m .. m + trace block - 1, within the prompt, and both ends are cut to full blocks.
-- note: the first request of a cache domain matches nothing, so that its range is empty.
with reused_requests as (   -- one row per request that has blocks
    select
        request_key,
        coalesce(sum(token_count) filter (is_reusable), 0) as matched_tokens
    from reuse
    group by request_key
),
per_request as (   -- one row per ok headline request with a known prompt: the range of its match
    select
        turns.block_size_tokens,
        served.prompt_tokens,
        coalesce(reused.matched_tokens, 0) as matched_tokens,
        case
            when turns.conversation = 0 and turns.turn = 0 then 0
            else least(
                served.prompt_tokens,
                coalesce(reused.matched_tokens, 0) + turns.block_size_tokens - 1
            )
        end as most_tokens
    from continuations as turns
    join requests as served on served.request_key = turns.request_key
    left join reused_requests as reused on reused.request_key = turns.request_key
    where served.prompt_tokens is not null
),
asked_sizes as (   -- one row per block size that is asked for
    select distinct size as block_tokens
    from unnest(coalesce(getvariable('block_sizes')::bigint[], [16, 64, 256, 512, 784])) as asked (size)
    where size > 0
),
ranges as (   -- one row per asked size and request: full blocks of that size that match
    select
        per_request.block_size_tokens,
        asked_sizes.block_tokens,
        per_request.prompt_tokens,
        per_request.prompt_tokens // asked_sizes.block_tokens as full_blocks,
        per_request.matched_tokens // asked_sizes.block_tokens as low_blocks,
        case
            when asked_sizes.block_tokens % per_request.block_size_tokens = 0
            then per_request.matched_tokens // asked_sizes.block_tokens
            else per_request.most_tokens // asked_sizes.block_tokens
        end as high_blocks
    from per_request
    cross join asked_sizes
)
select
    block_size_tokens::bigint as trace_block_tokens,         -- tokens: of a block in the trace
    block_tokens::bigint as block_tokens,                    -- tokens: of a block that is asked for
    case when block_tokens % block_size_tokens = 0 then 'exact' else 'range' end as certainty,   -- name: exact (low and high are equal) | range
    case
        when block_tokens = block_size_tokens then 'the block size of the trace'
        when block_tokens % block_size_tokens = 0 then 'whole blocks of the trace make one'
        when block_tokens < block_size_tokens then 'a block of the trace may match in part, which it does not show'
        else 'its ends fall inside blocks of the trace'
    end as reason,                                           -- text: why
    count(*)::bigint as requests,                            -- requests: with a known prompt
    sum(full_blocks)::bigint as full_blocks,                 -- blocks: full blocks of the asked size in these prompts
    sum(low_blocks)::bigint as reusable_blocks_low,          -- blocks: reusable, at least
    sum(high_blocks)::bigint as reusable_blocks_high,        -- blocks: reusable, at most
    sum(prompt_tokens)::bigint as prompt_tokens,             -- tokens: of these prompts
    (sum(low_blocks) * block_tokens)::bigint as reusable_tokens_low,    -- tokens: in reusable blocks, at least
    (sum(high_blocks) * block_tokens)::bigint as reusable_tokens_high,  -- tokens: in reusable blocks, at most
    sum(low_blocks) * block_tokens / nullif(sum(prompt_tokens), 0) as reusable_ratio_tokens_low,     -- ratio: reusable_tokens_low / prompt_tokens
    sum(high_blocks) * block_tokens / nullif(sum(prompt_tokens), 0) as reusable_ratio_tokens_high    -- ratio: reusable_tokens_high / prompt_tokens
from ranges
group by block_size_tokens, block_tokens
order by block_size_tokens, block_tokens
