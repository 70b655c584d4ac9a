-- name: reuse/by_hour_of_day
-- question: At which hours of the day is there load, and how much of it could be reused?
-- grain: one row per clock and hour_of_day with a request
-- params: utc_offset_minutes BIGINT = 0
-- reads: requests, reuse
-- order: clock, hour_of_day
-- note: only clocks that know the time of day (utc, naive): no rows for relative ones.
-- note: utc_offset_minutes moves the hours, 480 for a day that begins 8 hours before UTC's.
with reused_requests as (   -- one row per request that has blocks
    select
        request_key,
        sum(token_count) filter (is_reusable) as reusable_tokens
    from reuse
    group by request_key
),
timed as (   -- one row per ok headline request on a clock with a time of day
    select
        served.clock,
        served.arrived_at_ns + getvariable('utc_offset_minutes')::bigint * 60000000000 as local_ns,
        served.prompt_tokens,
        case
            when exists (select 1 from reuse) and served.prompt_tokens is not null
            then coalesce(reused.reusable_tokens, 0)
        end as reusable_tokens
    from requests as served
    left join reused_requests as reused on reused.request_key = served.request_key
    where served.is_headline
        and served.status = 'ok'
        and served.clock in ('utc', 'naive')
        and served.arrived_at_ns is not null
),
placed as (   -- one row per such request: how long after midnight it arrived
    select
        clock,
        local_ns,
        (local_ns % 86400000000000 + 86400000000000) % 86400000000000 as since_midnight_ns,
        prompt_tokens,
        reusable_tokens
    from timed
),
hours as (   -- one row per clock and hour of the day
    select
        clock,
        since_midnight_ns // 3600000000000 as hour_of_day,
        count(distinct local_ns - since_midnight_ns) as days,
        count(*) as requests,
        sum(prompt_tokens) as prompt_tokens,
        sum(reusable_tokens) as reusable_tokens
    from placed
    group by clock, hour_of_day
)
select
    clock,                                                 -- name: utc | naive (local to the machine that wrote the log)
    hour_of_day::bigint as hour_of_day,                    -- h: 0 .. 23, moved by utc_offset_minutes
    days::bigint as days,                                  -- days: with a request at this hour
    requests::bigint as requests,                          -- requests: that arrived at this hour, on all days
    prompt_tokens::bigint as prompt_tokens,                -- tokens: of these, where known
    reusable_tokens::bigint as reusable_tokens,            -- tokens: that an unlimited cache would hold; null without blocks
    reusable_tokens / nullif(prompt_tokens, 0) as reusable_ratio_tokens,   -- ratio: reusable_tokens / prompt_tokens
    prompt_tokens / nullif(sum(prompt_tokens) over (partition by clock), 0) as prompt_tokens_share   -- ratio: of the prompt tokens on this clock
from hours
order by clock, hour_of_day
