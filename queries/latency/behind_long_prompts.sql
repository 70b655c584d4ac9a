-- name: latency/behind_long_prompts
-- question: Do short prompts wait longer for their first token while a long prompt is being worked on?
-- grain: one row per traffic and ttft_at that holds long and short prompts
-- params: long_prompt_tokens BIGINT = null
-- reads: requests
-- order: traffic, ttft_at
-- note: long: of at least long_prompt_tokens; without it, four times the median prompt or more, and above
-- note: the P90. short: less than a quarter of that bound. behind: the first token of some long prompt was
-- note: still to come when the short one arrived.
-- note: added is the mean TTFT of short prompts behind a long one less that of the others, at equal numbers
-- note: of other requests that wait for their first token (powers of two), weighed by those behind.
-- note: Interval: ± 1.96 × SE, SE² = sum of weight² × (variance / requests) of both.
-- note: the logs name no instance: a long prompt on another instance delays nobody, so that this is a
-- note: lower bound for fleets. Clocks that give only an order, and requests without TTFT, are left out.
with timed as (   -- one row per ok headline request with prompt, arrival and TTFT
    select
        request_key,
        case when is_benchmark then 'benchmark' else 'production' end as traffic,
        case when ttft_from = 'client' then 'client' else 'engine' end as ttft_at,
        source_id,
        clock,
        prompt_tokens,
        arrived_at_ns,
        case when ttft_from = 'scheduled' then ttft_ns + queue_ns else ttft_ns end as ttft_ns
    from requests
    where is_headline
        and status = 'ok'
        and clock != 'order'
        and prompt_tokens > 0
        and arrived_at_ns is not null
        and case when ttft_from = 'scheduled' then ttft_ns + queue_ns else ttft_ns end >= 0
        and not list_has_any(flags, ['time_order', 'ttft_above_e2e'])
),
limits as (   -- one row per group: from how many tokens on a prompt is long
    select
        traffic,
        ttft_at,
        coalesce(
            getvariable('long_prompt_tokens')::bigint,
            greatest(
                4 * quantile_cont(prompt_tokens, 0.5), quantile_cont(prompt_tokens, 0.9)
            )::bigint
        ) as long_tokens
    from timed
    group by traffic, ttft_at
),
marked as (   -- one row per timed request, long, short or neither
    select
        timed.*,
        limits.long_tokens,
        timed.prompt_tokens >= limits.long_tokens as is_long,
        4 * timed.prompt_tokens < limits.long_tokens as is_short
    from timed
    join limits on limits.traffic = timed.traffic and limits.ttft_at = timed.ttft_at
),
changes as (   -- one row per instant at which first tokens come (first) or requests arrive
    select
        source_id,
        clock,
        at_ns,
        is_arrival,
        sum(change) as change,
        sum(long_change) as long_change
    from (
        select
            source_id,
            clock,
            arrived_at_ns as at_ns,
            true as is_arrival,
            1 as change,
            is_long::int as long_change
        from marked
        union all
        select source_id, clock, arrived_at_ns + ttft_ns, false, -1, -is_long::int
        from marked
        where ttft_ns > 0
        union all
        select source_id, clock, arrived_at_ns + 1, false, -1, -is_long::int
        from marked
        where ttft_ns = 0
    ) as every_change
    group by source_id, clock, at_ns, is_arrival
),
loads as (   -- one row per distinct instant: requests whose first token is still to come just before it
    select
        source_id,
        clock,
        at_ns,
        is_arrival,
        coalesce(sum(change) over before, 0) as waiting,
        coalesce(sum(long_change) over before, 0) as waiting_long
    from changes
    window before as (
        partition by source_id, clock
        order by at_ns, is_arrival
        rows between unbounded preceding and 1 preceding
    )
),
short_ones as (   -- one row per short prompt: whether it arrived behind a long one, and beside how many others
    select
        marked.traffic,
        marked.ttft_at,
        marked.request_key,
        marked.long_tokens,
        marked.ttft_ns,
        loads.waiting_long > 0 as is_behind,
        length(bin(greatest(loads.waiting - loads.waiting_long, 0)::bigint)) as company
    from marked
    join loads
        on loads.source_id = marked.source_id
        and loads.clock = marked.clock
        and loads.at_ns = marked.arrived_at_ns
        and loads.is_arrival
    where marked.is_short
),
strata as (   -- one row per group and company: both kinds of short prompts
    select
        traffic,
        ttft_at,
        company,
        count(*) filter (is_behind) as behind,
        count(*) filter (not is_behind) as ahead,
        sum(ttft_ns) filter (is_behind) / nullif(count(*) filter (is_behind), 0) / 1e6 as behind_ms,
        sum(ttft_ns) filter (not is_behind) / nullif(count(*) filter (not is_behind), 0) / 1e6
            as ahead_ms,
        var_samp(ttft_ns / 1e6 order by request_key) filter (is_behind) as behind_variance,
        var_samp(ttft_ns / 1e6 order by request_key) filter (not is_behind) as ahead_variance
    from short_ones
    group by traffic, ttft_at, company
),
added as (   -- one row per group: the mean that is added at equal company
    select
        traffic,
        ttft_at,
        sum(behind) as compared,
        fsum(behind * (behind_ms - ahead_ms) order by company) / sum(behind) as added_ms,
        sqrt(
            fsum(
                behind ** 2 * (behind_variance / behind + ahead_variance / ahead) order by company
            )
        ) / sum(behind) as error_ms
    from strata
    where least(behind, ahead) >= 2
    group by traffic, ttft_at
),
totals as (   -- one row per group
    select
        traffic,
        ttft_at,
        max(long_tokens) as long_tokens,
        count(*) as short_requests,
        count(*) filter (is_behind) as behind_requests,
        quantile_cont(ttft_ns, 0.5) filter (is_behind) / 1e6 as behind_p50_ms,
        quantile_cont(ttft_ns, 0.5) filter (not is_behind) / 1e6 as ahead_p50_ms,
        quantile_cont(ttft_ns, 0.99) / 1e6 as short_p99_ms,
        quantile_cont(ttft_ns, 0.99) filter (not is_behind) / 1e6 as ahead_p99_ms
    from short_ones
    group by traffic, ttft_at
)
select
    totals.traffic,                                         -- name: production | benchmark
    totals.ttft_at,                                         -- name: engine | client (as clients saw it)
    totals.long_tokens::bigint as long_prompt_tokens,       -- tokens: a prompt of so many or more is long
    (
        select count(*)
        from marked
        where marked.is_long
            and marked.traffic = totals.traffic
            and marked.ttft_at = totals.ttft_at
    )::bigint as long_requests,                             -- requests: long ones
    totals.short_requests::bigint as short_requests,        -- requests: short ones
    totals.behind_requests::bigint as behind_requests,      -- requests: of these, behind a long one on arrival
    totals.behind_p50_ms,                                   -- ms: median TTFT of those behind
    totals.ahead_p50_ms,                                    -- ms: median TTFT of the other short ones
    case when totals.short_requests >= 1000 then totals.short_p99_ms end as short_p99_ms,   -- ms: P99 of TTFT of all short ones; null below 1 000
    case
        when totals.short_requests - totals.behind_requests >= 1000 then totals.ahead_p99_ms
    end as ahead_p99_ms,                                    -- ms: P99 of those that are behind none; null below 1 000
    coalesce(added.compared, 0)::bigint as compared_requests,   -- requests: behind, with others of equal company to compare with
    added.added_ms,                                         -- ms: mean TTFT behind a long prompt less that of others, at equal company
    added.added_ms - 1.96 * added.error_ms as added_low_ms,    -- ms: 95 % low
    added.added_ms + 1.96 * added.error_ms as added_high_ms    -- ms: 95 % high
from totals
left join added on added.traffic = totals.traffic and added.ttft_at = totals.ttft_at
order by totals.traffic, totals.ttft_at
