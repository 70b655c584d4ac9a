-- name: replay/tiers
-- question: Which tier served how much, and whose hits took longer than recomputing?
-- grain: one row per run and tier that served a token
-- params: none
-- reads: replay_runs, replay_requests, replay_hits
-- order: run, tier_position
-- note: no rows until `kvtrace replay` made the tables. All figures are modelled.
-- note: a move counts for the deepest tier that it loaded from: the others of it would have been faster alone.
with loads as (   -- one row per request of a run that loaded from below HBM
    select
        run,
        request_rank,
        moved_bytes,
        lookup_s + pull_s + load_s + stall_s as move_s,
        recompute_loaded_s
    from replay_requests
    where loaded_tokens > 0
),
served as (   -- one row per hit, with its request's move where this is the deepest tier of it
    select
        replay_hits.run,
        tier,
        tier_position,
        hit_tokens,
        tier_position > 0
            and tier_position = max(tier_position) over (
                partition by replay_hits.run, replay_hits.request_rank
            ) as is_deepest,
        moved_bytes,
        move_s,
        recompute_loaded_s
    from replay_hits
    left join loads
        on loads.run = replay_hits.run and loads.request_rank = replay_hits.request_rank
),
prompts as (   -- one row per run
    select
        run,
        sum(prompt_tokens)::bigint as prompt_tokens
    from replay_requests
    group by run
)
select
    served.run::bigint as run,                               -- number: the replay
    scenario,                                                -- name: of the scenario
    changes,                                                 -- settings: what a sweep changed
    tier,                                                    -- name: hbm, or a tier below it
    tier_position::bigint as tier_position,                  -- number: of the tier in the chain; 0 is hbm
    sum(hit_tokens)::bigint as hit_tokens,                   -- tokens: served from it
    sum(hit_tokens) / nullif(any_value(prompt_tokens), 0) as hit_ratio_tokens,   -- ratio: hit_tokens / tokens of all prompts
    count(*)::bigint as hit_requests,                        -- requests: with a token from it
    count(*) filter (where is_deepest)::bigint as deepest_requests,   -- requests: that loaded from it and from no tier below it
    count(*) filter (where is_deepest and move_s > recompute_loaded_s)::bigint as net_negative_requests,   -- requests: of those, the move took longer than recomputing
    coalesce(fsum(moved_bytes) filter (where is_deepest and move_s > recompute_loaded_s), 0.0) as net_negative_bytes,   -- bytes: moved for them
    coalesce(fsum(move_s - recompute_loaded_s) filter (where is_deepest and move_s > recompute_loaded_s), 0.0) as net_negative_lost_s,   -- s: that they lost
    coalesce(fsum(recompute_loaded_s - move_s) filter (where is_deepest and move_s <= recompute_loaded_s), 0.0) as gained_s   -- s: that the others gained
from served
join replay_runs on replay_runs.run = served.run
join prompts on prompts.run = served.run
group by served.run, scenario, changes, tier, tier_position
order by run, tier_position
