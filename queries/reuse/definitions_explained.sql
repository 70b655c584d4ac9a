-- name: reuse/definitions_explained
-- question: Why do two tools print different hit rates for the same file?
-- grain: one row per pair of definitions that differ
-- params: block_size_tokens BIGINT = null, window_requests BIGINT = 1000, least_difference DOUBLE = 0.0005
-- reads: requests, blocks, reuse, continuations
-- order: definition, other_definition
-- note: the ratios are those of reuse/definitions. Pairs that differ by less than least_difference
-- note: are not shown: 0.0005 is what one decimal of a percentage can show.
-- note: the cause figures are measured on this trace: how far the cause can reach.
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
pairs as (   -- one row per pair of definitions
    select
        'reusable_blocks' as definition,
        'reusable_tokens' as other_definition,
        reusable_blocks / nullif(block_refs, 0) as ratio,
        reusable_tokens / nullif(prompt_tokens, 0) as other_ratio,
        'partial_blocks' as cause,
        partial_blocks::double as cause_numerator,
        block_refs::double as cause_denominator,
        'blocks' as cause_unit,
        'a partial last block counts as a whole one: so many of the blocks are partial' as because
    from totals
    union all
    select
        'reusable_full_blocks',
        'reusable_blocks',
        (reusable_blocks - reusable_partial_blocks) / nullif((block_refs - partial_blocks), 0),
        reusable_blocks / nullif(block_refs, 0),
        'partial_blocks',
        reusable_partial_blocks::double,
        partial_blocks::double,
        'blocks',
        'partial last blocks are left out: so many of them are reusable'
    from totals
    union all
    select
        'reusable_requests_mean_tokens',
        'reusable_tokens',
        token_ratios_sum / nullif(prompts, 0),
        reusable_tokens / nullif(prompt_tokens, 0),
        'short_prompts',
        short_reusable_tokens::double,
        short_prompt_tokens::double,
        'tokens',
        'each request weighs the same: so much of the prompts up to the median length is reusable'
    from totals
    union all
    select
        'reusable_requests_mean_blocks',
        'reusable_requests_mean_tokens',
        block_ratios_sum / nullif(requests_with_blocks, 0),
        token_ratios_sum / nullif(prompts, 0),
        'partial_blocks',
        partial_blocks::double,
        block_refs::double,
        'blocks',
        'a partial last block counts as a whole one, and prompts without a block count nowhere: so many of the blocks are partial'
    from totals
    union all
    select
        'requests_with_reuse',
        'reusable_tokens',
        requests_with_reuse / nullif(requests, 0),
        reusable_tokens / nullif(prompt_tokens, 0),
        'first_block',
        requests_with_one_block::double,
        requests_with_reuse::double,
        'requests',
        'one block makes a request a hit: so many of these requests have one reusable block only'
    from totals
    union all
    select
        'reusable_tokens_warm',
        'reusable_tokens',
        warm_reusable_tokens / nullif(warm_prompt_tokens, 0),
        reusable_tokens / nullif(prompt_tokens, 0),
        'warm_up',
        cold_reusable_tokens::double,
        cold_prompt_tokens::double,
        'tokens',
        'the first half is left out as warm-up: so much of it is reusable'
    from totals
    union all
    select
        'engine_tokens',
        'reusable_tokens',
        engine_tokens / nullif(prompt_tokens, 0),
        reusable_tokens / nullif(prompt_tokens, 0),
        'whole_blocks',
        (reusable_tokens - engine_tokens)::double,
        reusable_tokens::double,
        'tokens',
        'engines hit whole blocks and compute the last token: so many of the reusable tokens are lost'
    from totals
    union all
    select
        'engine_tokens_window',
        'engine_tokens',
        recent_engine_tokens / nullif(recent_prompt_tokens, 0),
        engine_tokens / nullif(prompt_tokens, 0),
        'window',
        recent_requests::double,
        requests::double,
        'requests',
        'only the last requests count: so many of all'
    from totals
    union all
    select
        'cached_tokens_observed',
        'engine_tokens',
        cached_tokens / nullif(cached_prompt_tokens, 0),
        engine_tokens / nullif(prompt_tokens, 0),
        'deployed_cache',
        cached_known_requests::double,
        requests::double,
        'requests',
        'the deployed cache is finite, has blocks of its own size, and may have served more than this log: so many requests say what was cached'
    from totals
    union all
    select
        'cached_tokens_observed_window',
        'cached_tokens_observed',
        recent_cached_tokens / nullif(recent_cached_prompt_tokens, 0),
        cached_tokens / nullif(cached_prompt_tokens, 0),
        'window',
        recent_requests::double,
        requests::double,
        'requests',
        'only the last requests count: so many of all'
    from totals
)
select
    definition,                                   -- name: of reuse/definitions
    other_definition,                             -- name: of reuse/definitions
    ratio,                                        -- ratio: by the definition
    other_ratio,                                  -- ratio: by the other definition
    ratio - other_ratio as difference,            -- ratio: ratio - other_ratio; × 100 it is percentage points
    cause,                                        -- name: partial_blocks | short_prompts | first_block | warm_up | whole_blocks | window | deployed_cache
    cause_numerator,                              -- `cause_unit`: what the cause concerns
    cause_denominator,                            -- `cause_unit`: of so much
    cause_numerator / nullif(cause_denominator, 0) as cause_ratio,   -- ratio: cause_numerator / cause_denominator
    cause_unit,                                   -- name: tokens | blocks | requests
    because                                       -- text: why they differ; the figure that it names is the cause ratio
from pairs
where abs(ratio - other_ratio) >= getvariable('least_difference')::double
order by definition, other_definition
