-- name: sizing/residency
-- question: How much of the reuse comes back within the time that a tier is worth keeping a block for, and how many bytes does that keep?
-- grain: one row per tier
-- params: tiers VARCHAR[] = null, tiers_until_s DOUBLE[] = null, kv_bytes_per_token DOUBLE = null
-- reads: requests, reuse
-- order: place
-- note: tiers_until_s: seconds since its last use for which keeping a block is worth the tier's price (break-even residency); infinity: for ever, as in DRAM that is idle anyway; null: unknown.
-- note: a block comes back within the time if its last use is no longer ago, whatever the capacity; a block's prefix is never used less recently than the block.
-- note: kept bytes are the mean over the window of what is kept by that rule alone, blocks that never come back included, from an empty start (each use keeps its tokens until the next one, for at most the time, and to the end of the window).
-- note: tiers null: no rows. Reuse whose gap is not known counts nowhere; a trace without a clock gives null.
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
        is_counted and is_reusable as is_reused
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
tiers as (   -- one row per tier that is asked for
    select
        unnest(range(1, len(getvariable('tiers')::varchar[]) + 1)) as place,
        unnest(getvariable('tiers')::varchar[]) as tier,
        unnest(getvariable('tiers_until_s')::double[]) as until_s
),
kept as (   -- one row per tier: reused tokens within its time, and token-seconds kept
    select
        tiers.place,
        sum(idle.token_count) filter (idle.is_reused) as reused_tokens,
        sum(idle.token_count) filter (idle.is_reused and idle.idle_s <= tiers.until_s)
            as within_tokens,
        fsum(idle.token_count * least(idle.idle_s, tiers.until_s)) as token_seconds
    from tiers
    cross join idle_times as idle
    where tiers.until_s is not null
    group by tiers.place
)
select
    tiers.place::bigint as place,                          -- rank: as given, from 1
    tiers.tier,                                            -- name: of the tier
    case when isfinite(tiers.until_s) then tiers.until_s end as until_s,   -- s: since its last use, for which a block is worth keeping there; null: without end, or unknown
    not isfinite(tiers.until_s) as is_endless,             -- flag: worth keeping for ever; null: unknown
    kept.reused_tokens::bigint as reused_tokens,           -- tokens: reused after a known gap
    case when kept.reused_tokens is not null then coalesce(kept.within_tokens, 0) end::bigint as within_tokens,   -- tokens: of these, after at most until_s
    coalesce(kept.within_tokens, 0) / nullif(kept.reused_tokens, 0) as within_ratio_tokens,   -- ratio: within_tokens / reused_tokens
    kept.token_seconds / span.span_s * getvariable('kv_bytes_per_token')::double as kept_bytes   -- bytes: mean of what that keeps; null without kv_bytes_per_token
from tiers
cross join span
left join kept on kept.place = tiers.place
order by tiers.place
