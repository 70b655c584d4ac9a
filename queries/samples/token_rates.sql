-- name: samples/token_rates
-- question: How many tokens a second were asked for, served from a cache, computed and generated?
-- grain: one row per source, metric, how it was measured, and slice; up to 48 equal slices a source
-- params: none
-- reads: samples
-- order: metric, source_id, measured_as, slice_start_ns
-- note: counter: what counters gained over the time that they gained it in. printed: the engine's own
-- note: rate, as a mean; what its prompt rate counts differs by version.
with observed as (   -- one row per gain over a known time, or printed rate
    select
        samples.sample_key,
        samples.source_id,
        samples.observed_at_ns,
        samples.sample_key // 17592186044416 as file_id,
        samples.engine,
        regexp_replace(samples.metric, '_per_s$', '') as metric,
        case when samples.unit = 'tokens' then 'counter' else 'printed' end as measured_as,
        case when samples.unit = 'tokens' then samples.value end as gained_tokens,
        case when samples.unit = 'tokens' then samples.window_ns end as gained_ns,
        case when samples.unit != 'tokens' then samples.value end as printed_rate
    from samples
    where samples.metric in (
            'prompt_tokens',
            'cached_tokens',
            'cached_device_tokens',
            'cached_host_tokens',
            'cached_disk_tokens',
            'cached_remote_tokens',
            'cached_external_tokens',
            'computed_tokens',
            'output_tokens',
            'prompt_tokens_per_s',
            'generation_tokens_per_s'
        )
        and samples.value is not null
        and samples.observed_at_ns is not null
        and (
            samples.unit != 'tokens'
            or (samples."window" = 'interval' and samples.window_ns > 0)
        )
),
paces as (   -- one row per source, file, engine and metric: time between observations
    select
        source_id,
        (max(observed_at_ns) - min(observed_at_ns)) // nullif(count(*) - 1, 0) as gap_ns
    from observed
    group by source_id, file_id, engine, metric, measured_as
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
per_engine as (   -- one row per source, metric, measure, slice and engine
    select
        observed.source_id,
        observed.metric,
        observed.measured_as,
        observed.file_id,
        observed.engine,
        grid.start_ns + (observed.observed_at_ns - grid.start_ns) // grid.slice_ns * grid.slice_ns
            as slice_start_ns,
        count(*) as observations,
        coalesce(
            fsum(observed.gained_tokens order by observed.sample_key)
                / nullif(sum(observed.gained_ns), 0) * 1e9,
            fsum(observed.printed_rate order by observed.sample_key)
                / nullif(count(observed.printed_rate), 0)
        ) as tokens_per_s
    from observed
    inner join grid on grid.source_id = observed.source_id
    group by
        observed.source_id,
        observed.metric,
        observed.measured_as,
        observed.file_id,
        observed.engine,
        slice_start_ns
)
select
    metric,                                             -- name: which tokens
    source_id::bigint as source_id,                     -- key: the source
    measured_as,                                        -- name: counter | printed
    slice_start_ns::bigint as slice_start_ns,           -- ns: start of the slice
    fsum(tokens_per_s order by file_id, engine nulls first) as tokens_per_s,   -- tokens/s: all engines together
    max(tokens_per_s) as highest_engine_tokens_per_s,   -- tokens/s: most at one engine
    count(*)::bigint as engines,                        -- count: engines with an observation
    sum(observations)::bigint as observations           -- count: observations in the slice
from per_engine
group by metric, source_id, measured_as, slice_start_ns
order by metric, source_id, measured_as, slice_start_ns
limit 2000
