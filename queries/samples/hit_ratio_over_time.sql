-- name: samples/hit_ratio_over_time
-- question: How did the hit ratios that engines report go over time?
-- grain: one row per source, metric, hit_unit, window, slice, and engine where ratios cannot be added
-- params: none
-- reads: samples
-- order: metric, source_id, window, hit_unit, engine, slice_start_ns
-- note: windows are never mixed; up to 48 equal slices a source. Over intervals and batches hits and
-- note: look-ups of all engines are added. Where only ratios are printed, each engine stands alone, as
-- note: last printed in the slice: a mean over engines would weigh idle and busy ones alike. What a
-- note: counter held at its first scrape is left out where its gains are known.
with observed as (   -- one row per hit ratio with a value and a time
    select
        samples.sample_key,
        samples.source_id,
        samples.observed_at_ns,
        samples.sample_key // 17592186044416 as file_id,
        samples.engine,
        samples.metric,
        samples.hit_unit,
        samples."window" as sample_window,
        samples.value,
        samples.numerator,
        samples.denominator,
        bool_or(samples."window" = 'interval') over (
            partition by samples.source_id, samples.metric, samples.hit_unit
        ) as has_intervals
    from samples
    where samples.metric like '%_hit_ratio'
        and samples.value is not null
        and samples.observed_at_ns is not null
),
kept as (   -- one row per ratio that is shown
    select *
    from observed
    where not (has_intervals and sample_window is not distinct from 'cumulative')
),
paces as (   -- one row per source, file, engine and metric: time between observations
    select
        source_id,
        (max(observed_at_ns) - min(observed_at_ns)) // nullif(count(*) - 1, 0) as gap_ns
    from kept
    group by source_id, file_id, engine, metric, hit_unit, sample_window
),
grid as (   -- one row per source: start and length of its slices, none shorter than the usual gap
    select
        spans.source_id,
        spans.start_ns,
        greatest(spans.span_ns // 48 + 1, coalesce(usual.gap_ns, 0)) as slice_ns
    from (
        select
            source_id,
            min(observed_at_ns) as start_ns,
            max(observed_at_ns) - min(observed_at_ns) as span_ns
        from kept
        group by source_id
    ) as spans
    left join (
        select
            source_id,
            quantile_disc(gap_ns, 0.5) as gap_ns
        from paces
        group by source_id
    ) as usual on usual.source_id = spans.source_id
),
per_engine as (   -- one row per source, metric, hit_unit, window, slice and engine
    select
        kept.source_id,
        kept.metric,
        kept.hit_unit,
        kept.sample_window,
        kept.file_id,
        kept.engine,
        grid.start_ns + (kept.observed_at_ns - grid.start_ns) // grid.slice_ns * grid.slice_ns
            as slice_start_ns,
        count(*) as observations,
        arg_max(kept.value, (kept.observed_at_ns, kept.sample_key)) as last_value,
        fsum(kept.numerator order by kept.sample_key)
            filter (kept.denominator is not null) as numerator,
        fsum(kept.denominator order by kept.sample_key)
            filter (kept.numerator is not null) as denominator
    from kept
    inner join grid on grid.source_id = kept.source_id
    group by
        kept.source_id,
        kept.metric,
        kept.hit_unit,
        kept.sample_window,
        kept.file_id,
        kept.engine,
        slice_start_ns
),
rated as (   -- one row per the same, with the engine's own ratio of the slice
    select
        *,
        case
            when sample_window in ('interval', 'last_batch')
            then coalesce(numerator / nullif(denominator, 0), last_value)
            else last_value
        end as own_ratio
    from per_engine
),
shown as (   -- one row per the same: its engine if it must stand alone, else null
    select
        *,
        case
            when denominator is not null and sample_window in ('interval', 'last_batch') then null
            when count(distinct file_id) over (partition by source_id) > 1
            then coalesce(engine, 'engine') || ' of file ' || file_id
            else engine
        end as lone_engine
    from rated
),
per_slice as (   -- one row per source, metric, hit_unit, window, slice and engine that stands alone
    select
        source_id,
        metric,
        hit_unit,
        sample_window,
        slice_start_ns,
        lone_engine,
        count(*) as engines,
        sum(observations) as observations,
        fsum(numerator order by file_id, engine nulls first)
            filter (sample_window in ('interval', 'last_batch')) as numerator,
        fsum(denominator order by file_id, engine nulls first)
            filter (sample_window in ('interval', 'last_batch')) as denominator,
        max(own_ratio) as highest,
        min(own_ratio) as lowest
    from shown
    group by source_id, metric, hit_unit, sample_window, slice_start_ns, lone_engine
)
select
    metric,                                             -- name: which hit ratio
    source_id::bigint as source_id,                     -- key: the source
    hit_unit,                                           -- name: what it counts; null: unknown
    sample_window as "window",                          -- name: cumulative | last_1000_requests | interval | last_batch; null: unknown
    lone_engine as engine,                              -- name: the engine that the ratio is of; null: all engines together, or the only one
    slice_start_ns::bigint as slice_start_ns,           -- ns: start of the slice
    case
        when denominator is not null then numerator / nullif(denominator, 0)
        when engines = 1 then highest
    end as hit_ratio,                                   -- ratio: hits / look-ups of the slice; where only ratios are printed, the last one
    lowest as lowest_engine_ratio,                      -- ratio: of the engine with the least
    highest as highest_engine_ratio,                    -- ratio: of the engine with the most
    numerator,                                          -- `hit_unit`: hits of the slice; null where only ratios are printed
    denominator,                                        -- `hit_unit`: look-ups of the slice
    engines::bigint as engines,                         -- count: engines or ranks with an observation
    observations::bigint as observations                -- count: observations in the slice
from per_slice
order by metric, source_id, sample_window nulls first, hit_unit nulls first, lone_engine nulls first, slice_start_ns
limit 2000
