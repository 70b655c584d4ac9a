-- name: latency/hit_price
-- question: At equal prompt length, what does a hit take away from the time to first token, and what does it add?
-- grain: one row per traffic, ttft_at and prompt_bucket with 20 requests of either class; and one of all these
-- params: none
-- reads: requests, transfers
-- order: traffic, ttft_at, prompt_bucket nulls first
-- note: with hits: half of the prompt or more is cached; without: less than a tenth. Others are left out.
-- note: changes are means with hits less means without; ttft = queue + compute + other, exactly.
-- note: compute is first scheduled to first token, queue is arrival to first scheduled, each less the logged
-- note: loads of the request that lie in it; other is those loads and what neither of the two explains.
-- note: The row of all weighs each bucket by its requests with hits. Interval of the change of TTFT:
-- note: ± 1.96 × SE, SE² = sum of weight² × (variance / requests) of both classes.
-- note: requests with unknown queue or prefill, or times that contradict each other, are left out;
-- note: benchmark traffic is apart.
with loads as (   -- one row per request with logged loads on its clock: seconds that lie in its queue and in its prefill
    select
        served.request_key,
        sum(
            greatest(
                least(moves.started_at_ns + moves.duration_ns, served.arrived_at_ns + served.queue_ns)
                    - greatest(moves.started_at_ns, served.arrived_at_ns),
                0
            )
        )::bigint as in_queue_ns,
        sum(
            greatest(
                least(
                    moves.started_at_ns + moves.duration_ns,
                    served.arrived_at_ns + served.queue_ns + served.prefill_ns
                ) - greatest(moves.started_at_ns, served.arrived_at_ns + served.queue_ns),
                0
            )
        )::bigint as in_prefill_ns,
        sum(moves.duration_ns)::bigint as load_ns
    from requests as served
    join transfers as moves
        on moves.request_id_key = served.request_id_key and moves.clock = served.clock
    where served.is_headline
        and moves.direction = 'load'
        and served.arrived_at_ns is not null
        and served.queue_ns >= 0
        and served.prefill_ns >= 0
    group by served.request_key
    having count(moves.started_at_ns + moves.duration_ns) = count(*)
),
timed as (   -- one row per ok headline request of one of the two classes, with the parts of its TTFT
    select
        served.request_key,
        case when served.is_benchmark then 'benchmark' else 'production' end as traffic,
        case when served.ttft_from = 'client' then 'client' else 'engine' end as ttft_at,
        1::bigint << (length(bin(served.prompt_tokens)) - 1) as prompt_bucket,
        2 * served.cached_tokens >= served.prompt_tokens as is_hit,
        case
            when served.ttft_from = 'scheduled' then served.ttft_ns + served.queue_ns
            else served.ttft_ns
        end as ttft_ns,
        served.queue_ns - least(coalesce(loads.in_queue_ns, 0), served.queue_ns) as queue_ns,
        served.prefill_ns - least(coalesce(loads.in_prefill_ns, 0), served.prefill_ns)
            as compute_ns,
        loads.load_ns
    from requests as served
    left join loads on loads.request_key = served.request_key
    where served.is_headline
        and served.status = 'ok'
        and served.prompt_tokens > 0
        and served.cached_tokens between 0 and served.prompt_tokens
        and (
            2 * served.cached_tokens >= served.prompt_tokens
            or 10 * served.cached_tokens < served.prompt_tokens
        )
        and least(served.queue_ns, served.prefill_ns, served.ttft_ns) >= 0
        and served.queue_ns is not null
        and served.prefill_ns is not null
        and served.ttft_ns is not null
        and not list_has_any(served.flags, ['time_order', 'ttft_above_e2e'])
        and (served.ttft_from = 'scheduled' or served.queue_ns + served.prefill_ns <= served.ttft_ns)
),
classes as (   -- one row per group, bucket and class: means in ms
    select
        traffic,
        ttft_at,
        prompt_bucket,
        is_hit,
        count(*) as requests,
        count(load_ns) as load_known_requests,
        sum(ttft_ns) / count(*) / 1e6 as ttft_ms,
        sum(queue_ns) / count(*) / 1e6 as queue_ms,
        sum(compute_ns) / count(*) / 1e6 as compute_ms,
        sum(ttft_ns - queue_ns - compute_ns) / count(*) / 1e6 as other_ms,
        sum(load_ns) / nullif(count(load_ns), 0) / 1e6 as load_ms,
        var_samp(ttft_ns / 1e6 order by request_key) as ttft_variance
    from timed
    group by traffic, ttft_at, prompt_bucket, is_hit
),
pairs as (   -- one row per group and bucket that holds enough of both classes
    select
        hits.traffic,
        hits.ttft_at,
        hits.prompt_bucket,
        hits.requests as hit_requests,
        others.requests as other_requests,
        hits.load_known_requests,
        hits.ttft_ms as ttft_with_ms,
        others.ttft_ms as ttft_without_ms,
        hits.queue_ms - others.queue_ms as queue_change_ms,
        hits.compute_ms as compute_with_ms,
        others.compute_ms as compute_without_ms,
        hits.other_ms - others.other_ms as other_change_ms,
        hits.load_ms,
        hits.ttft_variance / hits.requests + others.ttft_variance / others.requests as variance
    from classes as hits
    join classes as others
        on others.traffic = hits.traffic
        and others.ttft_at = hits.ttft_at
        and others.prompt_bucket = hits.prompt_bucket
        and not others.is_hit
    where hits.is_hit and least(hits.requests, others.requests) >= 20
),
weighed as (   -- one row per group and bucket, and one row per group over its buckets
    select
        traffic,
        ttft_at,
        prompt_bucket,
        sum(hit_requests) as hit_requests,
        sum(other_requests) as other_requests,
        sum(load_known_requests) as load_known_requests,
        fsum(hit_requests * ttft_with_ms order by prompt_bucket) / sum(hit_requests) as ttft_with_ms,
        fsum(hit_requests * ttft_without_ms order by prompt_bucket) / sum(hit_requests)
            as ttft_without_ms,
        fsum(hit_requests * queue_change_ms order by prompt_bucket) / sum(hit_requests)
            as queue_change_ms,
        fsum(hit_requests * compute_with_ms order by prompt_bucket) / sum(hit_requests)
            as compute_with_ms,
        fsum(hit_requests * compute_without_ms order by prompt_bucket) / sum(hit_requests)
            as compute_without_ms,
        fsum(hit_requests * other_change_ms order by prompt_bucket) / sum(hit_requests)
            as other_change_ms,
        fsum(load_known_requests * load_ms order by prompt_bucket)
            / nullif(sum(load_known_requests), 0) as load_ms,
        sqrt(fsum(hit_requests ** 2 * variance order by prompt_bucket)) / sum(hit_requests) as error_ms
    from pairs
    group by grouping sets ((traffic, ttft_at), (traffic, ttft_at, prompt_bucket))
)
select
    traffic,                                                -- name: production | benchmark
    ttft_at,                                                -- name: engine | client (as clients saw it)
    prompt_bucket::bigint as prompt_bucket,                 -- tokens: lower bound of the half-open range up to twice this; null: all that are shown
    hit_requests::bigint as hit_requests,                   -- requests: with half of the prompt or more cached
    other_requests::bigint as other_requests,               -- requests: with less than a tenth cached
    ttft_with_ms,                                           -- ms: mean TTFT of those with hits, from arrival
    ttft_without_ms,                                        -- ms: mean TTFT of those without
    ttft_with_ms - ttft_without_ms as ttft_change_ms,       -- ms: of these; below zero hits are sooner
    ttft_with_ms - ttft_without_ms - 1.96 * error_ms as ttft_change_low_ms,    -- ms: 95 % low
    ttft_with_ms - ttft_without_ms + 1.96 * error_ms as ttft_change_high_ms,   -- ms: 95 % high
    queue_change_ms,                                        -- ms: mean queue with hits less without, logged loads taken out
    compute_with_ms,                                        -- ms: mean prefill with hits, logged loads taken out
    compute_without_ms,                                     -- ms: mean prefill without hits
    compute_with_ms - compute_without_ms as compute_change_ms,   -- ms: of these; below zero: compute that hits save
    other_change_ms,                                        -- ms: of the rest of TTFT: moves, as far as logs tell
    load_known_requests::bigint as load_known_requests,     -- requests: with hits, whose logged loads all say their seconds
    load_ms                                                 -- ms: logged loads of such a request, mean
from weighed
order by traffic, ttft_at, prompt_bucket nulls first
