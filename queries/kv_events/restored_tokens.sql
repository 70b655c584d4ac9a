-- name: kv_events/restored_tokens
-- question: Which tokens were computed again although the fleet had computed them before, how long after, and where were they?
-- grain: one row per place and since_stored_bucket_s that holds a block
-- params: none
-- reads: block_stays
-- order: place, since_stored_bucket_s
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
-- note: since_stored: since the last time that the block began to be held anywhere, how long a pool
-- note: that writes on store would have kept it; since_held: since the last instance that held it
-- note: let go of it, 0 while one holds it, how much longer than the fleet it would have kept it.
with again as (   -- one row per block that was stored before it was computed, or loaded, now
    select
        place,
        case
            when since_stored_ns >= 1000000000
            then 1::bigint << (length(bin(since_stored_ns // 1000000000)) - 1)
            when since_stored_ns is not null then 0
        end as since_stored_bucket_s,
        block_tokens,
        since_held_ns
    from block_stays
    where place != 'first_seen'
),
whole as (   -- one row: all that was computed, loads left out
    select sum(block_tokens) as computed_tokens
    from block_stays
    where began = 'computed'
)
select
    again.place,                                                     -- name: lower_tier_holds | other_instance_holds | same_instance_removed | other_instance_removed
    again.since_stored_bucket_s::bigint as since_stored_bucket_s,    -- s: lower bound of the half-open range of ages up to twice this; 0 holds ages below 1 s; null without a clock
    count(*)::bigint as restored_blocks,                             -- blocks: stored in HBM again
    sum(again.block_tokens)::bigint as restored_tokens,              -- tokens: of these, where known
    any_value(whole.computed_tokens)::bigint as computed_tokens,     -- tokens: all that was computed in the window, loads left out
    sum(again.block_tokens) / nullif(any_value(whole.computed_tokens), 0) as restored_ratio_tokens,   -- ratio: restored_tokens / computed_tokens; of lower_tier_holds, loads against computed
    quantile_cont(again.since_held_ns, 0.5) / 1e9 as since_held_p50_s,   -- s: median time since the last instance let go of it; 0 while one holds it
    quantile_cont(again.since_held_ns, 0.9) / 1e9 as since_held_p90_s    -- s: the same, P90
from again, whole
group by again.place, again.since_stored_bucket_s
order by again.place, again.since_stored_bucket_s nulls last
