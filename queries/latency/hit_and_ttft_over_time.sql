-- name: latency/hit_and_ttft_over_time
-- question: When the hit ratio was high, was the first token fast?
-- grain: one row per slice_start_ns; up to 24 equal slices of the span of arrivals
-- params: none
-- reads: requests, reuse, samples
-- order: slice_start_ns
-- note: engine samples count where their clock is that of the requests: the same source, or both
-- note: wall clocks of one kind (utc, naive). Windows are never mixed: what counters gained goes before
-- note: the last 1 000 requests, that before a last batch, and totals since the start come last. No rows
-- note: without a clock.
with reused_requests as (   -- one row per request that has blocks
    select
        request_key,
        sum(token_count) filter (is_reusable) as reusable_tokens
    from reuse
    group by request_key
),
timed as (   -- one row per ok headline request with a known arrival
    select
        served.source_id,
        served.clock,
        served.arrived_at_ns,
        served.prompt_tokens,
        case   -- a count above the prompt is wrong, so that it is unknown
            when served.cached_tokens <= served.prompt_tokens then served.cached_tokens
        end as cached_tokens,
        served.queue_ns,
        case
            when served.ttft_from = 'scheduled' then served.ttft_ns + served.queue_ns
            else served.ttft_ns
        end as ttft_ns,
        case
            when exists (select 1 from reuse) and served.prompt_tokens is not null
            then coalesce(reused.reusable_tokens, 0)
        end as reusable_tokens
    from requests as served
    left join reused_requests as reused on reused.request_key = served.request_key
    where served.is_headline
        and served.status = 'ok'
        and served.clock != 'order'
        and served.arrived_at_ns is not null
),
arrivals as (   -- one row per distinct arrival, and how long after the one before
    select
        arrived_at_ns,
        arrived_at_ns - lag(arrived_at_ns) over (order by arrived_at_ns) as step_ns
    from timed
    group by arrived_at_ns
),
span as (   -- one row: up to 24 equal slices, in whole steps of the smallest step between arrivals
    select
        min(arrived_at_ns) as start_ns,
        ((max(arrived_at_ns) - min(arrived_at_ns)) // 24 // coalesce(min(step_ns), 1) + 1)
            * coalesce(min(step_ns), 1) as slice_ns,
        max(arrived_at_ns) - min(arrived_at_ns) as span_ns
    from arrivals
),
slices as (   -- one row per slice, those without requests too
    select
        start_ns + slice * slice_ns as slice_start_ns,
        slice_ns
    from span, range(0, 24) as numbers (slice)
    where slice <= span_ns // slice_ns
),
per_slice as (   -- one row per slice that holds a request
    select
        slices.slice_start_ns,
        count(*) as requests,
        quantile_cont(timed.ttft_ns, 0.5) / 1e6 as ttft_p50_ms,
        quantile_cont(timed.ttft_ns, 0.9) / 1e6 as ttft_p90_ms,
        quantile_cont(timed.queue_ns, 0.5) / 1e6 as queue_p50_ms,
        sum(timed.cached_tokens) filter (timed.prompt_tokens is not null)
            / nullif(sum(timed.prompt_tokens) filter (timed.cached_tokens is not null), 0)
            as cached_ratio_tokens,
        sum(timed.reusable_tokens) / nullif(sum(timed.prompt_tokens), 0) as reusable_ratio_tokens,
        sum(timed.prompt_tokens) / nullif(count(timed.prompt_tokens), 0) as mean_prompt_tokens
    from timed, span, slices
    where slices.slice_start_ns
        = span.start_ns + (timed.arrived_at_ns - span.start_ns) // span.slice_ns * span.slice_ns
    group by slices.slice_start_ns
),
clocks as (   -- one row per source and clock of the requests
    select distinct source_id, clock
    from timed
),
comparable as (   -- one row per sample of the engine's own hit ratios on the clock of the requests
    select
        samples.sample_key,
        samples.observed_at_ns,
        samples.metric,
        samples.value,
        case samples."window"
            when 'interval' then 0
            when 'last_1000_requests' then 1
            when 'last_batch' then 2
            when 'cumulative' then 4
            else 3
        end as window_rank
    from samples
    where samples.metric in ('prefix_hit_ratio', 'external_prefix_hit_ratio')
        and exists (
            select 1
            from clocks
            where clocks.clock = samples.clock
                and (clocks.source_id = samples.source_id or clocks.clock in ('utc', 'naive'))
        )
),
observations as (   -- one row per observation, all of one kind of window
    select
        sample_key,
        observed_at_ns,
        max(value) filter (metric = 'prefix_hit_ratio') as prefix_hit_ratio,
        max(value) filter (metric = 'external_prefix_hit_ratio') as external_hit_ratio
    from comparable
    where window_rank = (select min(window_rank) from comparable)
    group by sample_key, observed_at_ns
),
combined as (   -- one row per such observation, with the ratio over HBM and what is below it
    select
        sample_key,
        observed_at_ns,
        prefix_hit_ratio,
        external_hit_ratio,
        prefix_hit_ratio + (1 - prefix_hit_ratio) * external_hit_ratio as combined_hit_ratio
    from observations
),
engine_ratios as (   -- one row per slice with such observations
    select
        slices.slice_start_ns,
        fsum(combined.prefix_hit_ratio order by combined.sample_key)
            / nullif(count(combined.prefix_hit_ratio), 0) as prefix_hit_ratio,
        fsum(combined.external_hit_ratio order by combined.sample_key)
            / nullif(count(combined.external_hit_ratio), 0) as external_hit_ratio,
        fsum(combined.combined_hit_ratio order by combined.sample_key)
            / nullif(count(combined.combined_hit_ratio), 0) as combined_hit_ratio
    from combined, slices
    where combined.observed_at_ns >= slices.slice_start_ns
        and combined.observed_at_ns < slices.slice_start_ns + slices.slice_ns
    group by slices.slice_start_ns
)
select
    slices.slice_start_ns::bigint as slice_start_ns,       -- ns: start of the slice, on the clock of the requests
    coalesce(per_slice.requests, 0)::bigint as requests,   -- requests: that arrived in the slice
    per_slice.ttft_p50_ms,                                 -- ms: median TTFT of these, from arrival
    per_slice.ttft_p90_ms,                                 -- ms: the same, 90 %
    per_slice.queue_p50_ms,                                -- ms: arrival to first scheduled
    per_slice.cached_ratio_tokens,                         -- ratio: cached / prompt tokens of requests that know both
    per_slice.reusable_ratio_tokens,                       -- ratio: reusable in an unlimited cache / prompt tokens
    engine_ratios.prefix_hit_ratio as engine_prefix_hit_ratio,   -- ratio: mean of the engine's own samples in the slice, its unit and window as it prints them
    engine_ratios.external_hit_ratio as engine_external_hit_ratio,   -- ratio: the same of the tiers below HBM, of what HBM missed; null where the engine prints none
    engine_ratios.combined_hit_ratio as engine_combined_hit_ratio,   -- ratio: L + (1 - L) * E over observations with both, L of HBM, E below it; valid while both windows cover the same requests
    per_slice.mean_prompt_tokens                           -- tokens: mean prompt
from slices
left join per_slice on per_slice.slice_start_ns = slices.slice_start_ns
left join engine_ratios on engine_ratios.slice_start_ns = slices.slice_start_ns
order by slices.slice_start_ns
