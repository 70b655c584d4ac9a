-- name: kv_events/restored_summary
-- question: How much of what the fleet computed had it computed before: the most that a pool of unlimited size and zero cost could have restored?
-- grain: one row; none without events
-- params: none
-- reads: block_events
-- order: one row
-- note: computed: a block is stored in HBM (medium device) that this instance did not hold there:
-- note: not moved there (change moved), not announced again while held, not the same block of a
-- note: further cache group. Prompts and answers both count. Computed again (restored tokens):
-- note: computed, while events before it, of any instance, say that it was stored. What was stored
-- note: before the capture, or in lost batches, is not known: a lower bound.
-- note: A block that a connector loads (LMCache, Mooncake, NIXL), or that a prefill instance hands
-- note: over, is announced as stored too, and counts as computed unless a tier below is seen to
-- note: hold it: where one runs, restored tokens are an upper bound in this respect.
-- note: place, the first that holds: lower_tier_holds: host or disk of the same instance, or a
-- note: remote tier, holds it, so that it was most likely loaded, not computed, and is no
-- note: restored token; other_instance_holds: another instance holds it, on any medium;
-- note: same_instance_removed: nobody holds it, this instance did; other_instance_removed: nobody
-- note: holds it, only others did.
-- note: without a clock, or on clocks that count from an unknown instant, files are not compared.
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
computed as (   -- one row per block that began to be stored in HBM: computed, or loaded from below
    select
        at_ns,
        block_tokens,
        case
            when stays_before = 0 then 'first'
            when own_host_holders + own_disk_holders + pool_holders > 0 then 'lower_tier_holds'
            when holders > own_holders then 'other_instance_holds'
            when own_stays_before > 0 then 'same_instance_removed'
            else 'other_instance_removed'
        end as origin,
        case when stays_before > 0 then at_ns - last_stored_ns end as since_stored_ns,
        case
            when stays_before = 0 then null
            when holders > 0 then 0
            else at_ns - last_removed_ns
        end as since_held_ns
    from known
    where delta = 1 and tier = 'device' and is_store
),
stored as (   -- one row: store events into HBM, whatever they mean
    select
        count(*) filter (change = 'stored' and medium = 'device') as stored_blocks,
        count(distinct stream) as instances,
        count(*) as events,
        max(at_ns) - min(at_ns) as span_ns
    from counted
),
sums as (   -- one row: what was computed, by what was known of it before
    select
        count(*) as new_blocks,
        count(*) filter (origin != 'lower_tier_holds') as computed_blocks,
        sum(block_tokens) filter (origin != 'lower_tier_holds') as computed_tokens,
        count(*) filter (block_tokens is null) as blocks_without_tokens,
        count(*) filter (origin not in ('first', 'lower_tier_holds')) as restored_blocks,
        sum(block_tokens) filter (origin not in ('first', 'lower_tier_holds')) as restored_tokens,
        sum(block_tokens) filter (origin = 'other_instance_holds') as other_holds_tokens,
        sum(block_tokens) filter (origin = 'same_instance_removed') as same_removed_tokens,
        sum(block_tokens) filter (origin = 'other_instance_removed') as other_removed_tokens,
        sum(block_tokens) filter (origin = 'lower_tier_holds') as loaded_tokens
    from computed
)
select
    stored.events::bigint as events,                            -- events: rows of block_events
    stored.instances::bigint as instances,                      -- instances: engines and data-parallel ranks that told of events
    stored.span_ns / 1e9 as span_s,                             -- s: first to last event; null without a clock
    (stored.stored_blocks - sums.new_blocks)::bigint as announced_again_blocks,   -- blocks: stored in HBM while the instance held them there; no computation
    sums.computed_blocks::bigint as computed_blocks,            -- blocks: computed
    sums.computed_tokens::bigint as computed_tokens,            -- tokens: of these, where known
    sums.restored_blocks::bigint as restored_blocks,            -- blocks: of the computed ones, those that had been stored before
    sums.restored_tokens::bigint as restored_tokens,            -- tokens: of these, where known
    sums.restored_tokens / nullif(sums.computed_tokens, 0) as restored_ratio_tokens,   -- ratio: restored_tokens / computed_tokens; the most that a pool could have restored in this window
    sums.restored_blocks / nullif(sums.computed_blocks, 0) as restored_ratio_blocks,   -- ratio: restored_blocks / computed_blocks
    sums.other_holds_tokens::bigint as other_instance_holds_tokens,     -- tokens: of the restored ones, another instance held them: routing or a pull from it would do
    sums.same_removed_tokens::bigint as same_instance_removed_tokens,   -- tokens: nobody held them, the same instance had: more capacity would do
    sums.other_removed_tokens::bigint as other_instance_removed_tokens, -- tokens: nobody held them, another instance had
    sums.loaded_tokens::bigint as loaded_tokens,                -- tokens: stored in HBM while a tier below held them: most likely loaded; in none of the above
    sums.blocks_without_tokens::bigint as blocks_without_tokens -- blocks: stored in HBM without a known number of tokens
from sums, stored
where stored.events > 0
order by events
