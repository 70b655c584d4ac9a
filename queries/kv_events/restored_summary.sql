-- name: kv_events/restored_summary
-- question: How much of what the fleet computed had it computed before: the most that a pool of unlimited size and zero cost could have restored?
-- grain: one row; none without events
-- params: none
-- reads: block_events, block_stays
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
with stored as (   -- one row: store events into HBM, whatever they mean
    select
        count(*) filter (change = 'stored' and medium = 'device') as stored_blocks,
        count(distinct coalesce(instance, 'file ' || (event_key >> 44))) as instances,
        count(*) as events,
        max(observed_at_ns) filter (clock != 'order')
        - min(observed_at_ns) filter (clock != 'order') as span_ns
    from block_events
),
sums as (   -- one row: what was computed, by what was known of it before
    select
        count(*) as new_blocks,
        count(*) filter (began = 'computed') as computed_blocks,
        sum(block_tokens) filter (began = 'computed') as computed_tokens,
        count(*) filter (block_tokens is null) as blocks_without_tokens,
        count(*) filter (began = 'computed' and place != 'first_seen') as restored_blocks,
        sum(block_tokens) filter (began = 'computed' and place != 'first_seen') as restored_tokens,
        sum(block_tokens) filter (place = 'other_instance_holds') as other_holds_tokens,
        sum(block_tokens) filter (place = 'same_instance_removed') as same_removed_tokens,
        sum(block_tokens) filter (place = 'other_instance_removed') as other_removed_tokens,
        sum(block_tokens) filter (began = 'loaded') as loaded_tokens
    from block_stays
    where began in ('computed', 'loaded')
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
