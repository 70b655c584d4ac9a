-- name: compare/paired_by_prompt_bucket
-- question: For which prompt lengths does the cache pay in TTFT, and for which does it cost?
-- grain: one row per prompt_bucket that holds a pair with both TTFTs
-- params: none
-- reads: request_pairs
-- order: prompt_bucket
-- note: no rows until `kvtrace compare --paired OFF ON` made the pairs. Changes are cache on less cache off.
-- note: means are over the pairs of the bucket and add up: ttft_change = queue_added + move_added -
-- note: compute_saved + unexplained.
with known as (   -- one row per pair that knows both TTFTs and its prompt
    select
        case
            when prompt_tokens > 0 then 1::bigint << (length(bin(prompt_tokens)) - 1)
            else 0
        end as prompt_bucket,
        off_ttft_ns,
        on_ttft_ns,
        ttft_change_ns,
        compute_saved_ns,
        move_added_ns,
        queue_added_ns,
        unexplained_ns
    from request_pairs
    where ttft_change_ns is not null and prompt_tokens is not null
)
select
    prompt_bucket::bigint as prompt_bucket,                             -- tokens: lower bound of the half-open range up to twice this; 0 holds empty prompts
    count(*)::bigint as pairs,                                          -- requests: pairs with both TTFTs
    count(*) filter (where ttft_change_ns > 0)::bigint as slower_requests,   -- requests: TTFT longer with the cache on
    count(*) filter (where ttft_change_ns > 0) / nullif(count(*), 0) as slower_share,   -- ratio: slower_requests / pairs
    quantile_cont(off_ttft_ns, 0.5) / 1e6 as off_ttft_p50_ms,           -- ms: median TTFT, cache off
    quantile_cont(on_ttft_ns, 0.5) / 1e6 as on_ttft_p50_ms,             -- ms: median TTFT, cache on
    quantile_cont(ttft_change_ns, 0.1) / 1e6 as ttft_change_p10_ms,     -- ms: 10 % of the changes are below
    quantile_cont(ttft_change_ns, 0.5) / 1e6 as ttft_change_p50_ms,     -- ms: median change
    quantile_cont(ttft_change_ns, 0.9) / 1e6 as ttft_change_p90_ms,     -- ms: 90 % of the changes are below
    case when count(*) >= 1000 then quantile_cont(ttft_change_ns, 0.99) / 1e6 end as ttft_change_p99_ms,   -- ms: 99 %; null below 1 000 pairs
    sum(ttft_change_ns) / 1e6 / nullif(count(*), 0) as ttft_change_mean_ms,       -- ms: on less off
    sum(compute_saved_ns) / 1e6 / nullif(count(*), 0) as compute_saved_mean_ms,   -- ms: prefill without loads, off less on
    sum(move_added_ns) / 1e6 / nullif(count(*), 0) as move_added_mean_ms,         -- ms: loads, on less off
    sum(queue_added_ns) / 1e6 / nullif(count(*), 0) as queue_added_mean_ms,       -- ms: queue, on less off
    sum(unexplained_ns) / 1e6 / nullif(count(*), 0) as unexplained_mean_ms        -- ms: what the known parts leave
from known
group by prompt_bucket
order by prompt_bucket
