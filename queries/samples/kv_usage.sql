-- name: samples/kv_usage
-- question: How full was the room for KV over time?
-- grain: one row per source, metric and slice; up to 48 equal slices a source
-- params: none
-- reads: samples
-- order: metric, source_id, slice_start_ns
with observed as (   -- one row per usage with a value and a time
    select
        samples.sample_key,
        samples.source_id,
        samples.observed_at_ns,
        samples.sample_key // 17592186044416 as file_id,
        samples.engine,
        samples.metric,
        samples.value
    from samples
    where samples.metric in ('kv_usage_ratio', 'cpu_kv_usage_ratio', 'pool_usage_ratio')
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
)
select
    observed.metric,                                    -- name: which room
    observed.source_id::bigint as source_id,            -- key: the source
    (grid.start_ns + (observed.observed_at_ns - grid.start_ns) // grid.slice_ns * grid.slice_ns)::bigint as slice_start_ns,   -- ns: start of the slice
    fsum(observed.value order by observed.sample_key, observed.engine nulls first) / count(*) as mean_ratio,   -- ratio: mean over observations and engines
    max(observed.value) as highest_ratio,               -- ratio: of any engine at any time of the slice
    count(distinct concat_ws(' ', observed.file_id, observed.engine))::bigint as engines,   -- count: engines with an observation
    count(*)::bigint as observations                    -- count: observations in the slice
from observed
inner join grid on grid.source_id = observed.source_id
group by observed.metric, observed.source_id, slice_start_ns
order by metric, source_id, slice_start_ns
limit 2000
