-- name: coverage/over_time
-- question: How does the load change over the trace, and are there holes?
-- grain: one row per slice_start_ns; up to 24 equal slices of the span of arrivals
-- params: none
-- reads: requests
-- order: slice_start_ns
-- note: no rows without a clock.
with timed as (   -- one row per ok headline request with a known arrival
    select
        arrived_at_ns,
        prompt_tokens,
        output_tokens
    from requests
    where is_headline and status = 'ok' and clock != 'order' and arrived_at_ns is not null
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
        sum(timed.output_tokens) as output_tokens
    from timed, span, slices
    where slices.slice_start_ns
        = span.start_ns + (timed.arrived_at_ns - span.start_ns) // span.slice_ns * span.slice_ns
    group by slices.slice_start_ns
)
select
    slices.slice_start_ns::bigint as slice_start_ns,       -- ns: start of the slice, on the clock of the requests
    coalesce(per_slice.requests, 0)::bigint as requests,   -- requests: `ok` requests that arrived in the slice
    per_slice.prompt_tokens::bigint as prompt_tokens,      -- tokens: of these, where known
    per_slice.output_tokens::bigint as output_tokens,      -- tokens: of these, where known
    case when span.span_ns > 0 then coalesce(per_slice.requests, 0) / (slices.slice_ns / 1e9) end as requests_per_s   -- requests/s: requests / length of the slice; null when all arrive at once
from slices
cross join span
left join per_slice on per_slice.slice_start_ns = slices.slice_start_ns
order by slices.slice_start_ns
