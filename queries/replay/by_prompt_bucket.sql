-- name: replay/by_prompt_bucket
-- question: Which prompts gain and which lose, and where does their time go?
-- grain: one row per run and prompt_bucket that holds a request
-- params: none
-- reads: replay_runs, replay_requests
-- order: run, prompt_bucket
-- note: no rows until `kvtrace replay` made the tables. All figures are modelled.
-- note: a quantile is withheld where a distribution-free 95 % interval has no end: p50 below 6, p90 below 36 values; P99 below 1 000.
with bucketed as (   -- one row per request of a run
    select
        run,
        case
            when prompt_tokens > 0 then 1::bigint << (length(bin(prompt_tokens)) - 1)
            else 0
        end as prompt_bucket,
        hit_tokens,
        prompt_tokens,
        queue_s,
        ttft_s,
        tpot_s,
        e2e_s,
        case when loaded_tokens > 0 then lookup_s + pull_s + load_s + stall_s end as move_s,
        case when loaded_tokens > 0 then recompute_loaded_s end as recompute_s
    from replay_requests
)
select
    bucketed.run::bigint as run,                             -- number: the replay
    scenario,                                                -- name: of the scenario
    changes,                                                 -- settings: what a sweep changed
    prompt_bucket::bigint as prompt_bucket,                  -- tokens: lower bound of the half-open range up to twice this; 0 holds empty prompts
    count(*)::bigint as requests,                            -- requests: in the bucket
    sum(hit_tokens) / nullif(sum(prompt_tokens), 0) as hit_ratio_tokens,   -- ratio: tokens served from any tier / prompt tokens
    count(move_s)::bigint as loaded_requests,                -- requests: with something loaded from below HBM
    count(*) filter (where move_s > recompute_s)::bigint as net_negative_requests,   -- requests: of these, the move took longer than recomputing
    case when count(*) >= 6 then quantile_cont(ttft_s, 0.5) end as ttft_p50_s,       -- s: median TTFT; null below 6 requests
    case when count(*) >= 36 then quantile_cont(ttft_s, 0.9) end as ttft_p90_s,      -- s: 90 %; null below 36
    case when count(*) >= 1000 then quantile_cont(ttft_s, 0.99) end as ttft_p99_s,   -- s: 99 %; null below 1 000
    case when count(*) >= 6 then quantile_cont(queue_s, 0.5) end as queue_p50_s,     -- s: waiting that no move hid, median
    case when count(*) >= 36 then quantile_cont(queue_s, 0.9) end as queue_p90_s,    -- s: 90 %
    case when count(move_s) >= 6 then quantile_cont(move_s, 0.5) end as move_p50_s,  -- s: lookup, pull and load of those that loaded, median
    case when count(move_s) >= 36 then quantile_cont(move_s, 0.9) end as move_p90_s, -- s: 90 %
    case when count(move_s) >= 6 then quantile_cont(recompute_s, 0.5) end as recompute_p50_s,    -- s: prefilling what they loaded, median
    case when count(move_s) >= 36 then quantile_cont(recompute_s, 0.9) end as recompute_p90_s,   -- s: 90 %
    case when count(tpot_s) >= 6 then quantile_cont(tpot_s, 0.5) end as tpot_p50_s,  -- s: time per output token after the first, median
    case when count(tpot_s) >= 1000 then quantile_cont(tpot_s, 0.99) end as tpot_p99_s,   -- s: 99 %
    case when count(e2e_s) >= 6 then quantile_cont(e2e_s, 0.5) end as e2e_p50_s      -- s: arrival to last token, median
from bucketed
join replay_runs on replay_runs.run = bucketed.run
group by bucketed.run, scenario, changes, prompt_bucket
order by run, prompt_bucket
