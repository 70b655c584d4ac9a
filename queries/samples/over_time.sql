-- name: samples/over_time
-- question: What did the engine say about itself over time?
-- grain: one row per observation, engine and metric; means of time slices where there are over 2 000
-- params: none
-- reads: samples
-- order: metric, engine, window, unit, hit_unit, observed_at_ns, sample
-- note: only samples with a value and a time. Slices are of equal length and per series, so that
-- note: all series together stay within 2 000 rows; a mean stands at the first sample of its slice.
with series as (   -- one row per sample with a value and a time, numbered by series
    select
        samples.sample_key,
        samples.observed_at_ns,
        samples.engine,
        samples.metric,
        samples.value,
        samples.unit,
        samples.hit_unit,
        samples."window" as sample_window,
        dense_rank() over (
            order by metric, engine, samples."window", unit, hit_unit
        ) as series,
        count(*) over () as samples
    from samples
    where samples.value is not null and samples.observed_at_ns is not null
),
grid as (   -- one row: how long a slice is, if there are any
    select
        min(observed_at_ns) as start_ns,
        (max(observed_at_ns) - min(observed_at_ns))
            // greatest(1, 2000 // nullif(max(series), 0)) + 1 as slice_ns
    from series
),
sliced as (   -- one row per sample: its slice, or itself where all fit
    select
        series.*,
        case
            when series.samples <= 2000 then series.sample_key
            else (series.observed_at_ns - grid.start_ns) // grid.slice_ns
        end as slice
    from series, grid
),
means as (   -- one row per series and slice
    select
        series,
        slice,
        min(sample_key) as first_sample,
        min(observed_at_ns) as observed_at_ns,
        any_value(engine) as engine,
        any_value(metric) as metric,
        fsum(value order by sample_key) / count(*) as value,
        any_value(unit) as unit,
        any_value(hit_unit) as hit_unit,
        any_value(sample_window) as sample_window
    from sliced
    group by series, slice
)
select
    observed_at_ns::bigint as observed_at_ns,   -- ns: time of the observation, or of the first of its slice
    engine,                                     -- name: engine or rank as written; null: one engine
    metric,                                     -- name: kvtrace's name of the metric
    value,                                      -- `unit`: the value, or the mean of the slice
    unit,                                       -- name: unit of the value
    hit_unit,                                   -- name: what a hit metric counts; null for others
    sample_window as "window"                   -- name: cumulative | last_1000_requests | interval | instant | last_batch; null: unknown
from means
order by metric, engine nulls first, sample_window nulls first, unit, hit_unit nulls first, observed_at_ns, first_sample
limit 2000
