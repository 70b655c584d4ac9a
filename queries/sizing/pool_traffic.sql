-- name: sizing/pool_traffic
-- question: How many bytes a second would a pool read and take in, and how many ports does each of its nodes need?
-- grain: one row per direction
-- params: held_bytes DOUBLE = null, pool_bytes DOUBLE = null, kv_bytes_per_token DOUBLE = null, block_size_tokens BIGINT = null, pool_nodes DOUBLE = null, port_bytes_per_s DOUBLE = null, link_limit DOUBLE = 0.7, bucket_s BIGINT = 60
-- reads: requests, reuse, continuations
-- order: place
-- note: read: tokens that one LRU cache of held_bytes (HBM and idle DRAM of all instances) misses and one of held_bytes + pool_bytes holds. written: tokens that neither holds, each stored as it is computed; tokens of generation come on top.
-- note: bytes count in the minute (bucket_s) in which the request arrives; minutes without requests count as 0 and are not listed, so that a log with an instant far off takes no longer. Bursts within a minute are smoothed: the replay has them.
-- note: ports are full duplex, so that a node needs what its busier direction needs; both directions share its DRAM.
-- note: no rows without kv_bytes_per_token, pool_bytes or a clock.
with domains as (   -- one row per cache domain with blocks: tokens of a block
    select
        cache_domain,
        greatest(
            coalesce(getvariable('block_size_tokens')::bigint, max(block_size_tokens)), 1
        ) as block_size_tokens
    from continuations
    group by cache_domain
),
sizes as (   -- one row: capacities in tokens, without and with the pool
    select
        above_tokens,
        above_tokens + floor(
            getvariable('pool_bytes')::double / getvariable('kv_bytes_per_token')::double
        )::bigint as all_tokens
    from (
        select floor(
            coalesce(getvariable('held_bytes')::double, 0)
            / getvariable('kv_bytes_per_token')::double
        )::bigint as above_tokens
    ) as held
),
atoms as (   -- one row per atom of a request with an arrival: tokens from the pool, and into it
    select
        served.arrived_at_ns,
        least(
            greatest(sizes.all_tokens - ramps.from_tokens, 0), ramps.token_count
        ) - least(
            greatest(sizes.above_tokens - ramps.from_tokens, 0), ramps.token_count
        ) as read_tokens,
        ramps.token_count - least(
            greatest(sizes.all_tokens - ramps.from_tokens, 0), ramps.token_count
        ) as written_tokens
    from (
        select
            facts.request_key,
            case
                when facts.is_reusable
                then (facts.distance_blocks - 1) * domains.block_size_tokens
                else 9000000000000000
            end as from_tokens,
            least(facts.token_count, facts.block_count * domains.block_size_tokens) as token_count
        from reuse as facts
        join domains on domains.cache_domain = facts.cache_domain
    ) as ramps
    join requests as served on served.request_key = ramps.request_key
    cross join sizes
    where served.prompt_tokens is not null
        and served.arrived_at_ns is not null
        and served.clock != 'order'
        and sizes.all_tokens is not null
),
busy_minutes as (   -- one row per minute with requests, counted from the first
    select
        (arrived_at_ns - (select min(arrived_at_ns) from atoms))
            // (getvariable('bucket_s')::bigint * 1000000000) as minute,
        sum(read_tokens) as read_tokens,
        sum(written_tokens) as written_tokens
    from atoms
    group by minute
),
span as (   -- one row: minutes from the first arrival to the last, and those without requests
    select
        max(minute)::bigint + 1 as minutes,
        max(minute)::bigint + 1 - count(*) as idle_minutes
    from busy_minutes
    having count(*) > 0
),
busy_rates as (   -- one row per minute with requests
    select
        read_tokens * getvariable('kv_bytes_per_token')::double
            / getvariable('bucket_s')::bigint as read_bytes_per_s,
        written_tokens * getvariable('kv_bytes_per_token')::double
            / getvariable('bucket_s')::bigint as written_bytes_per_s
    from busy_minutes
),
directions as (   -- one row per direction and minute with requests
    select 1 as place, 'read' as direction, read_bytes_per_s as bytes_per_s from busy_rates
    union all
    select 2, 'written', written_bytes_per_s from busy_rates
    union all
    select 3, 'both', read_bytes_per_s + written_bytes_per_s from busy_rates
),
sorted_rates as (   -- one row per direction: its busy minutes in order; idle ones, all 0, come before them
    select
        place,
        direction,
        fsum(bytes_per_s) as bytes_per_s,
        list(bytes_per_s order by bytes_per_s) as bytes_per_s_of_busy,
        max(bytes_per_s) as peak_bytes_per_s
    from directions
    group by place, direction
),
ranks as (   -- one row per direction: the two minutes between which the P99 lies, as places in the list
    select
        sorted_rates.*,
        span.minutes,
        floor((span.minutes - 1) * 0.99)::bigint - span.idle_minutes + 1 as low_place,
        ceil((span.minutes - 1) * 0.99)::bigint - span.idle_minutes + 1 as high_place,
        (span.minutes - 1) * 0.99 - floor((span.minutes - 1) * 0.99) as part
    from sorted_rates
    cross join span
),
rates as (   -- one row per direction
    select
        place,
        direction,
        minutes,
        bytes_per_s / minutes as mean_bytes_per_s,
        case when low_place > 0 then bytes_per_s_of_busy[low_place] else 0 end * (1 - part)
            + case when high_place > 0 then bytes_per_s_of_busy[high_place] else 0 end * part
            as p99_bytes_per_s,
        peak_bytes_per_s
    from ranks
),
limits as (   -- one row: bytes a second that one port of each node carries together, within the limit
    select
        getvariable('pool_nodes')::double * getvariable('port_bytes_per_s')::double
            as one_port_bytes_per_s
)
select
    rates.place::bigint as place,                          -- rank: from 1
    rates.direction,                                       -- name: read (from the pool) | written (into it) | both (what its DRAM bears)
    rates.minutes::bigint as minutes,                      -- count: minutes from the first arrival to the last
    rates.mean_bytes_per_s,                                -- bytes/s: mean over them, all pool nodes together
    rates.p99_bytes_per_s,                                 -- bytes/s: 99 % of the minutes have no more
    rates.peak_bytes_per_s,                                -- bytes/s: the busiest minute
    limits.one_port_bytes_per_s,                           -- bytes/s: one port of every node, usable; null without nodes or port
    rates.p99_bytes_per_s / nullif(limits.one_port_bytes_per_s, 0) as p99_utilisation,    -- ratio: p99_bytes_per_s / one_port_bytes_per_s
    getvariable('link_limit')::double as link_limit,       -- ratio: of what a port carries, that may be used
    case when rates.direction != 'both' and limits.one_port_bytes_per_s > 0 then greatest(
        1, ceil(rates.p99_bytes_per_s / limits.one_port_bytes_per_s / getvariable('link_limit')::double)
    ) end::bigint as ports_per_node                        -- count: ports of each node that keep the P99 minute below link_limit of their use; null for both
from rates
cross join limits
order by rates.place
