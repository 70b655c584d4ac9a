-- name: reuse/by_prompt_bucket
-- question: How much of each prompt-length bucket could be reused, and how much did the engine reuse?
-- grain: one row per prompt_bucket that holds a request
-- params: none
-- reads: requests, reuse
-- order: prompt_bucket
-- note: requests without a known prompt length are in no bucket.
with reused_requests as (   -- one row per request that has blocks
    select
        request_key,
        sum(token_count) filter (is_reusable) as reusable_tokens
    from reuse
    group by request_key
),
per_request as (   -- one row per ok headline request with a known prompt
    select
        case
            when served.prompt_tokens > 0
            then 1::bigint << (length(bin(served.prompt_tokens)) - 1)
            else 0
        end as prompt_bucket,
        served.prompt_tokens,
        case   -- a count above the prompt is wrong, so that it is unknown
            when served.cached_tokens <= served.prompt_tokens then served.cached_tokens
        end as cached_tokens,
        case
            when exists (select 1 from reuse) then coalesce(reused.reusable_tokens, 0)
        end as reusable_tokens
    from requests as served
    left join reused_requests as reused on reused.request_key = served.request_key
    where served.is_headline and served.status = 'ok' and served.prompt_tokens is not null
)
select
    prompt_bucket::bigint as prompt_bucket,                -- tokens: lower bound of the half-open range up to twice this; 0 holds empty prompts
    count(*)::bigint as requests,                          -- requests: in the bucket
    sum(prompt_tokens)::bigint as prompt_tokens,           -- tokens: of these
    sum(reusable_tokens)::bigint as reusable_tokens,       -- tokens: that an unlimited cache would hold; null without blocks
    sum(reusable_tokens) / nullif(sum(prompt_tokens), 0) as reusable_ratio_tokens,   -- ratio: reusable_tokens / prompt_tokens
    count(cached_tokens)::bigint as cached_known_requests,   -- requests: whose cached tokens are known
    sum(cached_tokens)::bigint as cached_tokens,           -- tokens: served from a cache, where known; null when nowhere
    sum(cached_tokens) / nullif(sum(prompt_tokens) filter (cached_tokens is not null), 0) as cached_ratio_tokens   -- ratio: cached_tokens / prompt_tokens of the requests where they are known
from per_request
group by prompt_bucket
order by prompt_bucket
