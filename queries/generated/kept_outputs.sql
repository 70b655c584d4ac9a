-- name: generated/kept_outputs
-- question: How much more could be reused if the blocks that decoding made were kept for the next turn?
-- grain: one row per assumption on generated tokens
-- params: none
-- reads: requests, reuse, continuations
-- order: assumption
-- note: traces have ids for prompts only, so this is a range. prompts_alone is the lower bound, measured: a prefix of an earlier prompt. outputs_kept is the upper bound: a turn that holds its parent's whole prompt finds at most floor(least(parent prompt + parent output, own prompt) / block) blocks.
-- note: outputs_kept_that_fit is between: an output counts only where the own prompt is long enough to hold the parent's prompt and output. Where it is not, the client has stripped or cut the output; reasoning stands first in it, so that nothing behind the parent's prompt matches.
-- note: reasoning text that clients strip from the next turn is not reusable. A dataset knows output tokens with reasoning included, so for a reasoning LLM the truth is nearer to prompts_alone, whose row is what then remains.
-- note: an unknown output is no bound, so that such a turn counts its whole own prompt in outputs_kept and nothing in outputs_kept_that_fit.
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
        turn.parent_request_key is not null
            and turn.shared_blocks = turn.parent_full_blocks as is_follow_up,
        parent.output_tokens is not null as is_output_known,
        parent.prompt_tokens + parent.output_tokens <= served.prompt_tokens as is_fitting,
        served.prompt_tokens // turn.block_size_tokens as own_blocks,
        (parent.prompt_tokens + parent.output_tokens) // turn.block_size_tokens as said_blocks,
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
),
bounds as (   -- one row per assumption and turn: full blocks that the parent's text reaches
    select
        names.assumption,
        case
            when not turns.is_follow_up or names.assumption = 'prompts_alone' then 0
            when names.assumption = 'outputs_kept' then least(own_blocks, coalesce(said_blocks, own_blocks))
            when turns.is_fitting then said_blocks
            else 0
        end as reached_blocks,
        turns.*
    from turns
    cross join unnest(['outputs_kept', 'outputs_kept_that_fit', 'prompts_alone']) as names (assumption)
)
select
    assumption,                                              -- name: prompts_alone | outputs_kept_that_fit | outputs_kept
    case assumption when 'prompts_alone' then 'measured, lower bound' when 'outputs_kept' then 'upper bound' else 'between' end as standing,   -- text: what the row is
    count(*)::bigint as requests,                            -- requests: with a known prompt
    (count(*) filter (is_follow_up))::bigint as follow_ups,  -- requests: that hold their parent's whole prompt
    (count(*) filter (is_follow_up and not is_output_known))::bigint as output_unknown_requests,   -- requests: of these, whose parent's output length is unknown
    (count(*) filter (is_follow_up and not is_fitting))::bigint as output_not_fitting_requests,   -- requests: of these, shorter than the parent's prompt and output together
    sum(greatest(reusable_blocks, reached_blocks))::bigint as reusable_blocks,   -- blocks: that an unlimited cache would hold
    sum(block_refs)::bigint as block_refs,                   -- blocks: references in all these prompts
    sum(greatest(reusable_blocks, reached_blocks)) / nullif(sum(block_refs), 0) as reusable_ratio_blocks,   -- ratio: reusable_blocks / block_refs
    sum(greatest(reusable_tokens, reached_blocks * block_size_tokens))::bigint as reusable_tokens,   -- tokens: that an unlimited cache would hold
    sum(prompt_tokens)::bigint as prompt_tokens,             -- tokens: of all these prompts
    sum(greatest(reusable_tokens, reached_blocks * block_size_tokens)) / nullif(sum(prompt_tokens), 0) as reusable_ratio_tokens,   -- ratio: reusable_tokens / prompt_tokens
    sum(greatest(0, reached_blocks * block_size_tokens - reusable_tokens))::bigint as added_tokens   -- tokens: beyond prompts_alone
from bounds
group by assumption
order by assumption
