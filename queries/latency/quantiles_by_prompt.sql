-- name: latency/quantiles_by_prompt
-- question: How does each quantile of latency change with the prompt length?
-- grain: one row per traffic, metric and prompt_bucket that a request knows
-- params: none
-- reads: requests
-- order: traffic, metric, prompt_bucket
-- note: low and high are order statistics: with B binomial (n, p), x(l) to x(u) cover the quantile with
-- note: probability P(l <= B <= u - 1) >= 0.95 whatever the distribution (David and Nagaraja, Order
-- note: Statistics, 7.1): l - 1 is the largest k with P(B <= k) <= 0.025, u - 1 the smallest with
-- note: P(B <= k) >= 0.975. Independent requests are assumed: bursts make the truth wider.
-- note: A quantile is withheld where u > n: p50 below 6 requests, p90 below 36, p95 below 72; p99 below
-- note: 1 000. Requests with times that contradict each other are left out; benchmark traffic is apart.
with served as (   -- one row per ok headline request whose times agree
    select
        case when is_benchmark then 'benchmark' else 'production' end as traffic,
        case
            when prompt_tokens > 0 then 1::bigint << (length(bin(prompt_tokens)) - 1)
            else 0
        end as prompt_bucket,
        case ttft_from when 'arrival' then ttft_ns when 'scheduled' then ttft_ns + queue_ns end as ttft,
        case when ttft_from = 'client' then ttft_ns end as ttft_client,
        queue_ns as queue,
        prefill_ns as prefill,
        tpot_ns as tpot,
        e2e_ns as e2e
    from requests
    where is_headline
        and status = 'ok'
        and not list_has_any(flags, ['time_order', 'ttft_above_e2e'])
        and coalesce(least(queue_ns, prefill_ns, ttft_ns, tpot_ns, e2e_ns) >= 0, true)
        and coalesce(
            ttft_ns + case when ttft_from = 'scheduled' then coalesce(queue_ns, 0) else 0 end
                <= e2e_ns,
            true
        )
        and coalesce(ttft_from = 'scheduled' or queue_ns <= ttft_ns, true)
        and prompt_tokens >= 0
),
times as (   -- one row per such request and known time
    select
        traffic,
        prompt_bucket,
        metric,
        value_ns
    from (
        unpivot served
        on ttft, ttft_client, queue, prefill, tpot, e2e
        into name metric value value_ns
    ) as unpivoted
),
sorted as (   -- one row per group, its times in order
    select
        traffic,
        prompt_bucket,
        metric,
        count(*) as requests,
        list_sort(list(value_ns)) as sorted_ns,
        quantile_cont(value_ns, [0.5, 0.9, 0.95, 0.99]) as quantiles_ns
    from times
    group by traffic, prompt_bucket, metric
),
levels as (   -- one row per quantile, and the requests that it needs
    select *
    from (values (1, 0.5::double, 6), (2, 0.9, 36), (3, 0.95, 72), (4, 0.99, 1000))
        as listed (level, p, enough)
),
sizes as (   -- one row per size of a group and quantile
    select distinct
        sorted.requests as n,
        levels.level,
        levels.p,
        sqrt(sorted.requests * levels.p * (1 - levels.p)) as deviation
    from sorted, levels
    where sorted.requests >= levels.enough
),
chances as (   -- one row per size, quantile and count k within six deviations: P(B = k)
    select
        sizes.n,
        sizes.level,
        counts.k,
        exp(
            lgamma(sizes.n + 1) - lgamma(counts.k + 1) - lgamma(sizes.n - counts.k + 1)
                + counts.k * ln(sizes.p) + (sizes.n - counts.k) * ln(1 - sizes.p)
        ) as chance
    from sizes, unnest(
        range(
            greatest(0, floor(sizes.n * sizes.p - 6 * sizes.deviation - 12))::bigint,
            least(sizes.n, ceil(sizes.n * sizes.p + 6 * sizes.deviation + 12))::bigint + 1
        )
    ) as counts (k)
),
totals as (   -- one row per size, quantile and count: P(B <= k)
    select
        n,
        level,
        k,
        fsum(chance) over (partition by n, level order by k) as total
    from chances
),
ranks as (   -- one row per size and quantile: the order statistics that enclose it
    select
        n,
        level,
        max(k) filter (total <= 0.025) + 1 as low_rank,
        min(k) filter (total >= 0.975) + 1 as high_rank
    from totals
    group by n, level
),
intervals as (   -- one row per group and quantile
    select
        sorted.traffic,
        sorted.prompt_bucket,
        sorted.metric,
        sorted.requests,
        ranks.level,
        sorted.quantiles_ns[ranks.level] / 1e6 as quantile_ms,
        sorted.sorted_ns[ranks.low_rank] / 1e6 as low_ms,
        sorted.sorted_ns[ranks.high_rank] / 1e6 as high_ms
    from sorted
    left join ranks on ranks.n = sorted.requests
)
select
    traffic,                                     -- name: production | benchmark
    metric,                                      -- name: ttft (from arrival, at the engine or gateway) | ttft_client (as a client saw it) | queue (arrival to first scheduled) | prefill (first scheduled to first token) | tpot (time per output token after the first) | e2e (arrival to last token)
    prompt_bucket::bigint as prompt_bucket,                -- tokens: lower bound of the half-open range up to twice this; 0 holds empty prompts
    requests::bigint as requests,                -- requests: that know this time, and whose times agree
    max(quantile_ms) filter (level = 1) as p50_ms,   -- ms: median; null below 6 requests
    max(low_ms) filter (level = 1) as p50_low_ms,   -- ms: lower end of its 95 % interval, a time that was measured
    max(high_ms) filter (level = 1) as p50_high_ms,   -- ms: upper end
    max(quantile_ms) filter (level = 2) as p90_ms,   -- ms: 90 % of requests are within this; null below 36 requests
    max(low_ms) filter (level = 2) as p90_low_ms,   -- ms: lower end of its 95 % interval, a time that was measured
    max(high_ms) filter (level = 2) as p90_high_ms,   -- ms: upper end
    max(quantile_ms) filter (level = 3) as p95_ms,   -- ms: the same, 95 %; null below 72 requests
    max(low_ms) filter (level = 3) as p95_low_ms,   -- ms: lower end of its 95 % interval, a time that was measured
    max(high_ms) filter (level = 3) as p95_high_ms,   -- ms: upper end
    max(quantile_ms) filter (level = 4) as p99_ms,   -- ms: the same, 99 %; null below 1 000 requests
    max(low_ms) filter (level = 4) as p99_low_ms,   -- ms: lower end of its 95 % interval, a time that was measured
    max(high_ms) filter (level = 4) as p99_high_ms   -- ms: upper end
from intervals
group by traffic, metric, prompt_bucket, requests
order by traffic, metric, prompt_bucket
