-- name: replay/summary
-- question: What did each replayed scenario do with the requests, and what did its hits cost?
-- grain: one row per run
-- params: none
-- reads: replay_runs, replay_requests
-- order: run
-- note: no rows until `kvtrace replay` made the tables. All figures are modelled.
-- note: net-negative: something was loaded, and lookup + pull + load, and waits for loads beside the prefill, took longer than prefilling it.
-- note: P99 is withheld below 1 000 values.
with requests_of_run as (   -- one row per request of a run
    select
        run,
        prompt_tokens,
        hit_tokens,
        loaded_tokens,
        computed_tokens,
        moved_bytes,
        ttft_s,
        tpot_s,
        e2e_s,
        gpu_busy_s,
        case
            when loaded_tokens > 0 then lookup_s + pull_s + load_s + stall_s - recompute_loaded_s
        end as regret_s
    from replay_requests
),
sums as (   -- one row per run with a request
    select
        run,
        count(*)::bigint as requests,
        sum(prompt_tokens)::bigint as prompt_tokens,
        sum(hit_tokens)::bigint as hit_tokens,
        sum(loaded_tokens)::bigint as loaded_tokens,
        sum(computed_tokens)::bigint as computed_tokens,
        count(regret_s)::bigint as loaded_requests,
        count(*) filter (where regret_s > 0)::bigint as net_negative_requests,
        coalesce(fsum(moved_bytes) filter (where regret_s > 0), 0.0) as net_negative_bytes,
        coalesce(fsum(regret_s) filter (where regret_s > 0), 0.0) as net_negative_lost_s,
        fsum(moved_bytes) as moved_bytes,
        fsum(ttft_s) / count(*) as ttft_mean_s,
        quantile_cont(ttft_s, 0.5) as ttft_p50_s,
        quantile_cont(ttft_s, 0.9) as ttft_p90_s,
        case when count(*) >= 1000 then quantile_cont(ttft_s, 0.99) end as ttft_p99_s,
        fsum(tpot_s) / nullif(count(tpot_s), 0) as tpot_mean_s,
        quantile_cont(tpot_s, 0.5) as tpot_p50_s,
        quantile_cont(tpot_s, 0.9) as tpot_p90_s,
        case when count(tpot_s) >= 1000 then quantile_cont(tpot_s, 0.99) end as tpot_p99_s,
        quantile_cont(e2e_s, 0.5) as e2e_p50_s,
        quantile_cont(e2e_s, 0.9) as e2e_p90_s,
        case when count(e2e_s) >= 1000 then quantile_cont(e2e_s, 0.99) end as e2e_p99_s,
        fsum(gpu_busy_s) as gpu_busy_s
    from requests_of_run
    group by run
)
select
    replay_runs.run::bigint as run,                          -- number: the replay, in the order asked
    scenario,                                                -- name: of the scenario, or the id of an option
    changes,                                                 -- settings: what a sweep changed; empty: nothing
    load,                                                    -- words: what was done to the logged requests; empty: nothing
    instances,                                               -- count: engine instances
    routing,                                                 -- name: how an instance is chosen
    load_decision,                                           -- name: what is loaded instead of computed
    is_overloaded,                                           -- flag: the fleet does not keep up, and times grow with the trace
    coalesce(sums.requests, 0) as requests,                  -- requests: replayed
    refused_requests,                                        -- requests: left out, since no instance of the smallest HBM replayed with it holds them
    coalesce(prompt_tokens, 0) as prompt_tokens,             -- tokens: of all prompts
    coalesce(hit_tokens, 0) as hit_tokens,                   -- tokens: served from any tier, HBM included
    hit_tokens / nullif(prompt_tokens, 0) as hit_ratio_tokens,   -- ratio: hit_tokens / prompt_tokens
    coalesce(loaded_tokens, 0) as loaded_tokens,             -- tokens: of the hits, from below HBM
    coalesce(computed_tokens, 0) as computed_tokens,         -- tokens: prefilled
    coalesce(loaded_requests, 0) as loaded_requests,         -- requests: with something loaded from below HBM
    coalesce(net_negative_requests, 0) as net_negative_requests,   -- requests: of these, the load took longer than prefilling it
    coalesce(net_negative_bytes, 0.0) as net_negative_bytes, -- bytes: loaded for those
    coalesce(net_negative_lost_s, 0.0) as net_negative_lost_s,   -- s: that those lost, move - recompute
    coalesce(moved_bytes, 0.0) as moved_bytes,               -- bytes: loaded in all
    ttft_mean_s,                                             -- s: mean time to first token
    ttft_p50_s,                                              -- s: median
    ttft_p90_s,                                              -- s: 90 %
    ttft_p99_s,                                              -- s: 99 %; null below 1 000 requests
    tpot_mean_s,                                             -- s: mean time per output token after the first; null where unknown
    tpot_p50_s,                                              -- s: median
    tpot_p90_s,                                              -- s: 90 %
    tpot_p99_s,                                              -- s: 99 %; null below 1 000 requests
    e2e_p50_s,                                               -- s: arrival to last token, median; null where output is unknown
    e2e_p90_s,                                               -- s: 90 %
    e2e_p99_s,                                               -- s: 99 %; null below 1 000 requests
    gpu_busy_s                                               -- s: of instances, for prefill and sync loads
from replay_runs
left join sums on sums.run = replay_runs.run
order by replay_runs.run
