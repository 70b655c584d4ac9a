-- name: reuse/still_climbing
-- question: Does reuse still climb at the end of the window, so that a longer log would show more?
-- grain: one row, none without a clock
-- params: none
-- reads: requests, reuse
-- order: slices (a single row)
-- note: the rule: of the slices of reuse/over_time that hold prompt tokens, the last third against
-- note: the third before it. climbing or falling: 0 lies outside the interval of the change.
-- note: the interval: 95 % by Student's t over slices, which are taken as independent; the variance
-- note: of a ratio of sums R = Σr / Σn over k slices is k / (k - 1) × Σ(r - R n)² / (Σn)².
-- note: null figures: fewer than 6 slices hold prompt tokens, or there are no blocks.
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
span as (   -- one row: the slices of reuse/over_time
    select
        min(arrived_at_ns) as start_ns,
        ((max(arrived_at_ns) - min(arrived_at_ns)) // 24 // coalesce(min(step_ns), 1) + 1)
            * coalesce(min(step_ns), 1) as slice_ns
    from arrivals
),
per_slice as (   -- one row per slice that holds prompt tokens
    select
        (timed.arrived_at_ns - span.start_ns) // span.slice_ns as slice,
        sum(timed.prompt_tokens) as prompt_tokens,
        sum(timed.reusable_tokens) as reusable_tokens
    from timed, span
    group by slice
    having sum(timed.prompt_tokens) > 0
),
placed as (   -- one row per slice: the third that it is in, 0 the last, 1 the one before, 2 the rest
    select
        slice,
        prompt_tokens,
        reusable_tokens,
        count(*) over () as slices,
        count(*) over () // 3 as third_slices,
        (row_number() over (order by slice desc) - 1) // nullif(count(*) over () // 3, 0) as third
    from per_slice
),
thirds as (   -- one row per third, of at least two slices
    select
        third,
        sum(prompt_tokens) as prompt_tokens,
        sum(reusable_tokens) as reusable_tokens,
        sum(reusable_tokens) / sum(prompt_tokens) as reusable_ratio
    from placed
    where third_slices >= 2
    group by third
),
spreads as (   -- one row per third: the variance of its ratio
    select
        thirds.third,
        max(placed.third_slices) / nullif(max(placed.third_slices) - 1, 0)
            * fsum(
                pow(placed.reusable_tokens - thirds.reusable_ratio * placed.prompt_tokens, 2)
                order by placed.slice
            ) / pow(max(thirds.prompt_tokens), 2) as variance
    from placed
    join thirds on thirds.third = placed.third
    group by thirds.third
),
compared as (   -- one row: both thirds, and half the width of the interval
    select
        (select count(*) from per_slice) as slices,
        before_last.prompt_tokens as before_prompt_tokens,
        before_last.reusable_tokens as before_reusable_tokens,
        before_last.reusable_ratio as before_ratio,
        last_third.prompt_tokens as last_prompt_tokens,
        last_third.reusable_tokens as last_reusable_tokens,
        last_third.reusable_ratio as last_ratio,
        sqrt(before_spread.variance + last_spread.variance)
            * [4.303, 2.776, 2.447, 2.306, 2.228, 2.179, 2.145][
                (select max(third_slices) - 1 from placed)
            ] as half_width   -- Student's t at 97.5 % with 2 × third_slices - 2 degrees of freedom
    from (values (1)) as one_row (one)
    left join thirds as last_third on last_third.third = 0
    left join thirds as before_last on before_last.third = 1
    left join spreads as last_spread on last_spread.third = last_third.third
    left join spreads as before_spread on before_spread.third = before_last.third
)
select
    slices::bigint as slices,                              -- slices: that hold prompt tokens, at most 24
    before_reusable_tokens::bigint as before_reusable_tokens,   -- tokens: reusable in the third before the last
    before_prompt_tokens::bigint as before_prompt_tokens,  -- tokens: prompts there
    before_ratio::double as before_reusable_ratio_tokens,  -- ratio: before_reusable_tokens / before_prompt_tokens
    last_reusable_tokens::bigint as last_reusable_tokens,  -- tokens: reusable in the last third
    last_prompt_tokens::bigint as last_prompt_tokens,      -- tokens: prompts there
    last_ratio::double as last_reusable_ratio_tokens,      -- ratio: last_reusable_tokens / last_prompt_tokens
    last_ratio - before_ratio as change_ratio,             -- ratio: last - before
    last_ratio - before_ratio - half_width as change_low_ratio,    -- ratio: lower end of the 95 % interval of the change
    last_ratio - before_ratio + half_width as change_high_ratio,   -- ratio: upper end of it
    case
        when last_ratio - before_ratio - half_width > 0 then 'climbing'
        when last_ratio - before_ratio + half_width < 0 then 'falling'
        when half_width is not null then 'level'
    end as trend   -- name: climbing (a longer log would show more reuse) | falling | level (no change that stands out); null: cannot tell
from compared
where slices > 0
order by slices
