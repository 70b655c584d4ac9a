-- name: reuse/definitions
-- question: What does each definition of a hit rate give on this trace, and which tool prints it?
-- grain: one row per definition
-- params: block_size_tokens BIGINT = null, window_requests BIGINT = 1000
-- reads: requests, blocks, reuse, continuations
-- order: definition
-- note: a definition that this data cannot fill has null figures, never 0.
-- note: reusable: an unlimited cache would hold it. engine: the same, of full blocks, and at least
-- note: the last token of a prompt is computed; blocks are those of the trace, engines may have
-- note: smaller ones. Halves are by arrival in the cache domain; windows by arrival.
-- note: block_size_tokens null: that of each cache domain.
-- note: window_requests 1000: as many requests as vLLM's line counts.
with domains as (   -- one row per cache domain: tokens of a block, and where its second half starts
    select
        cache_domain,
        greatest(
            coalesce(
                getvariable('block_size_tokens')::bigint,
                (
                    select max(turns.block_size_tokens)
                    from continuations as turns
                    where turns.cache_domain = reuse.cache_domain
                )
            ),
            1
        ) as block_size_tokens,
        (max(arrival_rank) + 1) // 2 as warm_from
    from reuse
    group by cache_domain
),
partial_ends as (   -- one row per request whose last block is partial, and where it ends
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
        min(facts.cache_domain) as cache_domain,
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
recent as (   -- one row per request of the engine's window: the last ones to arrive
    select request_key
    from requests
    where is_headline and status = 'ok'
    order by arrived_at_ns desc nulls last, request_key desc
    limit getvariable('window_requests')::bigint
),
per_request as (   -- one row per ok headline request; engine_tokens: of whole blocks, never the last token
    select
        served.request_key,
        served.prompt_tokens,
        case   -- a count above the prompt is wrong, so that it is unknown
            when served.cached_tokens <= served.prompt_tokens then served.cached_tokens
        end as cached_tokens,
        reused.block_refs,
        reused.reusable_blocks,
        reused.partial_blocks,
        reused.reusable_partial_blocks,
        case
            when exists (select 1 from reuse) and served.prompt_tokens is not null
            then coalesce(reused.reusable_tokens, 0)
        end as reusable_tokens,
        case
            when exists (select 1 from reuse) and served.prompt_tokens is not null
            then coalesce(
                least(
                    reused.reusable_blocks - reused.reusable_partial_blocks,
                    greatest(served.prompt_tokens - 1, 0) // domains.block_size_tokens
                ) * domains.block_size_tokens,
                0
            )
        end as engine_tokens,
        reused.arrival_rank >= domains.warm_from as is_warm,
        recent.request_key is not null as is_recent
    from requests as served
    left join reused_requests as reused on reused.request_key = served.request_key
    left join domains on domains.cache_domain = reused.cache_domain
    left join recent on recent.request_key = served.request_key
    where served.is_headline and served.status = 'ok'
),
medians as (   -- one row: the median prompt
    select quantile_cont(prompt_tokens, 0.5) as prompt_tokens
    from per_request
),
totals as (   -- one row: every sum that a definition needs; null where nothing is known
    select
        count(*) as requests,
        count(*) filter (is_recent) as recent_requests,
        count(cached_tokens) as cached_known_requests,
        sum(prompt_tokens) as prompt_tokens,
        sum(reusable_tokens) as reusable_tokens,
        sum(engine_tokens) as engine_tokens,
        sum(engine_tokens) filter (is_recent) as recent_engine_tokens,
        sum(prompt_tokens) filter (is_recent) as recent_prompt_tokens,
        sum(reusable_tokens) filter (is_warm) as warm_reusable_tokens,
        sum(prompt_tokens) filter (is_warm) as warm_prompt_tokens,
        sum(reusable_tokens) filter (not is_warm) as cold_reusable_tokens,
        sum(prompt_tokens) filter (not is_warm) as cold_prompt_tokens,
        sum(reusable_tokens) filter (prompt_tokens <= (select prompt_tokens from medians))
            as short_reusable_tokens,
        sum(prompt_tokens) filter (prompt_tokens <= (select prompt_tokens from medians))
            as short_prompt_tokens,
        fsum(reusable_tokens / nullif(prompt_tokens, 0) order by request_key)
            as token_ratios_sum,
        count(*) filter (prompt_tokens > 0) as prompts,
        sum(block_refs) as block_refs,
        sum(reusable_blocks) as reusable_blocks,
        sum(partial_blocks) as partial_blocks,
        sum(reusable_partial_blocks) as reusable_partial_blocks,
        fsum(reusable_blocks / nullif(block_refs, 0) order by request_key) as block_ratios_sum,
        count(block_refs) as requests_with_blocks,
        case when count(block_refs) > 0 then count(*) filter (reusable_blocks > 0) end
            as requests_with_reuse,
        count(*) filter (reusable_blocks = 1) as requests_with_one_block,
        sum(cached_tokens) as cached_tokens,
        sum(prompt_tokens) filter (cached_tokens is not null) as cached_prompt_tokens,
        sum(cached_tokens) filter (is_recent) as recent_cached_tokens,
        sum(prompt_tokens) filter (is_recent and cached_tokens is not null)
            as recent_cached_prompt_tokens
    from per_request
),
definitions as (   -- one row per definition
    select
        'reusable_tokens' as definition,
        reusable_tokens::double as numerator,
        prompt_tokens::double as denominator,
        'tokens' as unit,
        'reusable tokens / prompt tokens' as formula,
        'kvtrace headline; no engine (an unlimited cache)' as printed_by
    from totals
    union all
    select
        'reusable_blocks',
        reusable_blocks::double,
        block_refs::double,
        'blocks',
        'reusable blocks / blocks, a partial last block counts as one',
        'trace simulators that count block ids, partial last blocks included'
    from totals
    union all
    select
        'reusable_full_blocks',
        (reusable_blocks - reusable_partial_blocks)::double,
        (block_refs - partial_blocks)::double,
        'blocks',
        'reusable full blocks / full blocks',
        'the ceiling of engines that count whole blocks (vLLM 0.7 to 0.8.5, TensorRT-LLM)'
    from totals
    union all
    select
        'reusable_requests_mean_tokens',
        token_ratios_sum::double,
        prompts::double,
        'requests',
        'mean over requests of reusable tokens / prompt tokens',
        'tools that average per-request ratios; short prompts weigh as much as long ones'
    from totals
    union all
    select
        'reusable_requests_mean_blocks',
        block_ratios_sum::double,
        requests_with_blocks::double,
        'requests',
        'mean over requests of reusable blocks / blocks',
        'tools that average per-request block ratios'
    from totals
    union all
    select
        'requests_with_reuse',
        requests_with_reuse::double,
        requests::double,
        'requests',
        'requests with a reusable block / requests',
        'tools that count a request as a hit when its first block hits'
    from totals
    union all
    select
        'reusable_tokens_warm',
        warm_reusable_tokens::double,
        warm_prompt_tokens::double,
        'tokens',
        'reusable tokens / prompt tokens, of the second half of the requests',
        'simulators that skip the first half of the requests as warm-up'
    from totals
    union all
    select
        'engine_tokens',
        engine_tokens::double,
        prompt_tokens::double,
        'tokens',
        'tokens of reusable full blocks before the last token / prompt tokens',
        'the ceiling of counters since start: vLLM >= 0.9.1 prefix_cache_hits / prefix_cache_queries, SGLang cached / (cached + new) tokens'
    from totals
    union all
    select
        'engine_tokens_window',
        recent_engine_tokens::double,
        recent_prompt_tokens::double,
        'tokens',
        'the same, of the last window_requests requests',
        'the ceiling of vLLM >= 0.9.1 `Prefix cache hit rate` in the log: the last 1000 requests'
    from totals
    union all
    select
        'cached_tokens_observed',
        cached_tokens::double,
        cached_prompt_tokens::double,
        'tokens',
        'cached tokens / prompt tokens, where both are known',
        'what the deployed cache did: `cached_tokens` of usage records (OpenAI form), SGLang `#cached-token`'
    from totals
    union all
    select
        'cached_tokens_observed_window',
        recent_cached_tokens::double,
        recent_cached_prompt_tokens::double,
        'tokens',
        'the same, of the last window_requests requests',
        'what vLLM >= 0.9.1 prints at the end of this log, if it served these requests alone'
    from totals
)
select
    definition,                                   -- name: what counts as a hit, over what
    numerator,                                    -- `unit`: hits (a sum of ratios for means)
    case when numerator is not null then denominator end as denominator,   -- `unit`: what could have been a hit (requests for means)
    numerator / nullif(denominator, 0) as ratio,  -- ratio: numerator / denominator, null where this data cannot say
    unit,                                         -- name: tokens | blocks | requests
    formula,                                      -- text: what is divided by what
    printed_by                                    -- text: who prints this definition
from definitions
order by definition
