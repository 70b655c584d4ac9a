-- name: sharing/how_known
-- question: How many requests go on from an earlier one, how is that known, and would blocks alone have found it?
-- grain: one row per kind of evidence that occurs
-- params: none
-- reads: continuations
-- order: known_from
-- note: where the logs name parents or sessions, the last four columns are a test of the full-block rule: followed_by_log_only are conversations that it misses (a prompt was edited or compacted, or is a template), followed_by_blocks_only are requests that it would put into a conversation wrongly, or whose session goes on under another id.
with links as (   -- one row per turn: its parent by the chosen evidence and by blocks
    select
        turns.known_from,
        turns.parent_request_key,
        turns.block_parent_request_key,
        by_blocks.conversation = turns.conversation as is_in_conversation
    from continuations as turns
    left join continuations as by_blocks on by_blocks.request_key = turns.block_parent_request_key
)
select
    known_from,                                              -- name: parent_key | session_key | blocks: what decided on the parent
    count(*)::bigint as requests,                            -- requests: decided so
    count(parent_request_key)::bigint as continuations,      -- requests: that go on from an earlier request
    count(parent_request_key) / nullif(count(*), 0) as continuations_ratio,   -- ratio: continuations / requests
    count(block_parent_request_key)::bigint as continuations_by_blocks,       -- requests: that go on from one by the full-block rule, whatever the logs say
    (count(*) filter (parent_request_key = block_parent_request_key))::bigint as same_parent,   -- requests: both name the same parent
    (count(*) filter (is_in_conversation and parent_request_key <> block_parent_request_key))::bigint as same_conversation,   -- requests: another parent, but of the same conversation
    (count(*) filter (parent_request_key is not null and block_parent_request_key is null))::bigint as followed_by_log_only,   -- requests: a parent that the blocks do not show
    (count(*) filter (parent_request_key is null and block_parent_request_key is not null))::bigint as followed_by_blocks_only   -- requests: opens a conversation by the logs, yet goes on from one by blocks
from links
group by known_from
order by known_from
