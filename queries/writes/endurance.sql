-- name: writes/endurance
-- question: How much would an SSD tier write a day, and how long would the drives last?
-- grain: one row per cache
-- params: kv_bytes_per_token DOUBLE = null, block_size_tokens BIGINT = null, capacity_bytes DOUBLE = null, endurance_bytes DOUBLE = null, drive_writes_per_day DOUBLE = null, warranty_years DOUBLE = 5.0, write_amplification DOUBLE = 1.0
-- reads: requests, reuse, continuations
-- order: cache
-- note: unlimited writes each distinct block once, second_use only those that a second request uses,
-- note: lru as many as a cache of capacity_bytes misses (each miss is stored; none without
-- note: capacity_bytes and kv_bytes_per_token). Tokens of generation come on top.
-- note: the span of the trace stands for every day: an hour of peak load overstates the day.
-- note: endurance_bytes: what the drives may write in all (TBW); else capacity_bytes ×
-- note: drive_writes_per_day × 365 × warranty_years. A figure whose parameter is missing is null.
-- note: no rows without blocks; block_size_tokens null: that of each cache domain; lru counts whole blocks.
with distinct_atoms as (   -- one row per distinct atom of a domain
    select
        cache_domain,
        max(block_count) as block_count,
        max(token_count) as token_count,
        bool_or(previous_request_key is not null) as is_used_again
    from reuse
    group by cache_domain, atom
),
block_sizes as (   -- one row per cache domain: tokens of a block
    select
        cache_domain,
        greatest(
            coalesce(
                getvariable('block_size_tokens')::bigint,
                (
                    select max(turns.block_size_tokens)
                    from continuations as turns
                    where turns.cache_domain = distinct_atoms.cache_domain
                )
            ),
            1
        ) as block_size_tokens
    from distinct_atoms
    group by cache_domain
),
domains as (   -- one row per cache domain: tokens of a block, and blocks that fit into the capacity
    select
        cache_domain,
        block_size_tokens,
        floor(
            getvariable('capacity_bytes')::double
            / getvariable('kv_bytes_per_token')::double
            / block_size_tokens
        )::bigint as capacity_blocks
    from block_sizes
),
misses as (   -- one row: blocks and tokens of blocks that an LRU cache of the capacity misses
    select
        sum(facts.block_count - facts.hit_blocks) as missed_blocks,
        sum((facts.block_count - facts.hit_blocks) * facts.block_size_tokens) as missed_tokens
    from (
        select
            facts.block_count,
            case
                when facts.is_reusable
                then greatest(
                    0,
                    least(
                        facts.block_count, domains.capacity_blocks - facts.distance_blocks + 1
                    )
                )
                else 0
            end as hit_blocks,
            domains.block_size_tokens
        from reuse as facts
        join domains on domains.cache_domain = facts.cache_domain
        where domains.capacity_blocks is not null
    ) as facts
),
span as (   -- one row: seconds from the first to the last arrival of requests with blocks
    select nullif(max(served.arrived_at_ns) - min(served.arrived_at_ns), 0) / 1e9 as span_s
    from requests as served
    where served.clock != 'order'
        and served.request_key in (select request_key from reuse)
),
caches as (   -- one row per cache: what it writes
    select
        'unlimited' as cache,
        sum(block_count) as written_blocks,
        sum(token_count) as written_tokens
    from distinct_atoms
    union all
    select
        'unlimited_second_use',
        coalesce(sum(block_count) filter (is_used_again), 0),
        coalesce(sum(token_count) filter (is_used_again), 0)
    from distinct_atoms
    union all
    select
        'lru',
        missed_blocks,
        missed_tokens
    from misses
    where missed_blocks is not null
),
per_day as (   -- one row per cache: bytes a day to the drives, and what they may write
    select
        caches.cache,
        caches.written_blocks,
        caches.written_tokens,
        caches.written_tokens * getvariable('kv_bytes_per_token')::double as written_bytes,
        span.span_s,
        caches.written_tokens * getvariable('kv_bytes_per_token')::double
            * getvariable('write_amplification')::double * 86400 / span.span_s
            as drive_bytes_per_day,
        coalesce(
            getvariable('endurance_bytes')::double,
            getvariable('capacity_bytes')::double
                * getvariable('drive_writes_per_day')::double
                * 365
                * getvariable('warranty_years')::double
        ) as endurance_bytes
    from caches, span
)
select
    cache,                                                 -- name: lru (of capacity_bytes) | unlimited | unlimited_second_use
    written_blocks::bigint as written_blocks,              -- blocks: stored in the span
    written_tokens::bigint as written_tokens,              -- tokens: in these
    written_bytes,                                         -- bytes: KV of these; null without kv_bytes_per_token
    span_s,                                                -- s: first to last arrival; null without a clock
    drive_bytes_per_day,                                   -- bytes/day: written_bytes × write_amplification × 86 400 / span_s
    drive_bytes_per_day / nullif(getvariable('capacity_bytes')::double, 0) as needed_drive_writes_per_day,   -- 1/day: drive_bytes_per_day / capacity_bytes
    endurance_bytes,                                       -- bytes: that the drives may write in all
    endurance_bytes / nullif(drive_bytes_per_day, 0) / 365 as life_years   -- years: endurance_bytes / drive_bytes_per_day / 365
from per_day
where written_blocks is not null and exists (select 1 from reuse)
order by cache
