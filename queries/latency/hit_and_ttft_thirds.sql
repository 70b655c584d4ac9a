-- name: latency/hit_and_ttft_thirds
-- question: Did TTFT get worse from the first to the last third of the window while the hit ratio got better?
-- grain: one row per third: 0 is the whole window, 1 to 3 equal stretches of the time in which TTFT is known
-- params: none
-- reads: requests, reuse, samples
-- order: third
-- note: quantiles are over the requests of each third, not means of shorter stretches
-- note: where no TTFT is known the thirds are those of the arrivals. Engine samples count as in
-- note: latency/hit_and_ttft_over_time. No rows without a clock.
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
span as (   -- one row: first and last arrival with a known TTFT, else first and last arrival
    select
        coalesce(min(arrived_at_ns) filter (ttft_ns is not null), min(arrived_at_ns)) as start_ns,
        coalesce(max(arrived_at_ns) filter (ttft_ns is not null), max(arrived_at_ns)) as end_ns,
        max(source_id) as any_source
    from timed
),
thirds as (   -- one row per third, in whole ns, both ends inside; 0 has no ends
    select
        third,
        case when third > 0 then start_ns + (end_ns - start_ns + 1)::hugeint * (third - 1) // 3 end
            as start_ns,
        case when third > 0 then start_ns + (end_ns - start_ns + 1)::hugeint * third // 3 - 1 end
            as end_ns
    from span, range(0, 4) as numbers (third)
    where any_source is not null
),
per_third as (   -- one row per third that holds a request
    select
        thirds.third,
        count(*) as requests,
        count(timed.ttft_ns) as ttft_requests,
        quantile_cont(timed.ttft_ns, 0.5) / 1e6 as ttft_p50_ms,
        quantile_cont(timed.ttft_ns, 0.9) / 1e6 as ttft_p90_ms,
        quantile_cont(timed.queue_ns, 0.5) / 1e6 as queue_p50_ms,
        sum(timed.cached_tokens) filter (timed.prompt_tokens is not null) as cached_tokens,
        sum(timed.prompt_tokens) filter (timed.cached_tokens is not null) as cached_of_tokens,
        sum(timed.reusable_tokens) as reusable_tokens,
        sum(timed.prompt_tokens) as prompt_tokens,
        sum(timed.prompt_tokens) / nullif(count(timed.prompt_tokens), 0) as mean_prompt_tokens
    from timed, thirds
    where thirds.third = 0
        or (timed.arrived_at_ns >= thirds.start_ns and timed.arrived_at_ns <= thirds.end_ns)
    group by thirds.third
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
observations as (   -- one row per observation inside the window, all of one kind of window
    select
        sample_key,
        observed_at_ns,
        max(value) filter (metric = 'prefix_hit_ratio') as prefix_hit_ratio,
        max(value) filter (metric = 'external_prefix_hit_ratio') as external_hit_ratio
    from comparable, span
    where window_rank = (select min(window_rank) from comparable)
        and observed_at_ns between span.start_ns and span.end_ns
    group by sample_key, observed_at_ns
),
engine_ratios as (   -- one row per third with such observations
    select
        thirds.third,
        count(*) as observations,
        fsum(seen.prefix_hit_ratio order by seen.sample_key)
            / nullif(count(seen.prefix_hit_ratio), 0) as prefix_hit_ratio,
        fsum(seen.external_hit_ratio order by seen.sample_key)
            / nullif(count(seen.external_hit_ratio), 0) as external_hit_ratio,
        fsum(
            seen.prefix_hit_ratio + (1 - seen.prefix_hit_ratio) * seen.external_hit_ratio
            order by seen.sample_key
        ) / nullif(count(seen.prefix_hit_ratio + seen.external_hit_ratio), 0) as combined_hit_ratio
    from observations as seen, thirds
    where thirds.third = 0
        or (seen.observed_at_ns >= thirds.start_ns and seen.observed_at_ns <= thirds.end_ns)
    group by thirds.third
)
select
    thirds.third::bigint as third,                             -- 0: the whole window; 1, 2, 3: thirds of the time
    thirds.start_ns::bigint as third_start_ns,                 -- ns: start of the third, on the clock of the requests; null for the whole
    coalesce(per_third.requests, 0)::bigint as requests,       -- requests: that arrived in it
    coalesce(per_third.ttft_requests, 0)::bigint as ttft_requests,   -- requests: of these, with a known TTFT
    per_third.ttft_p50_ms,                                     -- ms: median TTFT of these, from arrival
    per_third.ttft_p90_ms,                                     -- ms: the same, 90 %
    per_third.queue_p50_ms,                                    -- ms: arrival to first scheduled
    per_third.cached_tokens::bigint as cached_tokens,          -- tokens: cached, of requests that know both
    per_third.cached_of_tokens::bigint as cached_of_tokens,    -- tokens: prompts of these requests
    per_third.cached_tokens / nullif(per_third.cached_of_tokens, 0) as cached_ratio_tokens,     -- ratio: cached_tokens / cached_of_tokens
    per_third.reusable_tokens / nullif(per_third.prompt_tokens, 0) as reusable_ratio_tokens,   -- ratio: reusable in an unlimited cache / prompt tokens
    coalesce(engine_ratios.observations, 0)::bigint as engine_observations,   -- observations: of the engine's own hit ratios
    engine_ratios.prefix_hit_ratio as engine_prefix_hit_ratio,       -- ratio: mean of these, unit and window as the engine prints them
    engine_ratios.external_hit_ratio as engine_external_hit_ratio,   -- ratio: the same of the tiers below HBM, of what HBM missed; null where the engine prints none
    engine_ratios.combined_hit_ratio as engine_combined_hit_ratio,   -- ratio: L + (1 - L) * E over observations with both, L of HBM, E below it
    per_third.mean_prompt_tokens                               -- tokens: mean prompt
from thirds
left join per_third on per_third.third = thirds.third
left join engine_ratios on engine_ratios.third = thirds.third
order by thirds.third
