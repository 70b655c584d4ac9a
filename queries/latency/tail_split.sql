-- name: latency/tail_split
-- question: Of what the slowest first tokens take longer, how much is queue and how much is prefill?
-- grain: one row per traffic and ttft_at with a request that knows TTFT and queue
-- params: tail_quantile DOUBLE = 0.9
-- reads: requests
-- order: traffic, ttft_at
-- note: over requests that know both. The tail is every one above the tail_quantile of their TTFT.
-- note: excess = mean of the tail - mean of the others, for TTFT and for each part, so that the parts add
-- note: up: excess = excess_queue + excess_prefill + excess_other.
-- note: queue_share = R = excess_queue / excess; interval R ± 1.96 × SE with
-- note: SE² = (var(d | tail) / tail + var(d | others) / others) / excess², d = queue - R × TTFT (delta
-- note: method, the tail taken as given); requests are taken as independent.
-- note: requests with times that contradict each other are left out; benchmark traffic is apart.
with served as (   -- one row per ok headline request whose times agree, with TTFT and queue
    select
        request_key,
        case when is_benchmark then 'benchmark' else 'production' end as traffic,
        case when ttft_from = 'client' then 'client' else 'engine' end as ttft_at,
        case when ttft_from = 'scheduled' then ttft_ns + queue_ns else ttft_ns end as ttft_ns,
        queue_ns,
        prefill_ns
    from requests
    where is_headline
        and status = 'ok'
        and ttft_ns is not null
        and queue_ns is not null
        and not list_has_any(flags, ['time_order', 'ttft_above_e2e'])
        and coalesce(least(queue_ns, prefill_ns, ttft_ns, tpot_ns, e2e_ns) >= 0, true)
        and coalesce(
            ttft_ns + case when ttft_from = 'scheduled' then coalesce(queue_ns, 0) else 0 end
                <= e2e_ns,
            true
        )
        and coalesce(ttft_from = 'scheduled' or queue_ns <= ttft_ns, true)
),
limits as (   -- one row per group: where its tail begins
    select
        traffic,
        ttft_at,
        quantile_cont(ttft_ns, coalesce(getvariable('tail_quantile')::double, 0.9)) as tail_from_ns
    from served
    group by traffic, ttft_at
),
sided as (   -- one row per request: on which side it is
    select
        served.*,
        limits.tail_from_ns,
        served.ttft_ns > limits.tail_from_ns as is_tail
    from served
    join limits on limits.traffic = served.traffic and limits.ttft_at = served.ttft_at
),
means as (   -- one row per group: means of both sides, in ms
    select
        traffic,
        ttft_at,
        any_value(tail_from_ns) / 1e6 as tail_from_ms,
        count(*) as requests,
        count(*) filter (is_tail) as tail,
        count(*) filter (not is_tail) as rest,
        sum(ttft_ns) filter (is_tail) / 1e6 / (count(*) filter (is_tail)) as tail_ttft,
        sum(ttft_ns) filter (not is_tail) / 1e6 / (count(*) filter (not is_tail)) as rest_ttft,
        sum(queue_ns) filter (is_tail) / 1e6 / (count(*) filter (is_tail)) as tail_queue,
        sum(queue_ns) filter (not is_tail) / 1e6 / (count(*) filter (not is_tail)) as rest_queue,
        case
            when count(prefill_ns) = count(*)
            then sum(prefill_ns) filter (is_tail) / 1e6 / (count(*) filter (is_tail))
                - sum(prefill_ns) filter (not is_tail) / 1e6 / (count(*) filter (not is_tail))
        end as excess_prefill,
        case
            when count(prefill_ns) = count(*)
            then sum(ttft_ns - queue_ns - prefill_ns) filter (is_tail) / 1e6
                / (count(*) filter (is_tail))
                - sum(ttft_ns - queue_ns - prefill_ns) filter (not is_tail) / 1e6
                / (count(*) filter (not is_tail))
        end as excess_other
    from sided
    group by traffic, ttft_at
),
shares as (   -- one row per group: the share of the queue
    select
        *,
        tail_ttft - rest_ttft as excess,
        tail_queue - rest_queue as excess_queue,
        (tail_queue - rest_queue) / nullif(tail_ttft - rest_ttft, 0) as queue_share
    from means
),
residuals as (   -- one row per request: d less its mean over the side, squared
    select
        sided.traffic,
        sided.ttft_at,
        sided.request_key,
        sided.is_tail,
        (
            (sided.queue_ns / 1e6 - case when sided.is_tail then shares.tail_queue else shares.rest_queue end)
            - shares.queue_share * (
                sided.ttft_ns / 1e6 - case when sided.is_tail then shares.tail_ttft else shares.rest_ttft end
            )
        ) ** 2 as residual_2
    from sided
    join shares on shares.traffic = sided.traffic and shares.ttft_at = sided.ttft_at
),
errors as (   -- one row per group: variance of the mean of d, tail and others added
    select
        traffic,
        ttft_at,
        fsum(residual_2 order by request_key) filter (is_tail)
            / nullif((count(*) filter (is_tail)) * ((count(*) filter (is_tail)) - 1), 0)
            + fsum(residual_2 order by request_key) filter (not is_tail)
            / nullif((count(*) filter (not is_tail)) * ((count(*) filter (not is_tail)) - 1), 0)
            as variance
    from residuals
    group by traffic, ttft_at
),
ended as (   -- one row per group, with the half width of its interval
    select
        shares.*,
        1.959963984540054 * sqrt(errors.variance) / abs(nullif(shares.excess, 0)) as half_width
    from shares
    join errors on errors.traffic = shares.traffic and errors.ttft_at = shares.ttft_at
)
select
    traffic,                                               -- name: production | benchmark
    ttft_at,                                               -- name: engine (TTFT from arrival, at the engine or gateway) | client (as a client saw it)
    requests::bigint as requests,                          -- requests: that know TTFT and queue
    tail::bigint as tail_requests,                         -- requests: of these, in the tail
    tail_from_ms,                                          -- ms: TTFT above which a request is in the tail
    tail_ttft as tail_ttft_mean_ms,                        -- ms: mean TTFT of the tail; null without a tail
    rest_ttft as rest_ttft_mean_ms,                        -- ms: mean TTFT of the others
    excess as excess_ms,                                   -- ms: the difference of these means
    excess_queue as excess_queue_ms,                       -- ms: of it, arrival to first scheduled
    excess_prefill as excess_prefill_ms,                   -- ms: of it, first scheduled to first token; null unless all of them know it
    excess_other as excess_other_ms,                       -- ms: of it, neither; null where the prefill is
    queue_share,                                           -- ratio: excess_queue_ms / excess_ms
    queue_share - half_width as queue_share_low,           -- ratio: lower end of its 95 % interval; null below two on a side
    queue_share + half_width as queue_share_high           -- ratio: upper end
from ended
order by traffic, ttft_at
