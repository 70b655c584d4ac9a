-- name: latency/summary
-- question: How long do requests wait and work, and is time to first token queue or prompt length?
-- grain: one row
-- params: none
-- reads: requests
-- order: requests (a single row)
-- note: exact quantiles over the requests that know the figure; P99 is withheld below 1 000 of them.
with served as (   -- one row per ok headline request; TTFT from arrival where queue and start allow
    select
        request_key,
        prompt_tokens,
        case when ttft_from = 'scheduled' then ttft_ns + queue_ns else ttft_ns end as ttft_ns,
        queue_ns,
        prefill_ns,
        tpot_ns,
        e2e_ns
    from requests
    where is_headline and status = 'ok'
)
select
    count(*)::bigint as requests,                          -- requests: `ok` headline requests
    count(ttft_ns)::bigint as ttft_known_requests,         -- requests: with a known TTFT from arrival (or from the client)
    sum(ttft_ns) / 1e6 / nullif(count(ttft_ns), 0) as ttft_mean_ms,   -- ms: mean TTFT
    quantile_cont(ttft_ns, 0.5) / 1e6 as ttft_p50_ms,      -- ms: median TTFT
    quantile_cont(ttft_ns, 0.9) / 1e6 as ttft_p90_ms,      -- ms: 90 % of requests have their first token within this
    case when count(ttft_ns) >= 1000 then quantile_cont(ttft_ns, 0.99) / 1e6 end as ttft_p99_ms,   -- ms: 99 %; null below 1 000 requests
    count(queue_ns)::bigint as queue_known_requests,       -- requests: with a known queue time
    quantile_cont(queue_ns, 0.5) / 1e6 as queue_p50_ms,    -- ms: arrival to first scheduled
    quantile_cont(queue_ns, 0.9) / 1e6 as queue_p90_ms,    -- ms: the same, 90 %
    case when count(queue_ns) >= 1000 then quantile_cont(queue_ns, 0.99) / 1e6 end as queue_p99_ms,   -- ms: the same, 99 %; null below 1 000 requests
    quantile_cont(prefill_ns, 0.5) / 1e6 as prefill_p50_ms,   -- ms: first scheduled to first token
    quantile_cont(prefill_ns, 0.9) / 1e6 as prefill_p90_ms,   -- ms: the same, 90 %
    case when count(prefill_ns) >= 1000 then quantile_cont(prefill_ns, 0.99) / 1e6 end as prefill_p99_ms,   -- ms: the same, 99 %; null below 1 000 requests
    quantile_cont(tpot_ns, 0.5) / 1e6 as tpot_p50_ms,      -- ms: median over requests of mean time per output token after the first
    quantile_cont(e2e_ns, 0.5) / 1e6 as e2e_p50_ms,        -- ms: arrival to last token
    sum(queue_ns) filter (ttft_ns is not null) / nullif(sum(ttft_ns) filter (queue_ns is not null), 0) as queue_share_of_ttft,   -- ratio: sum of queue / sum of TTFT over requests that know both
    nullif(corr(ttft_ns, prompt_tokens order by request_key), 'nan'::double) as ttft_length_correlation,      -- correlation: Pearson, TTFT and prompt tokens; null when either is constant
    nullif(corr(prefill_ns, prompt_tokens order by request_key), 'nan'::double) as prefill_length_correlation,   -- correlation: Pearson, first scheduled to first token and prompt tokens
    nullif(corr(ttft_ns, queue_ns order by request_key), 'nan'::double) as ttft_queue_correlation             -- correlation: Pearson, TTFT and queue time
from served
order by requests
