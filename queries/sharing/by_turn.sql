-- name: sharing/by_turn
-- question: How does reuse grow with the length of a conversation?
-- grain: one row per turn_bucket that holds a request
-- params: none
-- reads: requests, reuse, continuations
-- order: turn_bucket
-- note: a conversation that began before the window is counted from its first request in it.
with reused_requests as (   -- one row per request that has blocks
    select
        request_key,
        sum(token_count) filter (is_reusable) as reusable_tokens
    from reuse
    group by request_key
),
per_turn as (   -- one row per turn with a known prompt
    select
        case
            when turns.turn > 0 then 1::bigint << (length(bin(turns.turn::bigint)) - 1)
            else 0
        end as turn_bucket,
        turns.cache_domain,
        turns.conversation,
        served.prompt_tokens,
        coalesce(reused.reusable_tokens, 0) as reusable_tokens,
        coalesce(turns.shared_tokens, 0) as shared_tokens
    from continuations as turns
    join requests as served on served.request_key = turns.request_key
    left join reused_requests as reused on reused.request_key = turns.request_key
    where served.prompt_tokens is not null
)
select
    turn_bucket::bigint as turn_bucket,                      -- turns: lower bound of the half-open range up to twice this; 0 holds the openings
    count(*)::bigint as requests,                            -- requests: in the bucket, with a known prompt
    count(distinct (cache_domain, conversation))::bigint as conversations,   -- conversations: that get this far
    sum(prompt_tokens)::bigint as prompt_tokens,             -- tokens: of these requests
    sum(prompt_tokens) / nullif(count(*), 0) as prompt_tokens_mean,          -- tokens: prompt_tokens / requests
    sum(reusable_tokens)::bigint as reusable_tokens,         -- tokens: that an unlimited cache would hold
    sum(reusable_tokens) / nullif(sum(prompt_tokens), 0) as reusable_ratio_tokens,   -- ratio: reusable_tokens / prompt_tokens
    sum(shared_tokens)::bigint as shared_tokens,             -- tokens: in full blocks in common with the parent
    sum(shared_tokens) / nullif(sum(prompt_tokens), 0) as shared_ratio_tokens   -- ratio: shared_tokens / prompt_tokens
from per_turn
group by turn_bucket
order by turn_bucket
