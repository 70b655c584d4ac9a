-- name: replay/sweep
-- question: What does each setting of a sweep change against its start?
-- grain: one row per run of the sweep
-- params: none
-- reads: replay_sweep
-- order: scenario, run
-- note: no rows until `kvtrace replay --sweep` made replay_sweep. All figures are modelled.
-- note: the start is the run of the scenario with no change; without it (a grid) the ratios are null.
with starts as (   -- one row per scenario whose start was replayed
    select
        scenario,
        ttft_mean_s,
        ttft_p90_s,
        hit_tokens / nullif(prompt_tokens, 0) as hit_ratio_tokens
    from replay_sweep
    where changes = ''
)
select
    replay_sweep.run::bigint as run,                         -- number: the replay, in the order of the sweep
    replay_sweep.scenario,                                   -- name: of the scenario that the sweep began from
    axis,                                                    -- name: what differs from the start; `grid`: several; null: the start
    value,                                                   -- setting: its value; null: the start, or several
    changes,                                                 -- settings: all that differs from the start
    instances,                                               -- count: engine instances
    is_overloaded,                                           -- flag: the fleet does not keep up
    requests,                                                -- requests: replayed
    replay_sweep.hit_tokens / nullif(prompt_tokens, 0) as hit_ratio_tokens,   -- ratio: tokens from any tier / prompt tokens
    replay_sweep.hit_tokens / nullif(prompt_tokens, 0) - starts.hit_ratio_tokens as hit_ratio_change,   -- ratio: against the start
    loaded_requests,                                         -- requests: with something loaded from below HBM
    net_negative_requests,                                   -- requests: of these, the load took longer than prefilling it
    net_negative_lost_s,                                     -- s: that those lost
    moved_bytes,                                             -- bytes: loaded in all
    replay_sweep.ttft_mean_s,                                -- s: mean TTFT
    replay_sweep.ttft_mean_s / nullif(starts.ttft_mean_s, 0) as ttft_mean_ratio,   -- ratio: mean TTFT / that of the start
    ttft_p50_s,                                              -- s: median TTFT
    replay_sweep.ttft_p90_s,                                 -- s: 90 %
    replay_sweep.ttft_p90_s / nullif(starts.ttft_p90_s, 0) as ttft_p90_ratio,      -- ratio: TTFT p90 / that of the start
    ttft_p99_s,                                              -- s: 99 %; null below 1 000 requests
    tpot_mean_s,                                             -- s: mean time per output token after the first
    tpot_p99_s,                                              -- s: 99 %; null below 1 000 requests
    e2e_p50_s,                                               -- s: arrival to last token, median
    gpu_busy_s                                               -- s: of instances, for prefill and sync loads
from replay_sweep
left join starts on starts.scenario = replay_sweep.scenario
order by replay_sweep.scenario, replay_sweep.run
