-- name: kv_events/moves
-- question: Between which media do blocks move, and how many tokens?
-- grain: one row per kind, from_medium and to_medium
-- params: none
-- reads: block_events
-- order: kind, from_medium, to_medium
-- note: moved: the engine says that the block left one medium for another. copied: a block began to
-- note: be stored below HBM while HBM of the same instance held it. written: the same, while HBM did
-- note: not hold it (the event came after the removal, or before the capture). loaded: a block began
-- note: to be stored in HBM while a tier below held it: most likely loaded; the tier is the nearest.
with sizes as (   -- one row per block that moved: the tokens that its store told of
    select
        block_key,
        max(block_tokens) as block_tokens
    from block_events
    where block_key in (select block_key from block_events where change = 'moved')
    group by block_key
),
placed as (   -- one row per event: its instance, its place in the order of all, what can be compared
    select
        coalesce(block_events.instance, 'file ' || (event_key >> 44)) as stream,
        case when clock in ('utc', 'naive') then -1 else event_key >> 44 end as world,
        event_key >> 44 as file,
        block_events."sequence" as batch,
        block_events.change,
        block_events.block_key,
        coalesce(block_events.block_tokens, sizes.block_tokens) as block_tokens,
        block_events.medium,
        block_events.from_medium,
        case when clock != 'order' then observed_at_ns end as at_ns,
        row_number() over (order by observed_at_ns nulls first, event_key, position) as step
    from block_events
    left join sizes on sizes.block_key = block_events.block_key
),
counted as (   -- one row per event: how often its instance had lost everything until then
    select
        placed.*,
        sum(case when change = 'cleared' or starts_anew then 1 else 0 end) over (
            partition by world, stream order by step
        ) as epoch
    from (
        select
            placed.*,
            coalesce(
                file != lag(file) over in_stream and batch < lag(batch) over in_stream,
                false
            ) as starts_anew
        from placed
        window in_stream as (partition by world, stream order by step)
    ) as placed
),
touches as (   -- one row per event and medium: filled with the block, or emptied of it
    select
        world, stream, epoch, step, at_ns, block_key, block_tokens,
        coalesce(medium, '') as tier,
        true as is_filled,
        change = 'stored' as is_store
    from counted
    where change in ('stored', 'moved') and block_key is not null
    union all
    select
        world, stream, epoch, step, at_ns, block_key, null,
        coalesce(from_medium, '') as tier,
        false as is_filled,
        false as is_store
    from counted
    where change = 'moved' and block_key is not null
    union all
    select
        world, stream, epoch, step, at_ns, block_key, null,
        unnest(
            case
                when medium is null then ['device', 'host', 'disk', 'remote', '']
                else [medium]
            end
        ) as tier,
        false as is_filled,
        false as is_store
    from counted
    where change = 'removed' and block_key is not null
),
turns as (   -- one row per touch that changes whether the medium of the instance holds the block
    select touches.*
    from touches
    qualify is_filled != coalesce(
        lag(is_filled) over (
            partition by world, stream, block_key, tier, epoch order by step, is_filled
        ),
        false
    )
),
starts as (   -- one row per time that an instance lost everything, or began
    select
        world,
        stream,
        epoch,
        min(step) as step,
        arg_min(at_ns, step) as at_ns
    from counted
    group by world, stream, epoch
),
stays as (   -- one row per stay of a block in a medium of an instance; no end: held to the last event
    select
        turns.world,
        turns.stream,
        turns.block_key,
        turns.block_tokens,
        turns.tier,
        turns.is_store,
        turns.step,
        turns.at_ns,
        coalesce(turns.end_step, starts.step) as end_step,
        coalesce(turns.end_ns, starts.at_ns) as end_ns
    from (
        select
            turns.*,
            lead(step) over in_medium as end_step,
            lead(at_ns) over in_medium as end_ns
        from turns
        window in_medium as (
            partition by world, stream, block_key, tier, epoch order by step, is_filled
        )
    ) as turns
    left join starts
        on starts.world = turns.world
        and starts.stream = turns.stream
        and starts.epoch = turns.epoch + 1
    where turns.is_filled
),
marks as (   -- one row per start and per end of a stay
    select world, stream, block_key, block_tokens, tier, is_store, step, at_ns, 1 as delta
    from stays
    union all
    select world, stream, block_key, null, tier, false, end_step, end_ns, -1
    from stays
    where end_step is not null
),
known as (   -- one row per mark: what was known of its block just before
    select
        marks.*,
        count(*) filter (delta = 1) over of_block as stays_before,
        count(*) filter (delta = 1) over of_own as own_stays_before,
        coalesce(sum(delta) over of_block, 0) as holders,
        coalesce(sum(delta) over of_own, 0) as own_holders,
        coalesce(sum(delta) filter (tier = 'device') over of_own, 0) as own_device_holders,
        coalesce(sum(delta) filter (tier = 'host') over of_own, 0) as own_host_holders,
        coalesce(sum(delta) filter (tier = 'disk') over of_own, 0) as own_disk_holders,
        coalesce(sum(delta) filter (tier = 'remote') over of_block, 0) as pool_holders,
        max(at_ns) filter (delta = 1) over of_block as last_stored_ns,
        max(at_ns) filter (delta = -1) over of_block as last_removed_ns
    from marks
    window
        of_block as (
            partition by world, block_key order by step, delta, tier
            rows between unbounded preceding and 1 preceding
        ),
        of_own as (
            partition by world, block_key, stream order by step, delta, tier
            rows between unbounded preceding and 1 preceding
        )
),
flows as (   -- one row per block that went from one medium to another
    select
        'moved' as kind,
        from_medium,
        medium as to_medium,
        block_tokens
    from counted
    where change = 'moved'
    union all
    select
        case
            when tier = 'device' then 'loaded'
            when own_device_holders > 0 then 'copied'
            else 'written'
        end as kind,
        case
            when tier != 'device' then case when own_device_holders > 0 then 'device' end
            when own_host_holders > 0 then 'host'
            when own_disk_holders > 0 then 'disk'
            else 'remote'
        end as from_medium,
        tier as to_medium,
        block_tokens
    from known
    where delta = 1
        and is_store
        and tier != ''
        and (tier != 'device' or own_host_holders + own_disk_holders + pool_holders > 0)
)
select
    kind,                                             -- name: moved | copied | written | loaded
    from_medium,                                      -- name: device | host | disk | remote; null: not known
    to_medium,                                        -- name: device | host | disk | remote; null: not said
    count(*)::bigint as moved_blocks,                 -- blocks: that went this way
    sum(block_tokens)::bigint as moved_tokens         -- tokens: of these, where known
from flows
group by kind, from_medium, to_medium
order by kind, from_medium nulls first, to_medium nulls first
