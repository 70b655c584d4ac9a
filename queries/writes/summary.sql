-- name: writes/summary
-- question: How much would a cache without end write, how much would be read, and what never is?
-- grain: one row
-- params: kv_bytes_per_token DOUBLE = null
-- reads: reuse
-- order: requests (a single row)
-- note: each distinct block is written once, when it is first computed, and read at each later
-- note: use: the least that a cache that stores everything can write. Only prompts: blocks that
-- note: hold generated tokens come on top. A partial last block counts as it is.
-- note: bytes are null without kv_bytes_per_token; every figure is null without blocks.
with distinct_atoms as (   -- one row per distinct atom of a domain
    select
        max(block_count) as block_count,
        max(token_count) as token_count,
        count(*) filter (is_reusable) as reads,
        sum(token_count) filter (is_reusable) as read_tokens
    from reuse
    group by cache_domain, atom
),
totals as (   -- one row
    select
        (select count(*) from reuse where position = 0) as requests,
        sum(block_count) as written_blocks,
        sum(token_count) as written_tokens,
        sum(block_count * reads) as read_blocks,
        case when count(*) > 0 then coalesce(sum(read_tokens), 0) end as read_tokens,
        case when count(*) > 0 then coalesce(sum(block_count) filter (reads = 0), 0) end
            as never_read_blocks,
        case when count(*) > 0 then coalesce(sum(token_count) filter (reads = 0), 0) end
            as never_read_tokens
    from distinct_atoms
)
select
    requests::bigint as requests,                          -- requests: `ok` headline requests with blocks
    written_blocks::bigint as written_blocks,              -- blocks: distinct blocks, each written once
    written_tokens::bigint as written_tokens,              -- tokens: in these
    written_tokens * getvariable('kv_bytes_per_token')::double as written_bytes,   -- bytes: KV of these tokens
    read_blocks::bigint as read_blocks,                    -- blocks: reusable references: read from the cache
    read_tokens::bigint as read_tokens,                    -- tokens: in these
    read_tokens * getvariable('kv_bytes_per_token')::double as read_bytes,         -- bytes: KV of these tokens
    read_blocks / nullif(written_blocks, 0) as reads_per_written_block,            -- ratio: read_blocks / written_blocks
    read_tokens / nullif(written_tokens, 0) as reads_per_written_token,            -- ratio: read_tokens / written_tokens, the same for bytes
    never_read_blocks::bigint as never_read_blocks,        -- blocks: written and never read again in this trace
    never_read_tokens::bigint as never_read_tokens,        -- tokens: in these
    never_read_tokens * getvariable('kv_bytes_per_token')::double as never_read_bytes,   -- bytes: KV of these tokens
    never_read_blocks / nullif(written_blocks, 0) as never_read_ratio_blocks,      -- ratio: never_read_blocks / written_blocks
    never_read_tokens / nullif(written_tokens, 0) as never_read_ratio_tokens       -- ratio: never_read_tokens / written_tokens, the same for bytes
from totals
order by requests
