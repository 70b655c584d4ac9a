-- name: sizing/pool_traffic
-- question: How many bytes a second would a pool read and take in, and how many ports does each of its nodes need?
-- grain: one row per direction
-- params: held_bytes DOUBLE = null, pool_bytes DOUBLE = null, kv_bytes_per_token DOUBLE = null, block_size_tokens BIGINT = null, pool_nodes DOUBLE = null, port_bytes_per_s DOUBLE = null, link_limit DOUBLE = 0.7, bucket_s BIGINT = 60
-- reads: requests, reuse, continuations
-- order: place
-- note: read: tokens that one LRU cache of held_bytes (HBM and idle DRAM of all instances) misses and one of held_bytes + pool_bytes holds. written: tokens that neither holds, each stored as it is computed; tokens of generation come on top.
-- note: bytes count in the minute (bucket_s) in which the request arrives; minutes without requests count as 0. Bursts within a minute are smoothed: the replay has them.
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
minutes as (   -- one row per minute from the first arrival to the last
    select
        series.minute,
        coalesce(busy.read_tokens, 0) * getvariable('kv_bytes_per_token')::double
            / getvariable('bucket_s')::bigint as read_bytes_per_s,
        coalesce(busy.written_tokens, 0) * getvariable('kv_bytes_per_token')::double
            / getvariable('bucket_s')::bigint as written_bytes_per_s
    from (
        select unnest(range(0, max(minute)::bigint + 1)) as minute from busy_minutes
    ) as series
    left join busy_minutes as busy on busy.minute = series.minute
),
directions as (   -- one row per direction and minute
    select 1 as place, 'read' as direction, read_bytes_per_s as bytes_per_s from minutes
    union all
    select 2, 'written', written_bytes_per_s from minutes
    union all
    select 3, 'both', read_bytes_per_s + written_bytes_per_s from minutes
),
rates as (   -- one row per direction
    select
        place,
        direction,
        count(*) as minutes,
        fsum(bytes_per_s) / count(*) as mean_bytes_per_s,
        quantile_cont(bytes_per_s, 0.99) as p99_bytes_per_s,
        max(bytes_per_s) as peak_bytes_per_s
    from directions
    group by place, direction
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
