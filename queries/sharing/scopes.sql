-- name: sharing/scopes
-- question: How much reuse is left, and what does the rest cost a month, if a cache is shared by all, within a tenant, a user or a conversation?
-- grain: one row per scope
-- params: kv_bytes_per_token DOUBLE = null, usd_per_reused_token DOUBLE = null, windows_per_month DOUBLE = null
-- reads: requests, reuse, continuations
-- order: place
-- note: unlimited caches: what a scope loses is lost whatever the size; copies that isolation makes take room on top (held_tokens), which a finite cache loses hits to.
-- note: each scope is judged on the requests whose group is known, against what the same requests could reuse of anybody's; where no request names its group every figure is null, never zero.
-- note: tenants (teams, organisations, projects, API keys, consumers) and end users are what the logs name so; a user is one of its tenant where both are known, so that the same name in two tenants is two users. Conversations are those of `continuations`.
-- note: money needs usd_per_reused_token (USD of the GPU time that one reused token frees) and windows_per_month (how often this trace fits into a month); it counts GPU time by the second, before rounding to whole instances.
with per_request as (   -- one row per ok headline request with blocks
    select
        served.request_key,
        served.prompt_tokens,
        served.tenant_key,
        served.user_key,
        turns.cache_domain,
        turns.conversation
    from requests as served
    join continuations as turns on turns.request_key = served.request_key
    where served.is_headline and served.status = 'ok'
),
owned_requests as (   -- one row per scope and request whose group is known
    select 'global' as scope, request_key, prompt_tokens, 0::uhugeint as owner from per_request
    union all
    select
        'tenant',
        request_key,
        prompt_tokens,
        tenant_key::uhugeint
    from per_request
    where tenant_key is not null
    union all
    select
        'user',
        request_key,
        prompt_tokens,
        coalesce(tenant_key, 0)::uhugeint * 18446744073709551616::uhugeint + user_key::uhugeint
    from per_request
    where user_key is not null
    union all
    select
        'session',
        request_key,
        prompt_tokens,
        cache_domain::uhugeint * 1000000000000 + conversation::uhugeint
    from per_request
),
owned_atoms as (   -- one row per scope and atom of such a request: whether the group held it before
    select
        owned.scope,
        owned.owner,
        owned.request_key,
        facts.cache_domain,
        facts.atom,
        facts.is_reusable,
        facts.token_count,
        owned.prompt_tokens is not null as is_counted,
        min(facts.arrival_rank) over (
            partition by owned.scope, owned.owner, facts.cache_domain, facts.atom
        ) < facts.arrival_rank as is_held_by_group
    from reuse as facts
    join owned_requests as owned on owned.request_key = facts.request_key
),
reused as (   -- one row per scope whose groups are known: tokens that anybody held before, and the group
    select
        scope,
        coalesce(sum(token_count) filter (is_counted and is_reusable), 0) as global_reusable_tokens,
        coalesce(sum(token_count) filter (is_counted and is_reusable and is_held_by_group), 0)
            as reusable_tokens,
        count(distinct request_key) filter (is_reusable and not is_held_by_group)
            as reaching_requests
    from owned_atoms
    group by scope
),
copies as (   -- one row per scope, group and atom: its tokens, held once by the group
    select scope, owner, max(token_count) as token_count
    from owned_atoms
    group by scope, owner, cache_domain, atom
),
held as (   -- one row per scope: what an unlimited cache of each group holds, together
    select scope, sum(token_count) as held_tokens
    from copies
    group by scope
),
known as (   -- one row per scope: the requests whose group is known
    select
        scope,
        count(*) as known_requests,
        count(distinct owner) as groups,
        sum(prompt_tokens) as prompt_tokens
    from owned_requests
    group by scope
),
scopes as (   -- one row per scope, the widest first
    select
        names.place,
        names.scope,
        (select count(*) from per_request) as requests,
        coalesce(known.known_requests, 0) as known_requests,
        known.groups,
        known.prompt_tokens,
        reused.global_reusable_tokens,
        reused.reusable_tokens,
        reused.global_reusable_tokens - reused.reusable_tokens as lost_tokens,
        reused.reaching_requests,
        held.held_tokens
    from (
        values (1, 'global'), (2, 'tenant'), (3, 'user'), (4, 'session')
    ) as names (place, scope)
    left join known on known.scope = names.scope
    left join reused on reused.scope = names.scope
    left join held on held.scope = names.scope
    where exists (select 1 from per_request)
)
select
    place::bigint as place,                                -- rank: from the widest scope, from 1
    scope,                                                 -- name: global (one cache for all) | tenant | user | session (one conversation)
    groups::bigint as groups,                              -- count: groups that would have a cache each; null: no request names one
    known_requests::bigint as known_requests,              -- requests: whose group is known
    requests::bigint as requests,                          -- requests: ok, of the headline source, with blocks
    prompt_tokens::bigint as prompt_tokens,                -- tokens: of the requests whose group is known
    reusable_tokens::bigint as reusable_tokens,            -- tokens: of these, held before by a request of the same group
    global_reusable_tokens::bigint as global_reusable_tokens,   -- tokens: of these, held before by anybody's request
    lost_tokens::bigint as lost_tokens,                    -- tokens: global_reusable_tokens - reusable_tokens: reusable only of another group's request
    reusable_tokens / nullif(prompt_tokens, 0) as reusable_ratio_tokens,   -- ratio: reusable_tokens / prompt_tokens
    lost_tokens / nullif(global_reusable_tokens, 0) as lost_ratio_tokens,  -- ratio: lost_tokens / global_reusable_tokens
    reaching_requests::bigint as reaching_requests,        -- requests: that begin with tokens which only another group held before
    held_tokens::bigint as held_tokens,                    -- tokens: that unlimited caches of the groups hold together; a block in several groups counts in each
    held_tokens * getvariable('kv_bytes_per_token')::double as held_bytes,   -- bytes: KV of these; null without kv_bytes_per_token
    reusable_tokens * getvariable('usd_per_reused_token')::double * getvariable('windows_per_month')::double as worth_usd_per_month,   -- USD/month: GPU time that the reuse frees, by the second; null without the price or the month
    lost_tokens * getvariable('usd_per_reused_token')::double * getvariable('windows_per_month')::double as isolation_usd_per_month   -- USD/month: of that, what a cache of its own for each group gives up
from scopes
order by place
