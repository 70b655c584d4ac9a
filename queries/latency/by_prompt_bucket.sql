-- name: latency/by_prompt_bucket
-- question: Do longer prompts wait longer, and in which stage?
-- grain: one row per prompt_bucket that holds a request
-- params: none
-- reads: requests
-- order: prompt_bucket
-- note: exact quantiles over the requests that know the figure; P99 is withheld below 1 000 of them.
with served as (   -- one row per ok headline request with a known prompt
    select
        case
            when prompt_tokens > 0 then 1::bigint << (length(bin(prompt_tokens)) - 1)
            else 0
        end as prompt_bucket,
        case when ttft_from = 'scheduled' then ttft_ns + queue_ns else ttft_ns end as ttft_ns,
        queue_ns,
        prefill_ns,
        tpot_ns,
        e2e_ns
    from requests
    where is_headline and status = 'ok' and prompt_tokens is not null
)
select
    prompt_bucket::bigint as prompt_bucket,                -- tokens: lower bound of the half-open range up to twice this; 0 holds empty prompts
    count(*)::bigint as requests,                          -- requests: in the bucket
    count(ttft_ns)::bigint as ttft_known_requests,         -- requests: with a known TTFT from arrival (or from the client)
    quantile_cont(ttft_ns, 0.5) / 1e6 as ttft_p50_ms,      -- ms: median TTFT
    quantile_cont(ttft_ns, 0.9) / 1e6 as ttft_p90_ms,      -- ms: 90 % of requests have their first token within this
    case when count(ttft_ns) >= 1000 then quantile_cont(ttft_ns, 0.99) / 1e6 end as ttft_p99_ms,   -- ms: 99 %; null below 1 000 requests
    quantile_cont(queue_ns, 0.5) / 1e6 as queue_p50_ms,    -- ms: arrival to first scheduled
    quantile_cont(queue_ns, 0.9) / 1e6 as queue_p90_ms,    -- ms: the same, 90 %
    quantile_cont(prefill_ns, 0.5) / 1e6 as prefill_p50_ms,   -- ms: first scheduled to first token
    quantile_cont(prefill_ns, 0.9) / 1e6 as prefill_p90_ms,   -- ms: the same, 90 %
    quantile_cont(tpot_ns, 0.5) / 1e6 as tpot_p50_ms,      -- ms: mean time per output token after the first, median over requests
    quantile_cont(e2e_ns, 0.5) / 1e6 as e2e_p50_ms         -- ms: arrival to last token
from served
group by prompt_bucket
order by prompt_bucket
