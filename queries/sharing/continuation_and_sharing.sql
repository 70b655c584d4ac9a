-- name: sharing/continuation_and_sharing
-- question: Whose blocks are reused: those of the same conversation, of other requests, or of an equal prompt?
-- grain: one row per kind of reuse
-- params: none
-- reads: requests, reuse, continuations
-- order: kind
-- note: the four kinds add up to all that is reusable. A block that both the conversation and somebody else held before (a system prompt in a follow-up) is a kind of its own: it would be reusable without the conversation.
-- note: tokens count only where the prompt length is known, as in reuse/summary.
with reused_atoms as (   -- one row per atom of an ok headline request, with who held it before
    select
        facts.request_key,
        facts.block_count,
        case when served.prompt_tokens is not null then facts.token_count end as token_count,
        facts.is_reusable,
        turns.repeat_of_request_key is not null as is_repeat,
        min(facts.arrival_rank) over (
            partition by facts.cache_domain, facts.atom, turns.conversation
        ) < facts.arrival_rank as is_held_by_own,
        openers.conversation <> turns.conversation
            or min(facts.arrival_rank) filter (turns.conversation <> openers.conversation) over (
                partition by facts.cache_domain, facts.atom
            ) < facts.arrival_rank as is_held_by_others
    from reuse as facts
    join requests as served on served.request_key = facts.request_key
    join continuations as turns on turns.request_key = facts.request_key
    join continuations as openers on openers.request_key = facts.first_request_key
    where served.is_headline and served.status = 'ok'
),
kinds as (   -- one row per reusable atom, with its kind
    select
        request_key,
        block_count,
        token_count,
        case
            when is_repeat then 'repeated_prompt'
            when is_held_by_own and is_held_by_others then 'continuation_and_sharing'
            when is_held_by_own then 'continuation'
            else 'sharing'
        end as kind
    from reused_atoms
    where is_reusable
),
totals as (   -- one row: the denominators
    select
        (select sum(block_count) from reused_atoms) as block_refs,
        (
            select sum(prompt_tokens) from requests where is_headline and status = 'ok'
        ) as prompt_tokens,
        (select sum(block_count) from kinds) as reusable_blocks,
        (select sum(token_count) from kinds) as reusable_tokens
),
per_kind as (   -- one row per kind that occurs
    select
        kind,
        count(distinct request_key) as requests,
        sum(block_count) as reusable_blocks,
        sum(token_count) as reusable_tokens
    from kinds
    group by kind
)
select
    names.kind,                                                      -- name: continuation (only the same conversation held it before) | sharing (only others) | continuation_and_sharing (both) | repeated_prompt (any reuse of a request whose whole prompt came before)
    coalesce(per_kind.requests, 0)::bigint as requests,              -- requests: with reuse of this kind; a request can be in several
    coalesce(per_kind.reusable_blocks, 0)::bigint as reusable_blocks,   -- blocks: references that an unlimited cache would hold
    coalesce(per_kind.reusable_tokens, 0)::bigint as reusable_tokens,   -- tokens: in these
    coalesce(per_kind.reusable_blocks, 0) / nullif(totals.reusable_blocks, 0) as reusable_blocks_share,   -- ratio: of all reusable blocks
    coalesce(per_kind.reusable_tokens, 0) / nullif(totals.reusable_tokens, 0) as reusable_tokens_share,   -- ratio: of all reusable tokens
    coalesce(per_kind.reusable_blocks, 0) / nullif(totals.block_refs, 0) as reusable_ratio_blocks,        -- ratio: reusable_blocks / block_refs
    coalesce(per_kind.reusable_tokens, 0) / nullif(totals.prompt_tokens, 0) as reusable_ratio_tokens,     -- ratio: reusable_tokens / prompt_tokens
    totals.block_refs::bigint as block_refs,                         -- blocks: references in all prompts
    totals.prompt_tokens::bigint as prompt_tokens                    -- tokens: of all prompts
from unnest(['continuation', 'continuation_and_sharing', 'repeated_prompt', 'sharing']) as names (kind)
cross join totals
left join per_kind on per_kind.kind = names.kind
where totals.block_refs > 0
order by names.kind
