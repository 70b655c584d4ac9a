-- name: quality/block_tokens_differ
-- question: Which stored blocks hold another number of tokens than the same block held before?
-- grain: one row per event and block that differs from the first store of its key
-- params: none
-- reads: block_events
-- order: event_key, position
-- note: no rows is good; equal keys mean equal tokens, so that a difference is a wrong key or a
-- note: wrong block size in the capture.
with stored as (   -- one row per stored block with known tokens, and the tokens of its first store
    select
        event_key,
        position,
        instance,
        block_tokens,
        first_value(block_tokens) over (
            partition by block_key order by event_key, position
        ) as first_block_tokens
    from block_events
    where change = 'stored' and block_tokens is not null
)
select
    event_key::bigint as event_key,                       -- key: the record
    position::bigint as position,                         -- count: place of the block in it
    instance,                                             -- name: engine and data-parallel rank
    block_tokens::bigint as block_tokens,                 -- tokens: of the block here
    first_block_tokens::bigint as first_block_tokens      -- tokens: of the same block in its first store
from stored
where block_tokens != first_block_tokens
order by event_key, position
limit 1000
