-- name: reuse/definitions
-- question: What does each definition of a hit rate give on this trace, and which tool prints it?
-- grain: one row per definition
-- params: none
-- reads: requests, blocks, reuse
-- order: definition
-- note: a definition that this data cannot fill has null figures, never 0.
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
        min(facts.arrival_rank) as arrival_rank,
        sum(facts.block_count) as block_refs,
        coalesce(sum(facts.block_count) filter (facts.is_reusable), 0) as reusable_blocks,
        coalesce(sum(facts.token_count) filter (facts.is_reusable), 0) as reusable_tokens,
        count(ends.end_position) as partial_blocks,
        count(ends.end_position) filter (facts.is_reusable) as reusable_partial_blocks
    from reuse as facts
    left join partial_ends as ends
        on ends.request_key = facts.request_key
        and ends.end_position = facts.position + facts.block_count
    group by facts.request_key
),
per_request as (   -- one row per ok headline request
    select
        served.request_key,
        served.prompt_tokens,
        case   -- a count above the prompt is wrong, so that it is unknown
            when served.cached_tokens <= served.prompt_tokens then served.cached_tokens
        end as cached_tokens,
        reused.* exclude (request_key, reusable_tokens),
        case
            when exists (select 1 from reuse) then coalesce(reused.reusable_tokens, 0)
        end as reusable_tokens
    from requests as served
    left join reused_requests as reused on reused.request_key = served.request_key
    where served.is_headline and served.status = 'ok'
),
halves as (   -- one row: where the second half of the arrivals starts
    select (max(arrival_rank) + 1) // 2 as warm_from
    from reused_requests
),
definitions as (   -- one row per definition
    select
        'reusable_tokens' as definition,
        (sum(reusable_tokens) filter (prompt_tokens is not null))::double as numerator,
        sum(prompt_tokens)::double as denominator,
        'tokens' as unit,
        'kvtrace headline; no engine (an unlimited cache)' as printed_by
    from per_request
    union all
    select
        'reusable_blocks',
        sum(reusable_blocks)::double,
        sum(block_refs)::double,
        'blocks',
        'trace simulators that count block ids, partial last blocks included'
    from per_request
    union all
    select
        'reusable_full_blocks',
        sum(reusable_blocks - reusable_partial_blocks)::double,
        sum(block_refs - partial_blocks)::double,
        'blocks',
        'the ceiling of engines that cache whole blocks only (vLLM, TensorRT-LLM)'
    from per_request
    union all
    select
        'reusable_requests_mean_tokens',
        fsum(reusable_tokens / nullif(prompt_tokens, 0) order by request_key),
        (count(*) filter (prompt_tokens > 0))::double,
        'requests',
        'tools that average per-request ratios; short prompts weigh as much as long ones'
    from per_request
    union all
    select
        'reusable_requests_mean_blocks',
        fsum(reusable_blocks / nullif(block_refs, 0) order by request_key),
        (count(*) filter (block_refs > 0))::double,
        'requests',
        'tools that average per-request block ratios'
    from per_request
    union all
    select
        'requests_with_reuse',
        case
            when count(block_refs) > 0 then count(*) filter (reusable_blocks > 0)
        end::double,
        count(*)::double,
        'requests',
        'tools that count a request as a hit when its first block hits'
    from per_request
    union all
    select
        'reusable_tokens_warm',
        (sum(reusable_tokens) filter (prompt_tokens is not null))::double,
        sum(prompt_tokens)::double,
        'tokens',
        'simulators that skip the first half of the requests as warm-up'
    from per_request, halves
    where per_request.arrival_rank >= halves.warm_from
    union all
    select
        'cached_tokens_observed',
        sum(cached_tokens)::double,
        (sum(prompt_tokens) filter (cached_tokens is not null))::double,
        'tokens',
        'what the deployed cache did: `cached_tokens` of usage records (OpenAI form), SGLang `#cached-token`; vLLM >= 0.9.1 prints it over a window of requests'
    from per_request
    where prompt_tokens is not null
)
select
    definition,                                   -- name: what counts as a hit, over what
    numerator,                                    -- `unit`: hits (a sum of ratios for means)
    case when numerator is not null then denominator end as denominator,   -- `unit`: what could have been a hit (requests for means)
    numerator / nullif(denominator, 0) as ratio,  -- ratio: numerator / denominator, null where this data cannot say
    unit,                                         -- name: tokens | blocks | requests
    printed_by                                    -- text: who prints this definition
from definitions
order by definition
