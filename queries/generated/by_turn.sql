-- name: generated/by_turn
-- question: From which turn on would keeping generated tokens matter?
-- grain: one row per turn_bucket that holds a request
-- params: none
-- reads: requests, reuse, continuations
-- order: turn_bucket
-- note: low is measured from prompts alone; high adds the parent's output, as outputs_kept of generated/kept_outputs does.
with reused_requests as (   -- one row per request that has blocks
    select
        request_key,
        sum(block_count) as block_refs,
        coalesce(sum(block_count) filter (is_reusable), 0) as reusable_blocks,
        coalesce(sum(token_count) filter (is_reusable), 0) as reusable_tokens
    from reuse
    group by request_key
),
turns as (   -- one row per ok headline request with a known prompt: full blocks within its bounds
    select
        case
            when turn.turn > 0 then 1::bigint << (length(bin(turn.turn::bigint)) - 1)
            else 0
        end as turn_bucket,
        parent.output_tokens,
        case
            when turn.shared_blocks = turn.parent_full_blocks
            then least(
                served.prompt_tokens // turn.block_size_tokens,
                coalesce(
                    (parent.prompt_tokens + parent.output_tokens) // turn.block_size_tokens,
                    served.prompt_tokens // turn.block_size_tokens
                )
            )
            else 0
        end as reached_blocks,
        turn.block_size_tokens,
        served.prompt_tokens,
        coalesce(reused.block_refs, 0) as block_refs,
        coalesce(reused.reusable_blocks, 0) as reusable_blocks,
        coalesce(reused.reusable_tokens, 0) as reusable_tokens
    from continuations as turn
    join requests as served on served.request_key = turn.request_key
    left join requests as parent on parent.request_key = turn.parent_request_key
    left join reused_requests as reused on reused.request_key = turn.request_key
    where served.prompt_tokens is not null
)
select
    turn_bucket::bigint as turn_bucket,                      -- turns: lower bound of the half-open range up to twice this; 0 holds the openings
    count(*)::bigint as requests,                            -- requests: in the bucket, with a known prompt
    sum(output_tokens)::bigint as parent_output_tokens,      -- tokens: that their parents generated, where known; null when nowhere
    sum(block_refs)::bigint as block_refs,                   -- blocks: references in these prompts
    sum(reusable_blocks)::bigint as reusable_blocks_low,     -- blocks: reusable, from prompts alone
    sum(greatest(reusable_blocks, reached_blocks))::bigint as reusable_blocks_high,   -- blocks: at most, with generated tokens kept
    sum(prompt_tokens)::bigint as prompt_tokens,             -- tokens: of these prompts
    sum(reusable_tokens)::bigint as reusable_tokens_low,     -- tokens: reusable, from prompts alone
    sum(greatest(reusable_tokens, reached_blocks * block_size_tokens))::bigint as reusable_tokens_high,   -- tokens: at most, with generated tokens kept
    sum(reusable_tokens) / nullif(sum(prompt_tokens), 0) as reusable_ratio_tokens_low,   -- ratio: reusable_tokens_low / prompt_tokens
    sum(greatest(reusable_tokens, reached_blocks * block_size_tokens)) / nullif(sum(prompt_tokens), 0) as reusable_ratio_tokens_high   -- ratio: reusable_tokens_high / prompt_tokens
from turns
group by turn_bucket
order by turn_bucket
