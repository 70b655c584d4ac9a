-- name: replay/stages
-- question: Where does the time of a request go, in each scenario?
-- grain: one row per run
-- params: none
-- reads: replay_runs, replay_requests
-- order: run
-- note: no rows until `kvtrace replay` made the tables. All figures are modelled.
-- note: TTFT is queue + lookup + pull + load + prefill; queue counts what no move hid.
with timelines as (   -- one row per request of a run
    select
        run,
        queue_s,
        lookup_s,
        pull_s,
        load_s,
        prefill_s,
        stall_s,
        ttft_s,
        handoff_s,
        preemptions,
        preempted_s,
        decode_s,
        recompute_s
    from replay_requests
)
select
    timelines.run::bigint as run,                            -- number: the replay
    scenario,                                                -- name: of the scenario
    changes,                                                 -- settings: what a sweep changed
    count(*)::bigint as requests,                            -- requests: replayed
    fsum(queue_s) / count(*) as queue_mean_s,                -- s: waiting that no move hid, mean
    fsum(lookup_s) / count(*) as lookup_mean_s,              -- s: asking the tiers, mean
    fsum(pull_s) / count(*) as pull_mean_s,                  -- s: over a network or from a drive, mean
    fsum(load_s) / count(*) as load_mean_s,                  -- s: from host memory into HBM, mean
    fsum(prefill_s) / count(*) as prefill_mean_s,            -- s: first step to first token, mean
    fsum(stall_s) / count(*) as stall_mean_s,                -- s: of that, waits for loads that ran beside it, mean
    fsum(ttft_s) / count(*) as ttft_mean_s,                  -- s: arrival to first token, mean
    fsum(handoff_s) / nullif(count(handoff_s), 0) as handoff_mean_s,   -- s: first token until the KV is on the instance that decodes, mean; null where instances prefill and decode
    sum(preemptions)::bigint as preemptions,                 -- times: a request gave its HBM up for running ones
    count(*) filter (where preemptions > 0)::bigint as preempted_requests,   -- requests: to which that happened
    fsum(preempted_s) / count(*) as preempted_mean_s,        -- s: from a preemption until there was room again, mean of all requests; part of decode
    fsum(decode_s) / nullif(count(decode_s), 0) as decode_mean_s,   -- s: first to last token, mean where known
    fsum(recompute_s) / count(*) as recompute_mean_s         -- s: prefill of the whole prompt alone, mean: what nothing cached would cost without a queue
from timelines
join replay_runs on replay_runs.run = timelines.run
group by timelines.run, scenario, changes
order by run
