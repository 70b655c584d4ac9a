-- name: replay/goodput
-- question: How many requests a second keep both limits, and which limit do the others break?
-- grain: one row per run
-- params: ttft_slo_s DOUBLE = 2.0, tpot_slo_s DOUBLE = 0.1
-- reads: replay_runs, replay_requests
-- order: run
-- note: no rows until `kvtrace replay` made the tables. All figures are modelled.
-- note: a request without a known TPOT is held to the TTFT limit alone. The span runs from the first to the last arrival.
with judged as (   -- one row per request of a run
    select
        run,
        arrived_s,
        output_tokens,
        ttft_s <= getvariable('ttft_slo_s')::double as keeps_ttft,
        coalesce(tpot_s <= getvariable('tpot_slo_s')::double, true) as keeps_tpot
    from replay_requests
)
select
    judged.run::bigint as run,                               -- number: the replay
    scenario,                                                -- name: of the scenario
    changes,                                                 -- settings: what a sweep changed
    instances,                                               -- count: engine instances
    count(*)::bigint as requests,                            -- requests: replayed
    max(arrived_s) - min(arrived_s) as arrival_span_s,       -- s: first to last arrival
    count(*) filter (where keeps_ttft)::bigint as within_ttft_requests,   -- requests: within the TTFT limit
    count(*) filter (where keeps_tpot)::bigint as within_tpot_requests,   -- requests: within the TPOT limit, or without one
    count(*) filter (where keeps_ttft and keeps_tpot)::bigint as good_requests,   -- requests: within both
    count(*) filter (where keeps_ttft and keeps_tpot) / count(*) as good_ratio,   -- ratio: good_requests / requests
    count(*) filter (where keeps_ttft and keeps_tpot) / nullif(max(arrived_s) - min(arrived_s), 0) as goodput_per_s,   -- requests/s: good_requests / arrival_span_s; null where all arrive at once
    count(*) filter (where keeps_ttft and keeps_tpot) / nullif(max(arrived_s) - min(arrived_s), 0) / nullif(instances, 0) as goodput_per_instance_s   -- requests/s: the same for one instance
from judged
join replay_runs on replay_runs.run = judged.run
group by judged.run, scenario, changes, instances
order by run
