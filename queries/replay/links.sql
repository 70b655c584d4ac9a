-- name: replay/links
-- question: What crossed each link in all, and how full was it?
-- grain: one row per run and kind of link
-- params: none
-- reads: replay_runs, replay_links
-- order: run, link
-- note: no rows until `kvtrace replay` made the tables. All figures are modelled.
with used as (   -- one row per run, link and stretch of time
    select
        run,
        link,
        links,
        read_bytes,
        written_bytes,
        link_bytes_per_s * width_s as could_move_bytes
    from replay_links
)
select
    used.run::bigint as run,                                 -- number: the replay
    scenario,                                                -- name: of the scenario
    changes,                                                 -- settings: what a sweep changed
    link,                                                    -- name: kind of link
    any_value(links)::bigint as links,                       -- count: such links
    fsum(read_bytes) as read_bytes,                          -- bytes: loads
    fsum(written_bytes) as written_bytes,                    -- bytes: writes, hand-offs and evictions
    fsum(could_move_bytes) as could_move_bytes,              -- bytes: that the links could have moved in all stretches
    fsum(read_bytes + written_bytes) / nullif(fsum(could_move_bytes), 0) as utilisation,   -- ratio: bytes / could_move_bytes
    max((read_bytes + written_bytes) / nullif(could_move_bytes, 0)) as busiest_utilisation   -- ratio: of the fullest stretch
from used
join replay_runs on replay_runs.run = used.run
group by used.run, scenario, changes, link
order by run, link
