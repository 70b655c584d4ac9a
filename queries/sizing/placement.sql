-- name: sizing/placement
-- question: What should be kept where: which tokens come back how soon, and how many bytes does each class hold?
-- grain: one row per class of idle time
-- params: classes VARCHAR[] = null, classes_bytes DOUBLE[] = null, classes_until_s DOUBLE[] = null, kv_bytes_per_token DOUBLE = null
-- reads: requests, reuse
-- order: place
-- note: a block moves down by age: it is in a class while the time since its last use lies in the class's range, each from where the one above it ends. A class ends where it is full (classes_bytes, with those above it; null: never) or at classes_until_s (null: never), whichever comes first.
-- note: full: the age below which blocks take that many bytes on the mean (the characteristic time of an LRU cache: Che, Tung, Wang, Hierarchical Web Caching Systems, 2002); it needs kv_bytes_per_token.
-- note: all lists null: hot up to 5 minutes, warm up to an hour, cold up to a day, and beyond. `kvtrace analyze` gives HBM and idle DRAM by their bytes and the pool by its bytes and its break-even residency.
-- note: held bytes are the mean over the window, from an empty start, blocks that never come back included. No rows without a clock.
with clocked as (   -- one row per atom of a request with an arrival
    select
        facts.cache_domain,
        facts.atom,
        facts.token_count,
        facts.is_reusable,
        facts.reuse_gap_ns / 1e9 as gap_s,
        served.arrived_at_ns,
        served.prompt_tokens is not null as is_counted
    from reuse as facts
    join requests as served on served.request_key = facts.request_key
    where served.arrived_at_ns is not null and served.clock != 'order'
),
span as (   -- one row: the window
    select
        max(arrived_at_ns) as end_ns,
        nullif(max(arrived_at_ns) - min(arrived_at_ns), 0) / 1e9 as span_s
    from clocked
),
idle_times as (   -- one row per use of an atom: seconds until its next one, or the end of the window
    select
        gap_s as idle_s,
        token_count,
        is_counted as is_reused
    from clocked
    where is_reusable and gap_s is not null
    union all
    select
        (any_value(span.end_ns) - max(clocked.arrived_at_ns)) / 1e9,
        max(clocked.token_count),
        false
    from clocked
    cross join span
    group by clocked.cache_domain, clocked.atom
),
ages as (   -- one row per idle time: token-seconds of all uses cut at it
    select
        idle_s,
        coalesce(sum(token_count * idle_s) over up_to, 0)
            + idle_s * (sum(token_count) over () - sum(token_count) over up_to) as token_seconds,
        coalesce(sum(token_count * idle_s) over up_to, 0) as ended_token_seconds,
        sum(token_count) over () - sum(token_count) over up_to as running_tokens
    from (
        select idle_s, sum(token_count)::double as token_count from idle_times group by idle_s
        union all
        select -1e-9, 0
    ) as by_age
    window up_to as (order by idle_s)
),
asked as (   -- one row per class that is asked for
    select
        unnest(range(1, len(lists.names) + 1)) as place,
        unnest(lists.names) as class,
        unnest(lists.sizes) as bytes,
        unnest(lists.until_s) as until_s
    from (
        select
            coalesce(
                getvariable('classes')::varchar[], ['hot', 'warm', 'cold', 'beyond']
            ) as names,
            coalesce(
                getvariable('classes_bytes')::double[], [null, null, null, null]
            ) as sizes,
            coalesce(
                getvariable('classes_until_s')::double[],
                case
                    when getvariable('classes')::varchar[] is null then [300, 3600, 86400, null]
                    else [null]
                end
            ) as until_s
    ) as lists
),
filled as (   -- one row per class: token-seconds that it and those above it hold
    select
        place,
        class,
        coalesce(until_s, 'infinity'::double) as until_s,
        case
            when bytes is not null
            then sum(bytes) over (order by place)
                / getvariable('kv_bytes_per_token')::double * span.span_s
        end as room_token_seconds
    from asked
    cross join span
),
ends as (   -- one row per class: where it ends
    select
        filled.place,
        filled.class,
        max(least(
            filled.until_s,
            case
                when coalesce(ages.running_tokens, 0) = 0
                then 'infinity'::double
                else (filled.room_token_seconds - ages.ended_token_seconds) / ages.running_tokens
            end
        )) over (order by filled.place) as until_s
    from filled
    asof left join ages on ages.token_seconds < filled.room_token_seconds
    where filled.place is not null
),
classes as (   -- one row per class: from where the one above it ends
    select
        place,
        class,
        lag(until_s, 1, 0) over (order by place) as from_s,
        until_s
    from ends
),
held as (   -- one row per class: tokens that come back from it, and token-seconds spent in it
    select
        classes.place,
        sum(idle.token_count) filter (
            idle.is_reused and idle.idle_s >= classes.from_s and idle.idle_s < classes.until_s
        ) as reused_tokens,
        fsum(
            idle.token_count
            * greatest(0, least(idle.idle_s, classes.until_s) - classes.from_s)
        ) as token_seconds
    from classes
    cross join idle_times as idle
    where isfinite(classes.from_s)
    group by classes.place
)
select
    classes.place::bigint as place,                        -- rank: from the hottest, from 1
    classes.class,                                         -- name: hot | warm | cold | beyond, or as given
    case when isfinite(classes.from_s) then classes.from_s end as from_s,      -- s: since the last use, from
    case when isfinite(classes.until_s) then classes.until_s end as until_s,   -- s: and up to; null: without end
    coalesce(held.reused_tokens, 0)::bigint as reused_tokens,    -- tokens: that come back after such a time
    coalesce(held.reused_tokens, 0) / nullif(sum(held.reused_tokens) over (), 0) as reused_tokens_share,   -- ratio: of all tokens that come back after a known time
    coalesce(held.token_seconds, 0) / span.span_s * getvariable('kv_bytes_per_token')::double as held_bytes,   -- bytes: mean of what lies in the class; null without kv_bytes_per_token
    coalesce(held.reused_tokens, 0) / nullif(held.token_seconds, 0) * 3600 as reuses_per_hour   -- 1/h: how often a token in the class comes back from it: reused_tokens / token-hours in it
from classes
cross join span
left join held on held.place = classes.place
where span.span_s is not null
order by classes.place
