-- name: kv_events/moves
-- question: Between which media do blocks move, and how many tokens?
-- grain: one row per kind, from_medium and to_medium
-- params: none
-- reads: block_events, block_stays
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
flows as (   -- one row per block that went from one medium to another
    select
        'moved' as kind,
        block_events.from_medium,
        block_events.medium as to_medium,
        coalesce(block_events.block_tokens, sizes.block_tokens) as block_tokens
    from block_events
    left join sizes on sizes.block_key = block_events.block_key
    where block_events.change = 'moved'
    union all
    select
        began as kind,
        from_medium,
        medium as to_medium,
        block_tokens
    from block_stays
    where began in ('copied', 'written', 'loaded')
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
