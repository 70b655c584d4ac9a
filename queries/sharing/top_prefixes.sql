-- name: sharing/top_prefixes
-- question: Which prefixes are worth the most, and how do they hang together?
-- grain: one row per listed prefix
-- params: rank_by VARCHAR = 'tokens', limit_prefixes BIGINT = 50, min_conversations BIGINT = 2
-- reads: requests, reuse, continuations
-- order: node
-- note: a prefix is a node of the tree of prompts: a segment of blocks that is always used together, with all blocks before it. Its name is its rank in this list, never a key.
-- note: by tokens: most tokens saved in the segment; by reuse: most requests that found it. Segments do not overlap, so that their savings add up.
-- note: min_conversations 1 lists the private prefixes of single conversations too.
with atoms as (   -- one row per atom of an ok headline request, with what lies before its end
    select
        facts.request_key,
        facts.cache_domain,
        facts.atom,
        facts.arrival_rank,
        facts.position,
        facts.block_count,
        facts.token_count,
        facts.is_reusable,
        turns.conversation,
        sum(facts.token_count) over (
            partition by facts.request_key order by facts.position
        ) as depth_tokens
    from reuse as facts
    join requests as served on served.request_key = facts.request_key
    join continuations as turns on turns.request_key = facts.request_key
    where served.is_headline and served.status = 'ok'
),
prefixes as (   -- one row per distinct prefix that was found again
    select
        cache_domain,
        atom,
        arg_min(request_key, arrival_rank) as first_request_key,
        max(position) as position,
        max(block_count) as segment_blocks,
        max(token_count) as segment_tokens,
        max(depth_tokens) as depth_tokens,
        count(*) as requests,
        count(distinct conversation) as conversations,
        count(*) filter (is_reusable) as reuses,
        coalesce(sum(token_count) filter (is_reusable), 0) as saved_tokens,
        case coalesce(getvariable('rank_by')::varchar, 'tokens')
            when 'tokens' then saved_tokens
            when 'reuse' then reuses
            else error('`rank_by` is tokens or reuse')::bigint
        end as worth
    from atoms
    group by cache_domain, atom
    having bool_or(is_reusable)
        and count(distinct conversation)
            >= coalesce(getvariable('min_conversations')::bigint, 2)
),
nodes as (   -- one row per listed prefix, numbered from the best
    select
        prefixes.*,
        row_number() over (order by worth desc, saved_tokens desc, cache_domain, atom) as node
    from prefixes
    qualify node <= coalesce(getvariable('limit_prefixes')::bigint, 50)
),
parents as (   -- one row per listed prefix below another: the nearest one above it
    select
        nodes.node,
        arg_max(above.node, above.position) as parent_node
    from nodes
    join atoms as path
        on path.request_key = nodes.first_request_key and path.position < nodes.position
    join nodes as above on above.cache_domain = path.cache_domain and above.atom = path.atom
    group by nodes.node
),
totals as (   -- one row: the denominators
    select
        sum(prompt_tokens) as prompt_tokens,
        count(*) as requests
    from requests
    where is_headline and status = 'ok'
)
select
    nodes.node::bigint as node,                              -- rank: name of the prefix in this list, from 1
    parents.parent_node::bigint as parent_node,              -- rank: the nearest listed prefix that this one goes on from; null: none is listed
    nodes.cache_domain::bigint as cache_domain,              -- key: where its blocks mean something
    (nodes.position + nodes.segment_blocks)::bigint as depth_blocks,   -- blocks: from the start of the prompt to its end
    nodes.depth_tokens::bigint as depth_tokens,              -- tokens: the same
    nodes.segment_blocks::bigint as segment_blocks,          -- blocks: of its own segment, the last part of it
    nodes.segment_tokens::bigint as segment_tokens,          -- tokens: the same
    nodes.requests::bigint as requests,                      -- requests: that begin with it
    nodes.requests / nullif(totals.requests, 0) as requests_share,   -- ratio: of all requests
    nodes.conversations::bigint as conversations,            -- conversations: of these requests
    nodes.reuses::bigint as reuses,                          -- requests: that an unlimited cache would have served the prefix
    nodes.saved_tokens::bigint as saved_tokens,              -- tokens: of the segment, over these requests
    nodes.saved_tokens / nullif(totals.prompt_tokens, 0) as saved_ratio_tokens,   -- ratio: saved_tokens / tokens of all prompts
    (nodes.reuses * nodes.depth_tokens)::bigint as saved_through_tokens   -- tokens: of the whole prefix over these requests; prefixes overlap, so never add these up
from nodes
cross join totals
left join parents on parents.node = nodes.node
order by nodes.node
