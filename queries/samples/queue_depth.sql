-- name: samples/queue_depth
-- question: How many requests ran and waited over time?
-- grain: one row per source, metric and slice; up to 48 equal slices a source
-- params: none
-- reads: samples
-- order: metric, source_id, slice_start_ns
with observed as (   -- one row per depth with a value and a time
    select
        samples.sample_key,
        samples.source_id,
        samples.observed_at_ns,
        samples.sample_key // 17592186044416 as file_id,
        samples.engine,
        samples.metric,
        samples.value
    from samples
    where samples.metric in (
            'running_requests',
            'waiting_requests',
            'swapped_requests',
            'deferred_requests',
            'kv_fetch_waiting_requests',
            'kv_fetch_running_requests'
        )
        and samples.value is not null
        and samples.observed_at_ns is not null
),
paces as (   -- one row per source, file, engine and metric: time between observations
    select
        source_id,
        (max(observed_at_ns) - min(observed_at_ns)) // nullif(count(*) - 1, 0) as gap_ns
    from observed
    group by source_id, file_id, engine, metric
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
        from observed
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
per_engine as (   -- one row per source, metric, slice and engine
    select
        observed.source_id,
        observed.metric,
        observed.file_id,
        observed.engine,
        grid.start_ns + (observed.observed_at_ns - grid.start_ns) // grid.slice_ns * grid.slice_ns
            as slice_start_ns,
        count(*) as observations,
        fsum(observed.value order by observed.sample_key) / count(*) as mean_value,
        max(observed.value) as highest
    from observed
    inner join grid on grid.source_id = observed.source_id
    group by observed.source_id, observed.metric, observed.file_id, observed.engine, slice_start_ns
)
select
    metric,                                             -- name: what the requests did
    source_id::bigint as source_id,                     -- key: the source
    slice_start_ns::bigint as slice_start_ns,           -- ns: start of the slice
    fsum(mean_value order by file_id, engine nulls first) as mean_requests,   -- requests: mean over the slice, all engines together
    max(highest) as highest_engine_requests,            -- requests: most at one engine
    count(*)::bigint as engines,                        -- count: engines with an observation
    sum(observations)::bigint as observations           -- count: observations in the slice
from per_engine
group by metric, source_id, slice_start_ns
order by metric, source_id, slice_start_ns
limit 2000
