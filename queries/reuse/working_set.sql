-- name: reuse/working_set
-- question: How many blocks are in use at a time, and how many will be used again?
-- grain: one row per window_start_ns
-- params: window_ns BIGINT = null, kv_bytes_per_token DOUBLE = null, block_size_tokens BIGINT = null
-- reads: requests, reuse, continuations
-- order: window_start_ns
-- note: window_ns null: up to 24 equal windows of the span of arrivals, in whole steps of the
-- note: smallest step between arrivals. Windows that would be more than 2 000 are made longer.
-- note: no rows without a clock. Bytes are of whole blocks; block_size_tokens null: that of each
-- note: cache domain.
with domains as (   -- one row per cache domain with blocks
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
        ) as block_size_tokens
    from reuse
    group by cache_domain
),
touches as (   -- one row per atom of a request on a clock
    select
        facts.cache_domain,
        facts.atom,
        facts.block_count,
        served.arrived_at_ns
    from reuse as facts
    join requests as served on served.request_key = facts.request_key
    where served.clock != 'order' and served.arrived_at_ns is not null
),
arrivals as (   -- one row per distinct arrival, and how long after the one before
    select
        arrived_at_ns,
        arrived_at_ns - lag(arrived_at_ns) over (order by arrived_at_ns) as step_ns
    from touches
    group by arrived_at_ns
),
span as (   -- one row: where the windows start and how long they are
    select
        min(arrived_at_ns) as start_ns,
        max(arrived_at_ns) - min(arrived_at_ns) as span_ns,
        case
            when getvariable('window_ns')::bigint > 0
            then greatest(
                getvariable('window_ns')::bigint,
                (max(arrived_at_ns) - min(arrived_at_ns)) // 2000 + 1
            )
            else ((max(arrived_at_ns) - min(arrived_at_ns)) // 24 // coalesce(min(step_ns), 1) + 1)
                * coalesce(min(step_ns), 1)
        end as window_ns
    from arrivals
),
in_windows as (   -- one row per distinct atom and window that touches it
    select
        touches.cache_domain,
        touches.atom,
        (touches.arrived_at_ns - span.start_ns) // span.window_ns as number,
        max(touches.block_count) as block_count
    from touches, span
    group by touches.cache_domain, touches.atom, number
),
lives as (   -- one row per distinct atom: the windows of its first and of its last use
    select
        cache_domain,
        min(number) as first_number,
        max(number) as last_number,
        max(block_count) as block_count
    from in_windows
    group by cache_domain, atom
),
changes as (   -- one row per kind of change, block size and window: blocks and their tokens
    select
        in_windows.number,
        sum(in_windows.block_count) as touched_blocks,
        sum(in_windows.block_count * domains.block_size_tokens) as touched_tokens,
        0 as first_blocks,
        0 as alive_blocks,
        0 as alive_tokens
    from in_windows
    join domains on domains.cache_domain = in_windows.cache_domain
    group by in_windows.number
    union all
    select
        lives.first_number,
        0,
        0,
        sum(lives.block_count),
        sum(lives.block_count),
        sum(lives.block_count * domains.block_size_tokens)
    from lives
    join domains on domains.cache_domain = lives.cache_domain
    group by lives.first_number
    union all
    select
        lives.last_number + 1,
        0,
        0,
        0,
        -sum(lives.block_count),
        -sum(lives.block_count * domains.block_size_tokens)
    from lives
    join domains on domains.cache_domain = lives.cache_domain
    group by lives.last_number
),
windows as (   -- one row per window, those without requests too
    select
        numbers.number,
        span.start_ns + numbers.number * span.window_ns as window_start_ns,
        span.window_ns
    from span, range(0, 2001) as numbers (number)
    where numbers.number <= span.span_ns // span.window_ns
),
per_window as (   -- one row per window
    select
        windows.window_start_ns,
        windows.window_ns,
        coalesce(sum(changes.touched_blocks), 0) as touched_blocks,
        coalesce(sum(changes.touched_tokens), 0) as touched_tokens,
        coalesce(sum(changes.first_blocks), 0) as first_blocks,
        coalesce(sum(changes.alive_blocks), 0) as alive_blocks_change,
        coalesce(sum(changes.alive_tokens), 0) as alive_tokens_change
    from windows
    left join changes on changes.number = windows.number
    group by windows.window_start_ns, windows.window_ns
)
select
    window_start_ns::bigint as window_start_ns,            -- ns: start of the window, on the clock of the requests
    window_ns::bigint as window_ns,                        -- ns: length of the window
    touched_blocks::bigint as touched_blocks,              -- blocks: distinct blocks that requests of the window use
    touched_tokens * getvariable('kv_bytes_per_token')::double as touched_bytes,   -- bytes: KV of these, whole blocks; null without kv_bytes_per_token
    first_blocks::bigint as first_seen_blocks,             -- blocks: of these, used for the first time
    (sum(alive_blocks_change) over (order by window_start_ns))::bigint as alive_blocks,   -- blocks: distinct blocks used by the end of the window and in it or later
    sum(alive_tokens_change) over (order by window_start_ns) * getvariable('kv_bytes_per_token')::double as alive_bytes   -- bytes: KV of these, whole blocks; null without kv_bytes_per_token
from per_window
order by window_start_ns
