-- name: kv_events/residency
-- question: How long does a block stay in each medium of an instance before it is removed?
-- grain: one row per medium in which a block was stored
-- params: none
-- reads: block_stays
-- order: medium
-- note: a stay lasts from the store (or move) to the removal (or move away, clearing, restart). Stays
-- note: without an end are still held at the last event and are in no quantile: they are the longest
-- note: ones, so that the quantiles are low where many are open. A reused block makes no event: how
-- note: often a stay was of use cannot be seen here.
select
    medium,                                                         -- name: device | host | disk | remote; null: not said
    count(*)::bigint as stays,                                      -- stays: of a block in the medium of an instance
    count(*) filter (ended = 'open')::bigint as open_stays,         -- stays: still held at the last event
    sum(block_tokens)::bigint as stored_tokens,                     -- tokens: of all stays, where known
    quantile_cont(ended_at_ns - started_at_ns, 0.5) / 1e9 as stay_p50_s,   -- s: median length of the ended stays; null without a clock
    quantile_cont(ended_at_ns - started_at_ns, 0.9) / 1e9 as stay_p90_s,   -- s: P90 of these
    case
        when count(ended_at_ns - started_at_ns) >= 1000
        then quantile_cont(ended_at_ns - started_at_ns, 0.99) / 1e9
    end as stay_p99_s                                               -- s: P99 of these; null below 1 000
from block_stays
group by medium
order by medium nulls first
