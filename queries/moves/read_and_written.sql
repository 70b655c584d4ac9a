-- name: moves/read_and_written
-- question: Is what is written below HBM ever read back?
-- grain: one row per place below HBM and way of knowing it
-- params: none
-- reads: transfers, samples
-- order: place, known_from
-- note: transfers: moves that logs name, by the place that a path leaves or reaches (host, disk, remote); null:
-- note: the source does not say. samples: counters of engines and pools, over the intervals that they cover.
-- note: Bytes where all moves say them, else tokens; nothing is added up from both.
with moves as (   -- one row per load or store
    select
        direction = 'load' as is_read,
        case
            when direction = 'load' then split_part(path, '>', 1)
            else split_part(path, '>', -1)
        end as place,
        moved_bytes,
        moved_tokens
    from transfers
    where direction in ('load', 'store')
),
by_place as (   -- one row per place: sums of what moves say
    select
        place,
        count(*) filter (is_read) as reads,
        count(*) filter (not is_read) as writes,
        count(moved_bytes) = count(*) as is_in_bytes,
        count(moved_tokens) = count(*) as is_in_tokens,
        sum(moved_bytes) filter (is_read) as read_bytes,
        sum(moved_bytes) filter (not is_read) as written_bytes,
        sum(moved_tokens) filter (is_read) as read_tokens,
        sum(moved_tokens) filter (not is_read) as written_tokens
    from moves
    group by place
),
pairs as (   -- one row per pair of counters
    select unnest(
        [
            {'place': null, 'unit': 'bytes', 'read': 'kv_loaded_bytes', 'written': 'kv_stored_bytes'},
            {'place': null, 'unit': 'tokens', 'read': 'kv_loaded_tokens', 'written': 'kv_stored_tokens'},
            {'place': 'remote', 'unit': 'bytes', 'read': 'pool_read_bytes', 'written': 'pool_written_bytes'},
            {'place': 'remote', 'unit': 'tokens', 'read': 'pool_read_tokens', 'written': 'pool_written_tokens'}
        ],
        recursive := true
    )
),
counted as (   -- one row per pair of counters of which either was seen
    select
        pairs.place,
        pairs.unit,
        count(samples.value) filter (samples.metric = pairs.read) as reads,
        count(samples.value) filter (samples.metric = pairs.written) as writes,
        fsum(samples.value order by samples.sample_key) filter (samples.metric = pairs.read)
            as read_amount,
        fsum(samples.value order by samples.sample_key) filter (samples.metric = pairs.written)
            as written_amount
    from pairs
    join samples
        on samples.metric in (pairs.read, pairs.written) and samples."window" = 'interval'
    group by pairs.place, pairs.unit
),
best as (   -- one row per place: bytes before tokens
    select *
    from counted
    qualify row_number() over (partition by place order by unit) = 1
),
known as (   -- one row per place and way of knowing it
    select
        place,
        'transfers' as known_from,
        case when is_in_bytes then 'bytes' when is_in_tokens then 'tokens' end as unit,
        reads,
        writes,
        case when is_in_bytes then read_bytes when is_in_tokens then read_tokens end::double
            as read_amount,
        case when is_in_bytes then written_bytes when is_in_tokens then written_tokens end::double
            as written_amount
    from by_place
    union all
    select place, 'samples', unit, reads, writes, read_amount, written_amount
    from best
)
select
    place,                                                  -- name: host | disk | remote; null: below HBM, the source does not say where
    known_from,                                             -- name: transfers | samples
    unit,                                                   -- name: bytes | tokens; null: not every move says either
    reads::bigint as reads,                                 -- count: loads, or observations of the counter of reads
    writes::bigint as writes,                               -- count: stores, or observations of the counter of writes
    case when reads > 0 then coalesce(read_amount, 0) else read_amount end as read_amount,   -- `unit`: read; null: no load was logged
    written_amount,                                         -- `unit`: written; null: no store was logged
    read_amount / nullif(written_amount, 0) as read_over_written   -- ratio: read_amount / written_amount
from known
order by place nulls first, known_from
