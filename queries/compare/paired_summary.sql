-- name: compare/paired_summary
-- question: What did the cache do to TTFT of the same requests: compute saved, move added, queue?
-- grain: one row
-- params: none
-- reads: request_pairs
-- order: pairs (a single row)
-- note: no pairs until `kvtrace compare --paired OFF ON` made them. Changes are cache on less cache off.
-- note: means are over the pairs that know both TTFTs, and add up: ttft_change = queue_added +
-- note: move_added - compute_saved + unexplained. A part that no pair knows is null; one that some
-- note: pairs know leaves the rest of the others in unexplained.
with known as (   -- one row per pair that knows both TTFTs
    select *
    from request_pairs
    where ttft_change_ns is not null
)
select
    (select count(*) from request_pairs)::bigint as pairs,                      -- requests: paired
    count(*)::bigint as ttft_known_pairs,                               -- requests: pairs with both TTFTs
    count(*) filter (where ttft_change_ns > 0)::bigint as slower_requests,   -- requests: TTFT longer with the cache on
    count(*) filter (where ttft_change_ns < 0)::bigint as faster_requests,   -- requests: TTFT shorter with the cache on
    count(*) filter (where ttft_change_ns > 0) / nullif(count(*), 0) as slower_share,   -- ratio: slower_requests / ttft_known_pairs
    sum(off_ttft_ns) / 1e6 / nullif(count(*), 0) as off_ttft_mean_ms,   -- ms: mean TTFT, cache off
    sum(on_ttft_ns) / 1e6 / nullif(count(*), 0) as on_ttft_mean_ms,     -- ms: mean TTFT, cache on
    sum(ttft_change_ns) / 1e6 / nullif(count(*), 0) as ttft_change_mean_ms,   -- ms: on less off
    sum(compute_saved_ns) / 1e6 / nullif(count(*), 0) as compute_saved_mean_ms,   -- ms: prefill without loads, off less on
    sum(move_added_ns) / 1e6 / nullif(count(*), 0) as move_added_mean_ms,         -- ms: loads, on less off
    sum(queue_added_ns) / 1e6 / nullif(count(*), 0) as queue_added_mean_ms,       -- ms: queue, on less off
    sum(unexplained_ns) / 1e6 / nullif(count(*), 0) as unexplained_mean_ms,       -- ms: what the known parts leave
    sum(prefill_change_ns) / 1e6 / nullif(count(*), 0) as prefill_change_mean_ms,   -- ms: first scheduled to first token, loads in it, on less off; no part of the sum
    count(compute_saved_ns)::bigint as compute_known_pairs,             -- requests: pairs that know the compute saved
    count(move_added_ns)::bigint as move_known_pairs,                   -- requests: pairs that know the move added
    count(queue_added_ns)::bigint as queue_known_pairs,                 -- requests: pairs that know both queues
    quantile_cont(ttft_change_ns, 0.1) / 1e6 as ttft_change_p10_ms,     -- ms: 10 % of the changes are below
    quantile_cont(ttft_change_ns, 0.5) / 1e6 as ttft_change_p50_ms,     -- ms: median change
    quantile_cont(ttft_change_ns, 0.9) / 1e6 as ttft_change_p90_ms,     -- ms: 90 % of the changes are below
    case when count(*) >= 1000 then quantile_cont(ttft_change_ns, 0.99) / 1e6 end as ttft_change_p99_ms,   -- ms: 99 %; null below 1 000 pairs
    quantile_cont(off_ttft_ns, 0.5) / 1e6 as off_ttft_p50_ms,           -- ms: median TTFT, cache off
    quantile_cont(on_ttft_ns, 0.5) / 1e6 as on_ttft_p50_ms,             -- ms: median TTFT, cache on
    case when count(*) >= 1000 then quantile_cont(off_ttft_ns, 0.99) / 1e6 end as off_ttft_p99_ms,   -- ms: P99, cache off; null below 1 000 pairs
    case when count(*) >= 1000 then quantile_cont(on_ttft_ns, 0.99) / 1e6 end as on_ttft_p99_ms,     -- ms: P99, cache on; null below 1 000 pairs
    sum(cached_tokens)::bigint as cached_tokens,                        -- tokens: served from the cache; null: no pair says
    sum(prompt_tokens)::bigint as prompt_tokens,                        -- tokens: of the pairs
    sum(moved_bytes)::bigint as moved_bytes                             -- bytes: loaded with the cache on; null: no pair says
from known
order by pairs
