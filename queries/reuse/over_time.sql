-- name: reuse/over_time
-- question: How does the reusable share change over the trace?
-- grain: one row per slice_start_ns; up to 24 equal slices of the span of arrivals
-- params: none
-- reads: requests, reuse
-- order: slice_start_ns
-- note: no rows without a clock; the first slices are low since nothing was seen before them.
with reused_requests as (   -- one row per request that has blocks
    select
        request_key,
        sum(token_count) filter (is_reusable) as reusable_tokens
    from reuse
    group by request_key
),
timed as (   -- one row per ok headline request with a known arrival
    select
        served.arrived_at_ns,
        served.prompt_tokens,
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
        sum(timed.prompt_tokens) as prompt_tokens,
        sum(timed.reusable_tokens) as reusable_tokens
    from timed, span, slices
    where slices.slice_start_ns
        = span.start_ns + (timed.arrived_at_ns - span.start_ns) // span.slice_ns * span.slice_ns
    group by slices.slice_start_ns
)
select
    slices.slice_start_ns::bigint as slice_start_ns,         -- ns: start of the slice, on the clock of the requests
    coalesce(per_slice.requests, 0)::bigint as requests,     -- requests: that arrived in the slice
    per_slice.prompt_tokens::bigint as prompt_tokens,        -- tokens: of these, where known
    per_slice.reusable_tokens::bigint as reusable_tokens,    -- tokens: that an unlimited cache would hold; null without blocks
    per_slice.reusable_tokens / nullif(per_slice.prompt_tokens, 0) as reusable_ratio_tokens   -- ratio: reusable_tokens / prompt_tokens; null in a slice without requests
from slices
left join per_slice on per_slice.slice_start_ns = slices.slice_start_ns
order by slices.slice_start_ns
