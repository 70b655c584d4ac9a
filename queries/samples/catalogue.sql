-- name: samples/catalogue
-- question: What did engines, caches and machines say about themselves, and how often?
-- grain: one row per source, metric, unit, hit_unit and window
-- params: none
-- reads: samples
-- order: metric, source_id, window, unit, hit_unit
select
    metric,                                             -- name: kvtrace's name of the metric
    source_id::bigint as source_id,                     -- key: the source
    unit,                                               -- name: unit of the value
    hit_unit,                                           -- name: what a hit metric counts; null for others, or unknown
    "window",                                           -- name: cumulative | last_1000_requests | interval | instant | last_batch; null: unknown
    count(*)::bigint as observations,                   -- count: observations of it
    count(value)::bigint as known_values,               -- count: of these, with a value
    count(distinct concat_ws(' ', sample_key // 17592186044416, engine))::bigint as engines,   -- count: engines, ranks or devices that say it
    min(observed_at_ns)::bigint as first_at_ns,           -- ns: first known time of an observation
    max(observed_at_ns)::bigint as last_at_ns,            -- ns: last known time
    min(value) as minimum,                              -- `unit`: least value
    quantile_cont(value, 0.5) as median,                -- `unit`: median value
    max(value) as maximum                               -- `unit`: largest value
from samples
group by metric, source_id, unit, hit_unit, "window"
order by metric, source_id, "window" nulls first, unit, hit_unit nulls first
