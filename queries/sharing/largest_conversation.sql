-- name: sharing/largest_conversation
-- question: Does a single conversation bring most of the reuse?
-- grain: one row
-- params: none
-- reads: reuse, continuations
-- order: conversations (a single row)
-- note: reuse of a conversation: tokens that its requests would find in an unlimited cache, whoever computed
-- note: them. Conversations are those of `continuations`: by the logs, else by blocks.
with reused_requests as (   -- one row per request that reuses a block
    select
        request_key,
        sum(token_count) as reusable_tokens
    from reuse
    where is_reusable
    group by request_key
),
talks as (   -- one row per conversation
    select
        turns.cache_domain,
        turns.conversation,
        count(*) as requests,
        coalesce(sum(reused.reusable_tokens), 0) as reusable_tokens
    from continuations as turns
    left join reused_requests as reused on reused.request_key = turns.request_key
    group by turns.cache_domain, turns.conversation
),
placed as (   -- one row per conversation, the one that reuses most first
    select
        requests,
        reusable_tokens,
        row_number() over (
            order by reusable_tokens desc, requests desc, cache_domain, conversation
        ) as place
    from talks
)
select
    count(*)::bigint as conversations,                      -- count: conversations
    coalesce(sum(requests), 0)::bigint as requests,         -- requests: of all
    coalesce(sum(reusable_tokens), 0)::bigint as reusable_tokens,   -- tokens: that all would find in an unlimited cache
    max(requests) filter (place = 1)::bigint as largest_requests,   -- requests: of the conversation that reuses most; null without any
    max(reusable_tokens) filter (place = 1)::bigint as largest_reusable_tokens,   -- tokens: that it would find
    max(reusable_tokens) filter (place = 1) / nullif(sum(reusable_tokens), 0) as largest_share   -- ratio: largest_reusable_tokens / reusable_tokens; null without reuse
from placed
order by conversations
