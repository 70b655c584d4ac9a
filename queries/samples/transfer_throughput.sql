-- name: samples/transfer_throughput
-- question: How many KV bytes moved a second, and how fast was a move while it ran?
-- grain: one row per source, way and slice; up to 48 equal slices a source
-- params: none
-- reads: samples
-- order: way, source_id, slice_start_ns
-- note: of counters and of connectors that print bytes and seconds; seconds of ranks that move at the
-- note: same time add up, so that bytes over seconds is the rate of one rank.
with ways as (   -- one row per way of KV
    select
        way,
        bytes_metric,
        seconds_metric
    from (
        values
            ('load', 'kv_loaded_bytes', 'kv_load_s'),
            ('store', 'kv_stored_bytes', 'kv_store_s'),
            ('hand_off', 'kv_moved_bytes', 'kv_move_s'),
            ('pool_read', 'pool_read_bytes', ''),
            ('pool_write', 'pool_written_bytes', '')
    ) as named (way, bytes_metric, seconds_metric)
),
observed as (   -- one row per gain of bytes or seconds over an interval
    select
        samples.sample_key,
        samples.source_id,
        samples.observed_at_ns,
        samples.sample_key // 17592186044416 as file_id,
        samples.engine,
        samples.window_ns,
        ways.way,
        case when samples.metric = ways.bytes_metric then samples.value end as moved_bytes,
        case when samples.metric = ways.seconds_metric then samples.value end as moving_s
    from samples
    inner join ways on samples.metric in (ways.bytes_metric, ways.seconds_metric)
    where samples.value is not null
        and samples.observed_at_ns is not null
        and samples."window" = 'interval'
),
paces as (   -- one row per source, file, engine and metric: time between observations
    select
        source_id,
        (max(observed_at_ns) - min(observed_at_ns)) // nullif(count(*) - 1, 0) as gap_ns
    from observed
    group by source_id, file_id, engine, way, moved_bytes is null
),
grid as (   -- one row per source: start and length of its slices, none shorter than the usual gap
    select
        spans.source_id,
        spans.start_ns,
        greatest(spans.span_ns // 48 + 1, coalesce(usual.gap_ns, 0)) as slice_ns
    from (
        select
            source_id,
            min(observed_at_ns) as start_ns,
            max(observed_at_ns) - min(observed_at_ns) as span_ns
        from observed
        group by source_id
    ) as spans
    left join (
        select
            source_id,
            quantile_disc(gap_ns, 0.5) as gap_ns
        from paces
        group by source_id
    ) as usual on usual.source_id = spans.source_id
),
per_engine as (   -- one row per source, way, slice and engine
    select
        observed.source_id,
        observed.way,
        observed.file_id,
        observed.engine,
        grid.start_ns + (observed.observed_at_ns - grid.start_ns) // grid.slice_ns * grid.slice_ns
            as slice_start_ns,
        fsum(observed.moved_bytes order by observed.sample_key) as moved_bytes,
        fsum(observed.moving_s order by observed.sample_key) as moving_s,
        fsum(observed.moved_bytes order by observed.sample_key) filter (observed.window_ns > 0)
            / nullif(
                sum(observed.window_ns)
                    filter (observed.window_ns > 0 and observed.moved_bytes is not null),
                0
            )
            * 1e9 as wall_bytes_per_s
    from observed
    inner join grid on grid.source_id = observed.source_id
    group by observed.source_id, observed.way, observed.file_id, observed.engine, slice_start_ns
)
select
    way,                                                -- name: load (to HBM) | store (from HBM) | hand_off (between instances) | pool_read | pool_write
    source_id::bigint as source_id,                     -- key: the source
    slice_start_ns::bigint as slice_start_ns,           -- ns: start of the slice
    fsum(moved_bytes order by file_id, engine nulls first) as moved_bytes,   -- bytes: moved in the slice, all engines together
    fsum(moving_s order by file_id, engine nulls first) as moving_s,         -- s: spent moving, ranks added up; null: not said
    fsum(wall_bytes_per_s order by file_id, engine nulls first) as wall_bytes_per_s,   -- bytes/s: bytes over the time that passed, all engines together; null: time unknown
    fsum(moved_bytes order by file_id, engine nulls first) filter (moving_s is not null)
        / nullif(fsum(moving_s order by file_id, engine nulls first) filter (moved_bytes is not null), 0)
        as moving_bytes_per_s,                          -- bytes/s: bytes over the seconds spent moving
    count(*)::bigint as engines                         -- count: engines with an observation
from per_engine
group by way, source_id, slice_start_ns
order by way, source_id, slice_start_ns
limit 2000
