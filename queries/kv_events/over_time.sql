-- name: kv_events/over_time
-- question: How much does the fleet compute over time, how much of it again, and how much does HBM drop?
-- grain: one row per slice_start_ns; up to 24 equal slices of the span of events
-- params: none
-- reads: block_events, block_stays
-- order: slice_start_ns
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
-- note: no rows without a clock; the first slices are low since nothing was seen before them.
with span as (   -- one row: up to 24 equal slices, in whole ns
    select
        min(observed_at_ns) as start_ns,
        (max(observed_at_ns) - min(observed_at_ns)) // 24 + 1 as slice_ns,
        max(observed_at_ns) - min(observed_at_ns) as span_ns
    from block_events
    where clock != 'order'
),
slices as (   -- one row per slice, those without events too
    select
        slice,
        start_ns + slice * slice_ns as slice_start_ns
    from span, range(0, 24) as numbers (slice)
    where slice <= span_ns // slice_ns
),
happened as (   -- one row per computed block and per block that left HBM
    select
        started_at_ns as at_ns,
        true as is_computed,
        place != 'first_seen' as is_restored,
        false as is_removed,
        block_tokens
    from block_stays
    where began = 'computed'
    union all
    select ended_at_ns, false, false, true, block_tokens
    from block_stays
    where medium = 'device' and ended != 'open'
),
per_slice as (   -- one row per slice in which something happened
    select
        (happened.at_ns - span.start_ns) // span.slice_ns as slice,
        count(*) filter (is_computed) as computed_blocks,
        sum(block_tokens) filter (is_computed) as computed_tokens,
        sum(block_tokens) filter (is_restored) as restored_tokens,
        count(*) filter (is_restored) as restored_blocks,
        count(*) filter (is_removed) as removed_blocks
    from happened, span
    where happened.at_ns is not null
    group by (happened.at_ns - span.start_ns) // span.slice_ns
)
select
    slices.slice_start_ns::bigint as slice_start_ns,                         -- ns: start of the slice, on the clock of the events
    coalesce(per_slice.computed_blocks, 0)::bigint as computed_blocks,       -- blocks: computed in the slice
    per_slice.computed_tokens::bigint as computed_tokens,                    -- tokens: of these, where known; null where none was computed
    coalesce(per_slice.restored_blocks, 0)::bigint as restored_blocks,       -- blocks: of the computed ones, those that had been stored before
    per_slice.restored_tokens::bigint as restored_tokens,                    -- tokens: of these, where known; null where none was computed again
    coalesce(per_slice.restored_blocks, 0) / nullif(per_slice.computed_blocks, 0) as restored_ratio_blocks,   -- ratio: restored_blocks / computed_blocks; null in a slice without computed blocks
    coalesce(per_slice.removed_blocks, 0)::bigint as removed_blocks          -- blocks: that left HBM in the slice
from slices
left join per_slice on per_slice.slice = slices.slice
order by slices.slice_start_ns
