-- name: moves/alone_and_together
-- question: Does KV move slower when several moves share the path at once?
-- grain: one row per direction and path
-- params: none
-- reads: transfers
-- order: direction, path
-- note: together: another timed move of the same source, direction and path overlaps this one; alone: none
-- note: does. A rate is all bytes over all seconds of the class.
-- note: moves of other instances that share no link count as company here, so that contention on a shared
-- note: link is understated, never overstated.
with moves as (   -- one row per move that knows its start, bytes and seconds
    select
        transfer_key,
        source_id,
        clock,
        direction,
        path,
        started_at_ns,
        started_at_ns + duration_ns as ended_at_ns,
        moved_bytes,
        duration_ns
    from transfers
    where clock != 'order' and started_at_ns is not null and duration_ns > 0 and moved_bytes > 0
),
changes as (   -- one row per instant of a path at which moves end or start
    select
        source_id,
        clock,
        direction,
        path,
        at_ns,
        sum(started) as started,
        sum(ended) as ended
    from (
        select source_id, clock, direction, path, started_at_ns as at_ns, 1 as started, 0 as ended
        from moves
        union all
        select source_id, clock, direction, path, ended_at_ns, 0, 1
        from moves
    ) as every_change
    group by source_id, clock, direction, path, at_ns
),
counts as (   -- one row per instant: moves that have started before it, and ended by it
    select
        source_id,
        clock,
        direction,
        path,
        at_ns,
        sum(started) over by_time - started as started_before,
        sum(ended) over by_time as ended_by
    from changes
    window by_time as (
        partition by source_id, clock, direction, path
        order by at_ns
        rows between unbounded preceding and current row
    )
),
kept_company as (   -- one row per move: how many others overlap it
    select
        moves.transfer_key,
        moves.direction,
        moves.path,
        moves.moved_bytes,
        moves.duration_ns,
        (at_end.started_before - at_start.ended_by - 1)::bigint as others
    from moves
    join counts as at_start
        on at_start.source_id = moves.source_id
        and at_start.clock = moves.clock
        and at_start.direction = moves.direction
        and at_start.path is not distinct from moves.path
        and at_start.at_ns = moves.started_at_ns
    join counts as at_end
        on at_end.source_id = moves.source_id
        and at_end.clock = moves.clock
        and at_end.direction = moves.direction
        and at_end.path is not distinct from moves.path
        and at_end.at_ns = moves.ended_at_ns
),
rates as (   -- one row per direction and path
    select
        direction,
        path,
        count(*) filter (others = 0) as alone_moves,
        count(*) filter (others > 0) as together_moves,
        sum(moved_bytes) filter (others = 0) / (sum(duration_ns) filter (others = 0) / 1e9)
            as alone_bytes_per_s,
        sum(moved_bytes) filter (others > 0) / (sum(duration_ns) filter (others > 0) / 1e9)
            as together_bytes_per_s,
        sum(others) filter (others > 0) / nullif(count(*) filter (others > 0), 0) as others_mean
    from kept_company
    group by direction, path
)
select
    direction,                                              -- name: load (to HBM) | store (from HBM) | hand_off
    path,                                                   -- name: as far as the source says; null: it does not
    alone_moves::bigint as alone_moves,                     -- count: moves that no other of the path overlaps
    together_moves::bigint as together_moves,               -- count: moves that others overlap
    others_mean,                                            -- count: moves that overlap such a move, mean
    alone_bytes_per_s,                                      -- bytes/s: all bytes over all seconds, alone
    together_bytes_per_s,                                   -- bytes/s: the same, together; of one move
    together_bytes_per_s / nullif(alone_bytes_per_s, 0) as together_over_alone   -- ratio: below one, moves slow each other down
from rates
order by direction, path nulls first
