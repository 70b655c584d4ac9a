-- name: replay/regret
-- question: How much time did the load decisions of each replayed scenario lose against the better choice, known afterwards?
-- grain: one row per run
-- params: none
-- reads: replay_runs, replay_requests
-- order: run
-- note: no rows until `kvtrace replay` made the tables. All figures are modelled.
-- note: loaded: lookup + pull + load, and waits for loads beside the prefill, against prefilling what was loaded. Declined: the load at the links' rates of that moment against its prefill.
-- note: taken as if the other choice had changed nothing for other requests.
with prices as (   -- one row per request of a run
    select
        run,
        case
            when loaded_tokens > 0 then lookup_s + pull_s + load_s + stall_s - recompute_loaded_s
        end as loss_s,
        declined_tokens,
        case when declined_tokens > 0 then declined_recompute_s - declined_move_s end as miss_s
    from replay_requests
),
sums as (   -- one row per run with a request
    select
        run,
        count(*)::bigint as requests,
        count(loss_s)::bigint as loaded_requests,
        count(*) filter (where loss_s > 0)::bigint as lost_requests,
        coalesce(fsum(loss_s) filter (where loss_s > 0), 0.0) as lost_s,
        coalesce(-fsum(loss_s) filter (where loss_s <= 0), 0.0) as gained_s,
        count(miss_s)::bigint as declined_requests,
        sum(declined_tokens)::bigint as declined_tokens,
        count(*) filter (where miss_s > 0)::bigint as missed_requests,
        coalesce(fsum(miss_s) filter (where miss_s > 0), 0.0) as missed_s
    from prices
    group by run
)
select
    replay_runs.run::bigint as run,                          -- number: the replay, in the order asked
    scenario,                                                -- name: of the scenario, or the id of an option
    changes,                                                 -- settings: what a sweep changed; empty: nothing
    load_decision,                                           -- name: what is loaded instead of computed
    coalesce(sums.requests, 0) as requests,                  -- requests: replayed
    coalesce(loaded_requests, 0) as loaded_requests,         -- requests: with something loaded from below HBM
    coalesce(lost_requests, 0) as lost_requests,             -- requests: of these, computing it would have been sooner
    coalesce(lost_s, 0.0) as lost_s,                         -- s: by how much, in all
    coalesce(gained_s, 0.0) as gained_s,                     -- s: that the other loads saved
    coalesce(declined_requests, 0) as declined_requests,     -- requests: with something found and not loaded by decision
    coalesce(declined_tokens, 0) as declined_tokens,         -- tokens: of those
    coalesce(missed_requests, 0) as missed_requests,         -- requests: of these, loading it would have been sooner
    coalesce(missed_s, 0.0) as missed_s,                     -- s: by how much, in all
    coalesce(lost_s + missed_s, 0.0) as regret_s,            -- s: lost_s + missed_s
    (lost_s + missed_s) / sums.requests as regret_mean_s     -- s: regret_s / requests; null without any
from replay_runs
left join sums on sums.run = replay_runs.run
order by replay_runs.run
