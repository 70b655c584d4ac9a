-- name: latency/tail_causes
-- question: What do the slowest first tokens have that the others have not: length, bytes to move, or a queue?
-- grain: one row per traffic, ttft_at and cause that a request knows
-- params: tail_quantile DOUBLE = 0.9
-- reads: requests, transfers
-- order: traffic, ttft_at, kind, cause
-- note: the tail is every request with a TTFT above the tail_quantile of its group.
-- note: auc: chance that a request of the tail has more of the cause than another, ties half (the U of
-- note: Mann and Whitney over tail × rest, by mid-ranks); 0.5 says nothing. Interval: auc ± 1.96 × SE, SE by
-- note: DeLong, DeLong and Clarke-Pearson (Biometrics 44, 1988); of no width where tail and rest are apart.
-- note: spearman: correlation of the mid-ranks of cause and TTFT over all requests; interval by Fisher's z,
-- note: SE sqrt((1 + r²/2) / (n - 3)) (Bonett and Wright, Psychometrika 65, 2000). 95 % each; both take
-- note: requests as independent, so that bursts make the truth wider.
-- note: in_flight counts arrivals before less ends until the arrival, over all headline requests of the
-- note: clock; unknown unless 95 % of these know both instants. It stands for a queue that is not logged.
-- note: moved_tokens: cached tokens from below HBM; moved_bytes: loads of the request that logs name.
-- note: cached_tokens are those of all tiers, an upper limit of what was moved.
-- note: requests with times that contradict each other are left out; benchmark traffic is apart.
with served as (   -- one row per ok headline request whose times agree, with a TTFT from arrival or client
    select
        request_key,
        source_id,
        request_id_key,
        clock,
        arrived_at_ns,
        case when is_benchmark then 'benchmark' else 'production' end as traffic,
        case when ttft_from = 'client' then 'client' else 'engine' end as ttft_at,
        case when ttft_from = 'scheduled' then ttft_ns + queue_ns else ttft_ns end as ttft_ns,
        queue_ns,
        case when prompt_tokens >= 0 then prompt_tokens end as prompt_tokens,
        case when cached_tokens between 0 and prompt_tokens then cached_tokens end as cached_tokens,
        case when computed_tokens between 0 and prompt_tokens then computed_tokens end
            as computed_tokens,
        cached_device_tokens,
        case
            when least(cached_host_tokens, cached_disk_tokens, cached_remote_tokens) >= 0
            then coalesce(cached_host_tokens, 0)
                + coalesce(cached_disk_tokens, 0)
                + coalesce(cached_remote_tokens, 0)
        end as below_tokens
    from requests
    where is_headline
        and status = 'ok'
        and case when ttft_from = 'scheduled' then ttft_ns + queue_ns else ttft_ns end is not null
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
        ) as in_flight
    from changes
),
moves as (   -- one row per request id whose loads all say their bytes
    select request_id_key, sum(moved_bytes) as moved_bytes
    from transfers
    where direction = 'load' and request_id_key is not null
    group by request_id_key
    having count(moved_bytes) = count(*)
),
limits as (   -- one row per group: where its tail begins
    select
        traffic,
        ttft_at,
        quantile_cont(ttft_ns, coalesce(getvariable('tail_quantile')::double, 0.9)) as tail_from_ns
    from served
    group by traffic, ttft_at
),
known as (   -- one row per request with what may have made it slow
    select
        served.traffic,
        served.ttft_at,
        served.ttft_ns,
        limits.tail_from_ns,
        served.ttft_ns > limits.tail_from_ns as is_tail,
        served.prompt_tokens::double as prompt_tokens,
        coalesce(served.computed_tokens, served.prompt_tokens - served.cached_tokens)::double
            as computed_tokens,
        served.cached_tokens::double as cached_tokens,
        coalesce(
            served.below_tokens,
            case
                when served.cached_device_tokens between 0 and served.cached_tokens
                then served.cached_tokens - served.cached_device_tokens
            end
        )::double as moved_tokens,
        moves.moved_bytes::double as moved_bytes,
        served.queue_ns / 1e6 as queue_ms,
        loads.in_flight::double as in_flight
    from served
    join limits on limits.traffic = served.traffic and limits.ttft_at = served.ttft_at
    left join moves on moves.request_id_key = served.request_id_key
    left join loads
        on loads.source_id = served.source_id
        and loads.clock = served.clock
        and loads.at_ns = served.arrived_at_ns
        and loads.is_arrival
),
causes as (   -- one row per request and cause that it knows; place: group and cause as a number
    select
        traffic,
        ttft_at,
        cause,
        ttft_ns,
        tail_from_ns,
        is_tail,
        amount,
        (list_position(['benchmark', 'production'], traffic) * 2
            + list_position(['client', 'engine'], ttft_at)) * 16
            + list_position(
                [
                    'prompt_tokens',
                    'computed_tokens',
                    'cached_tokens',
                    'moved_tokens',
                    'moved_bytes',
                    'queue_ms',
                    'in_flight'
                ],
                cause
            ) as place
    from (
        unpivot known
        on prompt_tokens, computed_tokens, cached_tokens, moved_tokens, moved_bytes, queue_ms, in_flight
        into name cause value amount
    ) as unpivoted
),
ranked as (   -- one row per request and cause: twice its mid-ranks (first + last rank of its ties)
    select
        traffic,
        ttft_at,
        cause,
        tail_from_ns,
        is_tail,
        amount,
        rank() over of_amount + count(*) over of_amount as amount_rank,
        rank() over of_side + count(*) over of_side as own_rank,
        rank() over of_ttft + count(*) over of_ttft as ttft_rank
    from causes
    window
        of_amount as (partition by place order by amount),
        of_side as (partition by place, is_tail order by amount),
        of_ttft as (partition by place order by ttft_ns)
),
placed as (   -- one row per request and cause: twice the requests of the other side that have less
    select
        *,
        amount_rank - own_rank as below
    from ranked
),
summed as (   -- one row per group and cause: whole-number sums
    select
        traffic,
        ttft_at,
        cause,
        any_value(tail_from_ns) as tail_from_ns,
        count(*)::hugeint as n,
        (count(*) filter (is_tail))::hugeint as tail,
        (count(*) filter (not is_tail))::hugeint as rest,
        quantile_cont(amount, 0.5) filter (is_tail) as tail_p50,
        quantile_cont(amount, 0.5) filter (not is_tail) as rest_p50,
        sum(below) filter (is_tail) as tail_below,
        sum(below::hugeint * below) filter (is_tail) as tail_below_2,
        sum(below) filter (not is_tail) as rest_below,
        sum(below::hugeint * below) filter (not is_tail) as rest_below_2,
        sum(amount_rank) as a,
        sum(ttft_rank) as t,
        sum(amount_rank::hugeint * amount_rank) as a_2,
        sum(ttft_rank::hugeint * ttft_rank) as t_2,
        sum(amount_rank::hugeint * ttft_rank) as a_t
    from placed
    group by traffic, ttft_at, cause
),
tested as (   -- one row per group and cause: AUC and rank correlation with their standard errors
    select
        *,
        tail_below / nullif(2 * tail * rest, 0) as auc,
        sqrt(
            (tail * tail_below_2 - tail_below * tail_below)::double
                / nullif(4.0 * tail * (tail - 1) * rest * rest * tail, 0)
            + (rest * rest_below_2 - rest_below * rest_below)::double
                / nullif(4.0 * rest * (rest - 1) * tail * tail * rest, 0)
        ) as auc_error,
        (n * a_t - a * t)::double
            / nullif(sqrt((n * a_2 - a * a)::double) * sqrt((n * t_2 - t * t)::double), 0)
            as spearman
    from summed
),
bounded as (   -- one row per group and cause: the correlation inside its limits, and its error of z
    select
        * exclude (spearman),
        case when spearman is not null then greatest(-1.0, least(1.0, spearman)) end as spearman,
        case when n > 3 then sqrt((1 + spearman * spearman / 2) / (n - 3)) end as z_error
    from tested
)
select
    traffic,                                               -- name: production | benchmark
    ttft_at,                                               -- name: engine (TTFT from arrival, at the engine or gateway) | client (as a client saw it)
    case
        when cause in ('prompt_tokens', 'computed_tokens') then 'length'
        when cause in ('cached_tokens', 'moved_tokens', 'moved_bytes') then 'bytes_moved'
        else 'queueing'
    end as kind,                                           -- name: length | bytes_moved | queueing
    cause,                                                 -- name: prompt_tokens | computed_tokens | cached_tokens | moved_tokens | moved_bytes | queue_ms | in_flight (requests)
    n::bigint as requests,                                 -- requests: with a known TTFT that know this cause
    tail::bigint as tail_requests,                         -- requests: of these, in the tail
    tail_from_ms,                                          -- ms: TTFT above which a request is in the tail
    tail_p50,                                              -- `cause`: median over the tail, in tokens, bytes, ms or requests
    rest_p50,                                              -- `cause`: median over the others
    auc,                                                   -- ratio: chance that one of the tail has more of it than one of the others; null without both
    auc_low,                                               -- ratio: lower end of its 95 % interval; null below two on a side
    auc_high,                                              -- ratio: upper end
    spearman,                                              -- correlation: of the ranks of cause and TTFT; null when either is constant
    spearman_low,                                          -- correlation: lower end of its 95 % interval; null below four requests
    spearman_high                                          -- correlation: upper end
from (
    select
        *,
        tail_from_ns / 1e6 as tail_from_ms,
        case when auc_error is not null then greatest(0.0, auc - 1.959963984540054 * auc_error) end as auc_low,
        case when auc_error is not null then least(1.0, auc + 1.959963984540054 * auc_error) end as auc_high,
        tanh(atanh(spearman) - 1.959963984540054 * z_error) as spearman_low,
        tanh(atanh(spearman) + 1.959963984540054 * z_error) as spearman_high
    from bounded
) as ended
order by traffic, ttft_at, kind, cause
