-- name: sharing/roots
-- question: Which prefixes do many conversations begin with, as with a system prompt, and what does keeping them cost?
-- grain: one row per root
-- params: min_conversations BIGINT = 10, limit_roots BIGINT = 50, kv_bytes_per_token DOUBLE = null
-- reads: requests, reuse, continuations
-- order: root
-- note: a root is a prefix that at least min_conversations conversations begin with, as long as it is (blocks that the same requests go on with belong to it). Each request counts in the deepest root that it begins with, so that requests and tokens add up.
-- note: whether a root is a system prompt, a shared document or a tool list, the blocks do not say.
with atoms as (   -- one row per atom of an ok headline request
    select
        facts.request_key,
        facts.cache_domain,
        facts.atom,
        facts.position,
        facts.block_count,
        facts.token_count,
        facts.is_reusable,
        turns.conversation
    from reuse as facts
    join requests as served on served.request_key = facts.request_key
    join continuations as turns on turns.request_key = facts.request_key
    where served.is_headline and served.status = 'ok'
),
shared_atoms as (   -- one row per segment that enough conversations hold
    select
        cache_domain,
        atom,
        max(position) as position,
        max(block_count) as block_count,
        max(token_count) as token_count,
        count(distinct conversation) as conversations
    from atoms
    group by cache_domain, atom
    having count(distinct conversation) >= coalesce(getvariable('min_conversations')::bigint, 10)
),
per_request as (   -- one row per request that begins with a root: the deepest one
    select
        atoms.request_key,
        atoms.cache_domain,
        arg_max(atoms.atom, atoms.position) as atom,
        sum(atoms.token_count) as root_tokens,
        coalesce(sum(atoms.token_count) filter (atoms.is_reusable), 0) as reusable_tokens
    from atoms
    join shared_atoms as shared
        on shared.cache_domain = atoms.cache_domain and shared.atom = atoms.atom
    group by atoms.request_key, atoms.cache_domain
),
roots as (   -- one row per root, numbered from the one that is worth most
    select
        shared.cache_domain,
        shared.atom,
        shared.position,
        shared.position + shared.block_count as depth_blocks,
        max(per_request.root_tokens) as depth_tokens,
        shared.conversations,
        min(per_request.request_key) as some_request_key,
        count(*) as requests,
        sum(per_request.root_tokens) as root_tokens,
        sum(per_request.reusable_tokens) as reusable_tokens,
        row_number() over (
            order by
                sum(per_request.reusable_tokens) desc,
                count(*) desc,
                shared.cache_domain,
                shared.atom
        ) as root
    from per_request
    join shared_atoms as shared
        on shared.cache_domain = per_request.cache_domain and shared.atom = per_request.atom
    group by
        shared.cache_domain,
        shared.atom,
        shared.position,
        shared.block_count,
        shared.conversations
),
parents as (   -- one row per root that goes on from another: the nearest one above it
    select
        roots.root,
        arg_max(above.root, above.position) as parent_root,
        max(above.depth_tokens) as parent_depth_tokens
    from roots
    join atoms as path
        on path.request_key = roots.some_request_key and path.position < roots.position
    join roots as above on above.cache_domain = path.cache_domain and above.atom = path.atom
    group by roots.root
),
totals as (   -- one row: the denominators
    select
        sum(prompt_tokens) as prompt_tokens,
        count(*) as requests,
        (select sum(token_count) from atoms where is_reusable) as reusable_tokens
    from requests
    where is_headline and status = 'ok'
)
select
    roots.root::bigint as root,                              -- rank: name of the root in this list, from 1
    parents.parent_root::bigint as parent_root,              -- rank: the nearest root that this one goes on from; null: none
    roots.cache_domain::bigint as cache_domain,              -- key: where its blocks mean something
    roots.depth_blocks::bigint as depth_blocks,              -- blocks: of the root, from the start of the prompt
    roots.depth_tokens::bigint as depth_tokens,              -- tokens: the same
    roots.conversations::bigint as conversations,            -- conversations: that begin with it, deeper roots included
    roots.requests::bigint as requests,                      -- requests: whose deepest root it is
    roots.requests / nullif(totals.requests, 0) as requests_share,   -- ratio: requests / all requests
    roots.root_tokens::bigint as root_tokens,                -- tokens: of the root in the prompts of these requests
    roots.root_tokens / nullif(totals.prompt_tokens, 0) as prompt_tokens_share,   -- ratio: root_tokens / tokens of all prompts
    roots.reusable_tokens::bigint as reusable_tokens,        -- tokens: of these, that an unlimited cache would hold
    roots.reusable_tokens / nullif(totals.reusable_tokens, 0) as reusable_tokens_share,   -- ratio: of all reusable tokens
    (roots.depth_tokens - coalesce(parents.parent_depth_tokens, 0))::bigint as kept_tokens,   -- tokens: to keep for it, beyond its parent root
    (roots.depth_tokens - coalesce(parents.parent_depth_tokens, 0)) * getvariable('kv_bytes_per_token')::double as kept_bytes   -- bytes: the same in KV bytes; null without kv_bytes_per_token
from roots
cross join totals
left join parents on parents.root = roots.root
where roots.root <= coalesce(getvariable('limit_roots')::bigint, 50)
order by roots.root
