-- name: kv_events/residency
-- question: How long does a block stay in each medium of an instance before it is removed?
-- grain: one row per medium in which a block was stored
-- params: none
-- reads: block_events
-- order: medium
-- note: a stay lasts from the store (or move) to the removal (or move away, clearing, restart). Stays
-- note: without an end are still held at the last event and are in no quantile: they are the longest
-- note: ones, so that the quantiles are low where many are open. A reused block makes no event: how
-- note: often a stay was of use cannot be seen here.
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
)
select
    nullif(tier, '') as medium,                                     -- name: device | host | disk | remote; null: not said
    count(*)::bigint as stays,                                      -- stays: of a block in the medium of an instance
    count(*) filter (end_step is null)::bigint as open_stays,      -- stays: still held at the last event
    sum(block_tokens)::bigint as stored_tokens,                     -- tokens: of all stays, where known
    quantile_cont(end_ns - at_ns, 0.5) / 1e9 as stay_p50_s,         -- s: median length of the ended stays; null without a clock
    quantile_cont(end_ns - at_ns, 0.9) / 1e9 as stay_p90_s,         -- s: P90 of these
    case when count(end_ns - at_ns) >= 1000 then quantile_cont(end_ns - at_ns, 0.99) / 1e9 end as stay_p99_s   -- s: P99 of these; null below 1 000
from stays
group by tier
order by tier
