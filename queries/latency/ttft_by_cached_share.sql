-- name: latency/ttft_by_cached_share
-- question: At equal prompt length and load, how much sooner is the first token for each cached token?
-- grain: one row per traffic, ttft_at, outcome and prompt_bucket of 20 requests or more; and one of all these
-- params: none
-- reads: requests
-- order: traffic, ttft_at, outcome, prompt_bucket nulls first
-- note: least squares: outcome = bucket + b1 × prompt_tokens + b2 × in_flight + b × cached_tokens, with own
-- note: b1 and b2 in each bucket; saved = -1000 × b. By Frisch, Waugh and Lovell the controls are taken
-- note: out one after the other (lines within the bucket), and b is the slope of what is left.
-- note: SE: HC3 (MacKinnon and White, Journal of Econometrics 29, 1985), right for unequal spread:
-- note: var(b) = sum(c² × (e / (1 - h))²) / sum(c²)², c what is left of the cached tokens, e the residual, h
-- note: the leverage; null where a single request decides the slope.
-- note: Interval: saved ± t × SE, t of requests less coefficients at 97.5 % (Abramowitz and Stegun 26.7.5).
-- note: in_flight: arrivals before less ends until the arrival, over all headline requests of the clock;
-- note: held fixed where 95 % of these know both instants (is_load_held). It does not know instances.
-- note: after_queue = TTFT - queue, where the queue is known: what a hit does once the request runs.
-- note: Not an experiment: read cached_queue_correlation; far from 0, hits came at busy or idle times.
-- note: requests with times that contradict each other, or more cached than prompt tokens, are left out;
-- note: benchmark traffic is apart.
with served as (   -- one row per ok headline request whose times agree, with TTFT (or its part after the queue) and cached tokens
    select
        request_key,
        source_id,
        clock,
        arrived_at_ns,
        case when is_benchmark then 'benchmark' else 'production' end as traffic,
        case when ttft_from = 'client' then 'client' else 'engine' end as ttft_at,
        1::bigint << (length(bin(prompt_tokens)) - 1) as prompt_bucket,
        prompt_tokens::double as prompt_tokens,
        cached_tokens::double as cached_tokens,
        case when ttft_from = 'scheduled' then ttft_ns + queue_ns else ttft_ns end / 1e6 as ttft,
        case when ttft_from = 'scheduled' then ttft_ns else ttft_ns - queue_ns end / 1e6
            as after_queue,
        queue_ns / 1e6 as queue_ms
    from requests
    where is_headline
        and status = 'ok'
        and prompt_tokens > 0
        and cached_tokens between 0 and prompt_tokens
        and ttft_ns is not null
        and not list_has_any(flags, ['time_order', 'ttft_above_e2e'])
        and coalesce(least(queue_ns, prefill_ns, ttft_ns, tpot_ns, e2e_ns) >= 0, true)
        and coalesce(
            ttft_ns + case when ttft_from = 'scheduled' then coalesce(queue_ns, 0) else 0 end
                <= e2e_ns,
            true
        )
        and coalesce(ttft_from = 'scheduled' or queue_ns <= ttft_ns, true)
),
presences as (   -- one row per headline request with an arrival; its end where it is known
    select
        source_id,
        clock,
        arrived_at_ns,
        case
            when e2e_ns >= 0
                and not list_has_any(flags, ['dated_by_end', 'time_is_end', 'start_unknown'])
            then arrived_at_ns + e2e_ns
        end as ended_at_ns
    from requests
    where is_headline
        and clock != 'order'
        and arrived_at_ns is not null
        and exists (select 1 from served)
),
changes as (   -- one row per instant at which requests end (first) or arrive, of clocks that know 95 %
    select
        source_id,
        clock,
        at_ns,
        is_arrival,
        sum(change) as change
    from (
        select source_id, clock, arrived_at_ns as at_ns, true as is_arrival, 1 as change
        from presences
        where ended_at_ns > arrived_at_ns
        union all
        select source_id, clock, ended_at_ns, false, -1
        from presences
        where ended_at_ns > arrived_at_ns
        union all
        select source_id, clock, arrived_at_ns, true, 0
        from presences
    ) as every_change
    where (source_id, clock) in (
        select (source_id, clock)
        from presences
        group by source_id, clock
        having count(ended_at_ns) >= 0.95 * count(*)
    )
    group by source_id, clock, at_ns, is_arrival
),
loads as (   -- one row per distinct arrival: requests in flight just before it
    select
        source_id,
        clock,
        at_ns,
        is_arrival,
        coalesce(
            sum(change) over (
                partition by source_id, clock
                order by at_ns, is_arrival
                rows between unbounded preceding and 1 preceding
            ),
            0
        )::double as in_flight
    from changes
),
outcomes as (   -- one row per request and outcome that it knows
    select
        traffic,
        ttft_at,
        prompt_bucket,
        request_key,
        source_id,
        clock,
        arrived_at_ns,
        prompt_tokens,
        cached_tokens,
        queue_ms,
        outcome,
        outcome_ms
    from (
        unpivot (select *, queue_ms as queue_kept from served)
        on ttft, after_queue
        into name outcome value outcome_ms
    ) as unpivoted
),
known as (   -- one row per request and outcome, with its load where all of the bucket know it
    select
        outcomes.*,
        case
            when count(loads.in_flight) over bucket = count(*) over bucket then loads.in_flight
        end as in_flight,
        case
            when count(outcomes.queue_ms) over bucket = count(*) over bucket then outcomes.queue_ms
        end as queue_known_ms,
        count(*) over bucket as bucket_requests
    from outcomes
    left join loads
        on loads.source_id = outcomes.source_id
        and loads.clock = outcomes.clock
        and loads.at_ns = outcomes.arrived_at_ns
        and loads.is_arrival
    window bucket as (partition by traffic, ttft_at, outcome, prompt_bucket)
),
enough as (   -- one row per such request of a bucket with 20 or more
    select *
    from known
    where bucket_requests >= 20
),
length_lines as (   -- one row per bucket: means, and lines over the prompt length (slope 0 where it is constant)
    select
        traffic,
        ttft_at,
        outcome,
        prompt_bucket,
        count(*) as n,
        avg(prompt_tokens order by request_key) as mean_prompt,
        avg(cached_tokens order by request_key) as mean_cached,
        avg(outcome_ms order by request_key) as mean_outcome,
        avg(in_flight order by request_key) as mean_load,
        avg(queue_known_ms order by request_key) as mean_queue,
        max(prompt_tokens) > min(prompt_tokens) as has_lengths,
        regr_sxx(outcome_ms, prompt_tokens order by request_key) as length_squares,
        if(has_lengths, regr_slope(outcome_ms, prompt_tokens order by request_key), 0) as outcome_slope,
        if(has_lengths, regr_slope(cached_tokens, prompt_tokens order by request_key), 0) as cached_slope,
        if(has_lengths, regr_slope(in_flight, prompt_tokens order by request_key), 0) as load_slope,
        if(has_lengths, regr_slope(queue_known_ms, prompt_tokens order by request_key), 0) as queue_slope
    from enough
    group by traffic, ttft_at, outcome, prompt_bucket
),
without_length as (   -- one row per request: what its length does not say
    select
        enough.traffic,
        enough.ttft_at,
        enough.outcome,
        enough.prompt_bucket,
        enough.request_key,
        lines.n,
        lines.mean_prompt,
        lines.mean_cached,
        lines.mean_outcome,
        lines.has_lengths,
        enough.outcome_ms - lines.mean_outcome
            - lines.outcome_slope * (enough.prompt_tokens - lines.mean_prompt) as outcome_left,
        enough.cached_tokens - lines.mean_cached
            - lines.cached_slope * (enough.prompt_tokens - lines.mean_prompt) as cached_left,
        enough.in_flight - lines.mean_load
            - lines.load_slope * (enough.prompt_tokens - lines.mean_prompt) as load_left,
        enough.queue_known_ms - lines.mean_queue
            - lines.queue_slope * (enough.prompt_tokens - lines.mean_prompt) as queue_left,
        (enough.cached_tokens - lines.mean_cached) ** 2 as cached_2,
        (enough.in_flight - lines.mean_load) ** 2 as load_2,
        (enough.queue_known_ms - lines.mean_queue) ** 2 as queue_2,
        1.0 / lines.n + if(
            lines.has_lengths,
            (enough.prompt_tokens - lines.mean_prompt) ** 2 / lines.length_squares,
            0
        ) as leverage
    from enough
    join length_lines as lines
        on lines.traffic = enough.traffic
        and lines.ttft_at = enough.ttft_at
        and lines.outcome = enough.outcome
        and lines.prompt_bucket = enough.prompt_bucket
),
load_lines as (   -- one row per bucket: lines over the load that is left; null squares where there is none
    select
        traffic,
        ttft_at,
        outcome,
        prompt_bucket,
        case
            when fsum(load_left ** 2 order by request_key) > 1e-9 * fsum(load_2 order by request_key)
            then fsum(load_left ** 2 order by request_key)
        end as load_squares,
        fsum(load_left * outcome_left order by request_key) / load_squares as outcome_slope,
        fsum(load_left * cached_left order by request_key) / load_squares as cached_slope
    from without_length
    group by traffic, ttft_at, outcome, prompt_bucket
),
left_over as (   -- one row per request: what neither length nor load says
    select
        one.traffic,
        one.ttft_at,
        one.outcome,
        one.prompt_bucket,
        one.request_key,
        one.mean_prompt,
        one.mean_cached,
        one.mean_outcome,
        one.cached_2,
        one.queue_2,
        one.outcome_left - coalesce(lines.outcome_slope * one.load_left, 0) as y,
        one.cached_left - coalesce(lines.cached_slope * one.load_left, 0) as c,
        one.cached_left,
        one.queue_left,
        one.leverage + coalesce(one.load_left ** 2 / lines.load_squares, 0) as leverage,
        one.load_left is not null as is_load_held,
        (1 + one.has_lengths::integer + (lines.load_squares is not null)::integer)::double / one.n
            as controls
    from without_length as one
    join load_lines as lines
        on lines.traffic = one.traffic
        and lines.ttft_at = one.ttft_at
        and lines.outcome = one.outcome
        and lines.prompt_bucket = one.prompt_bucket
),
grouped as (   -- one row per request, once in its bucket and once in all of them (null)
    select
        left_over.* exclude (prompt_bucket),
        case when is_alone then prompt_bucket end as prompt_bucket
    from left_over, (values (true), (false)) as ways (is_alone)
),
slopes as (   -- one row per bucket, and of all: the slope of what is left
    select
        traffic,
        ttft_at,
        outcome,
        prompt_bucket,
        count(*) as n,
        round(fsum(controls order by request_key)) + 1 as coefficients,
        fsum(mean_prompt order by request_key) / count(*) as mean_prompt_tokens,
        fsum(mean_cached order by request_key) / count(*) as mean_cached_tokens,
        fsum(mean_outcome order by request_key) / count(*) as mean_ms,
        bool_and(is_load_held) as is_load_held,
        case
            when fsum(c ** 2 order by request_key) > 1e-9 * fsum(cached_2 order by request_key)
            then fsum(c ** 2 order by request_key)
        end as cached_squares,
        fsum(c * y order by request_key) / cached_squares as slope,
        case
            when count(queue_left) = count(*)
                and fsum(queue_left ** 2 order by request_key) > 1e-9 * fsum(queue_2 order by request_key)
            then fsum(cached_left * queue_left order by request_key)
                / nullif(
                    sqrt(fsum(cached_left ** 2 order by request_key))
                        * sqrt(fsum(queue_left ** 2 order by request_key)),
                    0
                )
        end as cached_queue_correlation
    from grouped
    group by traffic, ttft_at, outcome, prompt_bucket
),
errors as (   -- one row per bucket, and of all: the standard error of the slope; null where one request decides
    select
        slopes.traffic,
        slopes.ttft_at,
        slopes.outcome,
        slopes.prompt_bucket,
        case
            when max(one.leverage + one.c ** 2 / slopes.cached_squares) < 1 - 1e-9
            then sqrt(
                fsum(
                    (
                        one.c * (one.y - slopes.slope * one.c)
                        / (1 - one.leverage - one.c ** 2 / slopes.cached_squares)
                    ) ** 2
                    order by one.request_key
                )
            ) / any_value(slopes.cached_squares)
        end as slope_error
    from grouped as one
    join slopes
        on slopes.traffic = one.traffic
        and slopes.ttft_at = one.ttft_at
        and slopes.outcome = one.outcome
        and one.prompt_bucket is not distinct from slopes.prompt_bucket
    group by slopes.traffic, slopes.ttft_at, slopes.outcome, slopes.prompt_bucket
),
tested as (   -- one row per bucket, and of all: what is saved, with t at 97.5 %
    select
        slopes.*,
        -1000 * slopes.slope as saved,
        1000 * errors.slope_error as saved_error,
        slopes.n - slopes.coefficients as freedom,
        1.959963984540054
            + 2.372271229 / freedom
            + 2.822495 / freedom ** 2
            + 2.555850 / freedom ** 3
            + 1.589536 / freedom ** 4 as t
    from slopes
    join errors
        on errors.traffic = slopes.traffic
        and errors.ttft_at = slopes.ttft_at
        and errors.outcome = slopes.outcome
        and errors.prompt_bucket is not distinct from slopes.prompt_bucket
),
ended as (   -- one row per bucket, and of all, with its interval
    select
        *,
        saved - t * saved_error as saved_low,
        saved + t * saved_error as saved_high
    from tested
)
select
    traffic,                                               -- name: production | benchmark
    ttft_at,                                               -- name: engine (TTFT from arrival, at the engine or gateway) | client (as a client saw it)
    outcome,                                               -- name: ttft | after_queue (TTFT less the queue)
    prompt_bucket,                                         -- tokens: lower bound of the half-open range up to twice this; null: all buckets, each with its own lines
    n::bigint as requests,                                 -- requests: with known prompt, cached tokens and outcome
    mean_prompt_tokens,                                    -- tokens: mean prompt
    mean_cached_tokens,                                    -- tokens: mean cached tokens of a request
    mean_ms,                                               -- ms: mean outcome
    is_load_held,                                          -- flag: requests in flight at the arrival are held fixed too
    saved as saved_ms_per_1000_cached,                     -- ms: sooner for 1 000 cached tokens more at the same length; below 0: later; null where cached tokens are constant or follow from length and load
    saved_error as saved_error_ms,                         -- ms: its standard error
    saved_low as saved_low_ms,                             -- ms: lower end of its 95 % interval
    saved_high as saved_high_ms,                           -- ms: upper end
    case
        when saved_low > 0 then 'sooner'
        when saved_high < 0 then 'later'
        else 'cannot tell'
    end as with_hits,                                      -- name: sooner | later | cannot tell (the interval holds 0, or is not known)
    cached_queue_correlation                               -- correlation: of cached tokens and queue at equal length; null unless all know the queue and it varies
from ended
order by traffic, ttft_at, outcome, prompt_bucket nulls first
