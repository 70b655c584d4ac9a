-- name: latency/prefill_by_reuse
-- question: Is the prefill of requests with much reuse shorter than that of others of their length?
-- grain: one row per prompt_bucket and reuse_class that holds a request
-- params: none
-- reads: requests, reuse
-- order: prompt_bucket, reuse_class
-- note: reused tokens are the cached ones where the source counts them, else those that an unlimited
-- note: cache would hold. Moves count where the engine loads after it has scheduled a request.
with reused_requests as (   -- one row per request that has blocks
    select
        request_key,
        coalesce(sum(token_count) filter (is_reusable), 0) as reusable_tokens
    from reuse
    group by request_key
),
counted as (   -- one row per request: its cached tokens, unless they exceed the prompt
    select
        * exclude (cached_tokens),
        case when cached_tokens <= prompt_tokens then cached_tokens end as cached_tokens
    from requests
),
worked as (   -- one row per ok headline request with known prompt, prefill and reused tokens
    select
        1::bigint << (length(bin(served.prompt_tokens)) - 1) as prompt_bucket,
        served.prompt_tokens,
        served.prefill_ns,
        served.cached_tokens,
        coalesce(served.cached_tokens, reused.reusable_tokens) as reused_tokens,
        case
            when coalesce(served.cached_tokens, reused.reusable_tokens)
                >= 0.5 * served.prompt_tokens then 'high'
            else 'low'
        end as reuse_class
    from counted as served
    left join reused_requests as reused on reused.request_key = served.request_key
    where served.is_headline
        and served.status = 'ok'
        and served.prompt_tokens > 0
        and served.prefill_ns is not null
        and coalesce(served.cached_tokens, reused.reusable_tokens) is not null
)
select
    prompt_bucket::bigint as prompt_bucket,                -- tokens: lower bound of the half-open range up to twice this
    reuse_class,                                           -- name: high: at least half of the prompt is reused; low: less
    count(*)::bigint as requests,                          -- requests: of this bucket and class
    count(cached_tokens)::bigint as cached_known_requests,   -- requests: of these, with cached tokens counted by the source
    sum(prompt_tokens) / count(*) as mean_prompt_tokens,   -- tokens: mean prompt
    sum(reused_tokens) / count(*) as mean_reusable_tokens,   -- tokens: mean cached tokens where counted, else reusable ones
    quantile_cont(prefill_ns, 0.5) / 1e6 as prefill_p50_ms,   -- ms: first scheduled to first token, median
    quantile_cont(prefill_ns, 0.9) / 1e6 as prefill_p90_ms    -- ms: the same, 90 %
from worked
group by prompt_bucket, reuse_class
order by prompt_bucket, reuse_class
