-- name: replay/links_over_time
-- question: When was which link full, and with reads or with writes?
-- grain: one row per run, kind of link and stretch of time
-- params: none
-- reads: replay_runs, replay_links
-- order: run, link, start_s
-- note: no rows until `kvtrace replay` made the tables. All figures are modelled.
select
    replay_links.run::bigint as run,                         -- number: the replay
    scenario,                                                -- name: of the scenario
    changes,                                                 -- settings: what a sweep changed
    link,                                                    -- name: kind of link
    start_s,                                                 -- s: start of the stretch, since the first replayed arrival
    width_s,                                                 -- s: its length
    read_bytes,                                              -- bytes: loads
    written_bytes,                                           -- bytes: writes, hand-offs and evictions
    link_bytes_per_s * width_s as could_move_bytes,          -- bytes: that all such links could have moved
    (read_bytes + written_bytes) / nullif(link_bytes_per_s * width_s, 0) as utilisation   -- ratio: bytes / could_move_bytes
from replay_links
join replay_runs on replay_runs.run = replay_links.run
order by run, link, start_s
