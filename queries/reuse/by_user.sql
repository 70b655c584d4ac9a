-- name: reuse/by_user
-- question: Which end users could reuse how much of their prompts?
-- grain: one row per user of the top, and one for the rest
-- params: top BIGINT = 20
-- reads: requests, reuse
-- order: place
-- note: the largest by prompt tokens first. No rows where no request has a user.
-- note: users are numbered by their first request, from 1; keys are never shown.
with reused_requests as (   -- one row per request that has blocks
    select
        request_key,
        sum(block_count) as block_refs,
        sum(block_count) filter (is_reusable) as reusable_blocks,
        sum(token_count) filter (is_reusable) as reusable_tokens
    from reuse
    group by request_key
),
per_request as (   -- one row per ok headline request; reuse is null where nothing has blocks
    select
        served.request_key,
        served.user_key as group_key,
        served.prompt_tokens,
        case   -- a count above the prompt is wrong, so that it is unknown
            when served.cached_tokens <= served.prompt_tokens then served.cached_tokens
        end as cached_tokens,
        reused.block_refs,
        case when reused.block_refs > 0 then coalesce(reused.reusable_blocks, 0) end
            as reusable_blocks,
        case
            when exists (select 1 from reuse) and served.prompt_tokens is not null
            then coalesce(reused.reusable_tokens, 0)
        end as reusable_tokens
    from requests as served
    left join reused_requests as reused on reused.request_key = served.request_key
    where served.is_headline and served.status = 'ok'
),
grouped as (   -- one row per user, and one for requests without
    select
        group_key,
        min(request_key) as first_request_key,
        count(*) as requests,
        sum(block_refs) as block_refs,
        sum(reusable_blocks) as reusable_blocks,
        sum(prompt_tokens) as prompt_tokens,
        sum(reusable_tokens) as reusable_tokens,
        count(cached_tokens) as cached_known_requests,
        sum(cached_tokens) as cached_tokens,
        sum(prompt_tokens) filter (cached_tokens is not null) as cached_known_prompt_tokens
    from per_request
    group by group_key
),
placed as (   -- one row per user: its place by size, and its label
    select
        grouped.* exclude (group_key, first_request_key),
        case
            when group_key is not null
            then 'user ' || row_number() over (
                partition by group_key is null order by first_request_key
            )
        end as label,
        row_number() over (
            order by coalesce(prompt_tokens, 0) desc, requests desc, first_request_key
        ) as place
    from grouped
    where exists (select 1 from grouped where group_key is not null)
),
shown as (   -- one row per user of the top, and one for the rest
    select
        least(place, getvariable('top')::bigint + 1) as place,
        least(place, getvariable('top')::bigint + 1) > getvariable('top')::bigint as is_rest,
        case
            when least(place, getvariable('top')::bigint + 1) <= getvariable('top')::bigint
            then min(label)
            else 'others'
        end as label,
        count(*) as groups,
        sum(requests) as requests,
        sum(block_refs) as block_refs,
        sum(reusable_blocks) as reusable_blocks,
        sum(prompt_tokens) as prompt_tokens,
        sum(reusable_tokens) as reusable_tokens,
        sum(cached_known_requests) as cached_known_requests,
        sum(cached_tokens) as cached_tokens,
        sum(cached_known_prompt_tokens) as cached_known_prompt_tokens
    from placed
    group by least(place, getvariable('top')::bigint + 1)
)
select
    place::bigint as place,                                -- rank: by prompt tokens, from 1; the rest comes last
    label,                                                 -- name: the user by its number; others: the rest; null: the source does not say
    is_rest,                                               -- flag: the row of all that are not in the top
    groups::bigint as groups,                              -- count: users in this row
    requests::bigint as requests,                          -- requests: of these
    block_refs::bigint as block_refs,                      -- blocks: references in their prompts; null without blocks
    reusable_blocks::bigint as reusable_blocks,            -- blocks: of these, that an unlimited cache would hold; null without blocks
    prompt_tokens::bigint as prompt_tokens,                -- tokens: of these requests, where known
    reusable_tokens::bigint as reusable_tokens,            -- tokens: that an unlimited cache would hold; null without blocks
    reusable_tokens / nullif(prompt_tokens, 0) as reusable_ratio_tokens,   -- ratio: reusable_tokens / prompt_tokens
    prompt_tokens / nullif(sum(prompt_tokens) over (), 0) as prompt_tokens_share,          -- ratio: of the prompt tokens of all rows
    reusable_tokens / nullif(sum(reusable_tokens) over (), 0) as reusable_tokens_share,    -- ratio: of the reusable tokens of all rows
    cached_known_requests::bigint as cached_known_requests,   -- requests: whose cached tokens are known
    cached_tokens::bigint as cached_tokens,                -- tokens: served from a cache, where known; null when nowhere
    cached_tokens / nullif(cached_known_prompt_tokens, 0) as cached_ratio_tokens   -- ratio: cached_tokens / prompt_tokens of the requests where they are known
from shown
order by place
