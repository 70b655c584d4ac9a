-- name: writes/second_use
-- question: What does it save and lose to store a block only when it is used a second time?
-- grain: one row per admission
-- params: kv_bytes_per_token DOUBLE = null
-- reads: requests, reuse
-- order: admission
-- note: an unlimited cache. first_use stores every block when it is first computed; second_use
-- note: remembers its key then, and stores it when a second request uses it, so that the third is
-- note: the first hit. A request hits its leading run of stored blocks.
-- note: no rows without blocks; bytes are null without kv_bytes_per_token.
with runs as (   -- one row per request: where its first block stands that fewer than two requests held before
    select
        request_key,
        min(position) filter (
            previous_request_key is null or previous_request_key = first_request_key
        ) as end_position
    from reuse
    group by request_key
),
hits as (   -- one row: reusable references, and those that hit with either admission
    select
        sum(facts.block_count) as block_refs,
        coalesce(sum(facts.block_count) filter (facts.is_reusable), 0) as first_use_blocks,
        coalesce(
            sum(facts.token_count) filter (facts.is_reusable and served.prompt_tokens is not null),
            0
        ) as first_use_tokens,
        coalesce(
            sum(facts.block_count) filter (
                facts.is_reusable
                and facts.position < coalesce(runs.end_position, facts.position + 1)
            ),
            0
        ) as second_use_blocks,
        coalesce(
            sum(facts.token_count) filter (
                facts.is_reusable
                and served.prompt_tokens is not null
                and facts.position < coalesce(runs.end_position, facts.position + 1)
            ),
            0
        ) as second_use_tokens
    from reuse as facts
    join runs on runs.request_key = facts.request_key
    join requests as served on served.request_key = facts.request_key
),
distinct_atoms as (   -- one row per distinct atom of a domain
    select
        max(block_count) as block_count,
        max(token_count) as token_count,
        bool_or(previous_request_key is not null) as is_used_again
    from reuse
    group by cache_domain, atom
),
written as (   -- one row: what either admission stores
    select
        sum(block_count) as first_use_blocks,
        sum(token_count) as first_use_tokens,
        coalesce(sum(block_count) filter (is_used_again), 0) as second_use_blocks,
        coalesce(sum(token_count) filter (is_used_again), 0) as second_use_tokens
    from distinct_atoms
),
admissions as (   -- one row per admission
    select
        'first_use' as admission,
        written.first_use_blocks as written_blocks,
        written.first_use_tokens as written_tokens,
        hits.first_use_blocks as hit_blocks,
        hits.first_use_tokens as hit_tokens
    from written, hits
    union all
    select
        'second_use',
        written.second_use_blocks,
        written.second_use_tokens,
        hits.second_use_blocks,
        hits.second_use_tokens
    from written, hits
),
totals as (   -- one row: the denominators
    select
        hits.block_refs,
        hits.first_use_blocks,
        hits.first_use_tokens,
        written.first_use_blocks as written_blocks,
        (
            select sum(prompt_tokens) from requests where is_headline and status = 'ok'
        ) as prompt_tokens
    from hits, written
)
select
    admissions.admission,                                  -- name: first_use | second_use
    admissions.written_blocks::bigint as written_blocks,   -- blocks: stored, each once
    admissions.written_tokens::bigint as written_tokens,   -- tokens: in these
    admissions.written_tokens * getvariable('kv_bytes_per_token')::double as written_bytes,   -- bytes: KV of these tokens
    admissions.written_blocks / nullif(totals.written_blocks, 0) as written_share_blocks,     -- ratio: of what first_use stores
    admissions.hit_blocks::bigint as hit_blocks,           -- blocks: references served from the cache
    admissions.hit_tokens::bigint as hit_tokens,           -- tokens: prompt tokens served from it
    admissions.hit_tokens * getvariable('kv_bytes_per_token')::double as read_bytes,          -- bytes: KV of these tokens
    admissions.hit_blocks / nullif(totals.first_use_blocks, 0) as hit_share_blocks,           -- ratio: of the hits of first_use
    admissions.hit_blocks / nullif(totals.block_refs, 0) as hit_ratio_blocks,                 -- ratio: hit_blocks / block references
    admissions.hit_tokens / nullif(totals.prompt_tokens, 0) as hit_ratio_tokens,              -- ratio: hit_tokens / prompt tokens of all requests
    admissions.hit_blocks / nullif(admissions.written_blocks, 0) as hits_per_written_block    -- ratio: hit_blocks / written_blocks
from admissions, totals
where totals.block_refs > 0
order by admissions.admission
