-- name: reuse/cold_and_warm
-- question: How much is missed since nothing was seen yet, and what would a restart cost?
-- grain: one row per part of the trace
-- params: none
-- reads: reuse
-- order: part
-- note: halves by the arrival of the requests in their cache domain. An unlimited cache.
-- note: second_half_cold: the second half again, with a cache that is empty at its start; less
-- note: than second_half by what a restart in the middle of the trace loses.
-- note: no rows without blocks.
with domains as (   -- one row per cache domain: where the second half of its arrivals starts
    select
        cache_domain,
        (max(arrival_rank) + 1) // 2 as warm_from
    from reuse
    group by cache_domain
),
ranks as (   -- one row per request that has blocks
    select
        facts.request_key,
        min(facts.arrival_rank) as arrival_rank,
        bool_and(facts.arrival_rank >= domains.warm_from) as is_warm
    from reuse as facts
    join domains on domains.cache_domain = facts.cache_domain
    group by facts.request_key
),
cold_runs as (   -- one row per request of the second half: where the blocks end that this half saw
    select
        facts.request_key,
        min(facts.position) filter (holders.request_key is null) as end_position
    from reuse as facts
    join ranks on ranks.request_key = facts.request_key and ranks.is_warm
    left join ranks as holders
        on holders.request_key = facts.previous_request_key and holders.is_warm
    group by facts.request_key
),
atoms as (   -- one row per atom of a request
    select
        ranks.is_warm,
        facts.request_key,
        facts.position = 0 as is_first,
        facts.block_count,
        facts.token_count,
        facts.request_key = facts.first_request_key as is_first_seen,
        facts.is_reusable,
        ranks.is_warm
            and facts.is_reusable
            and facts.position < coalesce(cold_runs.end_position, facts.position + 1)
            as is_reusable_cold
    from reuse as facts
    join ranks on ranks.request_key = facts.request_key
    left join cold_runs on cold_runs.request_key = facts.request_key
),
halves as (   -- one row per half with requests
    select
        is_warm,
        count(*) filter (is_first) as requests,
        sum(block_count) as block_refs,
        sum(token_count) as tokens,
        coalesce(sum(block_count) filter (is_first_seen), 0) as first_seen_blocks,
        coalesce(sum(token_count) filter (is_first_seen), 0) as first_seen_tokens,
        coalesce(sum(block_count) filter (is_reusable), 0) as reusable_blocks,
        coalesce(sum(token_count) filter (is_reusable), 0) as reusable_tokens,
        coalesce(sum(block_count) filter (is_reusable_cold), 0) as reusable_cold_blocks,
        coalesce(sum(token_count) filter (is_reusable_cold), 0) as reusable_cold_tokens
    from atoms
    group by is_warm
),
parts as (   -- one row per part
    select
        'all' as part,
        sum(requests) as requests,
        sum(block_refs) as block_refs,
        sum(tokens) as tokens,
        sum(first_seen_blocks) as first_seen_blocks,
        sum(first_seen_tokens) as first_seen_tokens,
        sum(reusable_blocks) as reusable_blocks,
        sum(reusable_tokens) as reusable_tokens
    from halves
    union all
    select
        case when is_warm then 'second_half' else 'first_half' end,
        requests,
        block_refs,
        tokens,
        first_seen_blocks,
        first_seen_tokens,
        reusable_blocks,
        reusable_tokens
    from halves
    union all
    select
        'second_half_cold',
        requests,
        block_refs,
        tokens,
        null,
        null,
        reusable_cold_blocks,
        reusable_cold_tokens
    from halves
    where is_warm
)
select
    part,                                                  -- name: all | first_half | second_half | second_half_cold
    requests::bigint as requests,                          -- requests: of the part, with blocks
    block_refs::bigint as block_refs,                      -- blocks: references of these
    first_seen_blocks::bigint as first_seen_blocks,        -- blocks: of these, never seen before: compulsory misses of any cache; null for second_half_cold
    reusable_blocks::bigint as reusable_blocks,            -- blocks: that an earlier request held, with all before them
    first_seen_blocks / nullif(block_refs, 0) as first_seen_ratio_blocks,   -- ratio: first_seen_blocks / block_refs
    reusable_blocks / nullif(block_refs, 0) as reusable_ratio_blocks,       -- ratio: reusable_blocks / block_refs
    tokens::bigint as block_tokens,                        -- tokens: in these references
    first_seen_tokens::bigint as first_seen_tokens,        -- tokens: in blocks never seen before; null for second_half_cold
    reusable_tokens::bigint as reusable_tokens,            -- tokens: in reusable blocks
    first_seen_tokens / nullif(tokens, 0) as first_seen_ratio_tokens,   -- ratio: first_seen_tokens / block_tokens
    reusable_tokens / nullif(tokens, 0) as reusable_ratio_tokens        -- ratio: reusable_tokens / block_tokens
from parts
where block_refs is not null
order by part
