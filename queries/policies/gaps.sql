-- name: policies/gaps
-- question: What would a better policy bring at each capacity, and what more capacity, and which is more?
-- grain: one row per weight and capacity_blocks
-- params: kv_bytes_per_token DOUBLE = null, block_size_tokens BIGINT = null
-- reads: policy_hits
-- order: weight, capacity_blocks
-- note: no rows until `kvtrace policies` or `kvtrace analyze` made policy_hits.
-- note: policy gap: from LRU to the best that this capacity allows; capacity gap: from there to an unlimited cache. Each lies in a range where the optimum is bracketed.
with policies as (   -- one row per policy and capacity, over all cache domains
    select
        weight,
        capacity_blocks,
        policy,
        admission,
        ttl_ns,
        sum(hit_tokens)::bigint as hit_tokens,
        sum(prompt_tokens)::bigint as prompt_tokens
    from policy_hits
    group by weight, capacity_blocks, policy, admission, ttl_ns
),
best_policies as (   -- one row per capacity: the policy that serves most
    select
        weight,
        capacity_blocks,
        policy,
        admission,
        hit_tokens
    from policies
    where policy not in ('strict_optimum_low', 'strict_optimum_high', 'relaxed_optimum', 'unlimited')
    qualify row_number() over (
        partition by weight, capacity_blocks order by hit_tokens desc, policy, admission, ttl_ns
    ) = 1
),
capacities as (   -- one row per capacity, its bounds side by side
    select
        weight,
        capacity_blocks,
        max(hit_tokens) filter (where policy = 'lru' and admission = 'all') as lru_hit_tokens,
        max(hit_tokens) filter (where policy = 'strict_optimum_low') as strict_low_hit_tokens,
        max(hit_tokens) filter (where policy = 'strict_optimum_high') as strict_high_hit_tokens,
        max(hit_tokens) filter (where policy = 'relaxed_optimum') as relaxed_hit_tokens,
        max(hit_tokens) filter (where policy = 'unlimited') as unlimited_hit_tokens,
        max(prompt_tokens) as prompt_tokens
    from policies
    group by weight, capacity_blocks
),
gaps as (   -- one row per capacity: both gaps, each from below and from above
    select
        capacities.weight,
        capacities.capacity_blocks,
        capacities.lru_hit_tokens,
        best_policies.policy as best_policy,
        best_policies.admission as best_admission,
        best_policies.hit_tokens as best_hit_tokens,
        capacities.strict_low_hit_tokens,
        capacities.strict_high_hit_tokens,
        capacities.relaxed_hit_tokens,
        capacities.unlimited_hit_tokens,
        capacities.strict_low_hit_tokens - capacities.lru_hit_tokens as policy_gap_low_tokens,
        capacities.strict_high_hit_tokens - capacities.lru_hit_tokens as policy_gap_high_tokens,
        capacities.unlimited_hit_tokens - capacities.strict_high_hit_tokens as capacity_gap_low_tokens,
        capacities.unlimited_hit_tokens - capacities.strict_low_hit_tokens as capacity_gap_high_tokens,
        capacities.prompt_tokens
    from capacities
    left join best_policies
        on best_policies.weight = capacities.weight
        and best_policies.capacity_blocks = capacities.capacity_blocks
)
select
    weight,                                      -- name: blocks (each takes one place) | tokens (a partial block takes less)
    capacity_blocks,                             -- blocks: capacity in full blocks
    capacity_blocks * getvariable('block_size_tokens')::bigint * getvariable('kv_bytes_per_token')::double as capacity_bytes,   -- bytes: the same in KV bytes; null where the bytes of a token are not known
    lru_hit_tokens,                              -- tokens: served under LRU
    best_policy,                                 -- name: the policy that serves most, of those that were simulated
    best_admission,                              -- name: its admission
    best_hit_tokens,                             -- tokens: what it serves
    strict_low_hit_tokens,                       -- tokens: the strict-prefix optimum is at least this
    strict_high_hit_tokens,                      -- tokens: and at most this
    relaxed_hit_tokens,                          -- tokens: the most without prefix closure
    unlimited_hit_tokens,                        -- tokens: what an unlimited cache serves
    prompt_tokens,                               -- tokens: prompt tokens of all requests
    policy_gap_low_tokens,                       -- tokens: what a better policy brings over LRU, at least (with the future at hand)
    policy_gap_high_tokens,                      -- tokens: and at most
    capacity_gap_low_tokens,                     -- tokens: what only more capacity brings, at least
    capacity_gap_high_tokens,                    -- tokens: and at most
    policy_gap_low_tokens / nullif(prompt_tokens, 0) as policy_gap_low_ratio,         -- ratio: policy_gap_low_tokens / prompt_tokens
    policy_gap_high_tokens / nullif(prompt_tokens, 0) as policy_gap_high_ratio,       -- ratio: policy_gap_high_tokens / prompt_tokens
    capacity_gap_low_tokens / nullif(prompt_tokens, 0) as capacity_gap_low_ratio,     -- ratio: capacity_gap_low_tokens / prompt_tokens
    capacity_gap_high_tokens / nullif(prompt_tokens, 0) as capacity_gap_high_ratio,   -- ratio: capacity_gap_high_tokens / prompt_tokens
    case
        when policy_gap_high_tokens = 0 and capacity_gap_high_tokens = 0 then 'none'
        when policy_gap_low_tokens > capacity_gap_high_tokens then 'policy'
        when capacity_gap_low_tokens > policy_gap_high_tokens then 'capacity'
        when policy_gap_low_tokens = capacity_gap_high_tokens and policy_gap_high_tokens = capacity_gap_low_tokens then 'equal'
        when policy_gap_low_tokens is not null then 'unclear'
    end as larger_gap                            -- name: policy | capacity | equal | none (LRU serves all) | unclear (the ranges overlap)
from gaps
order by weight, capacity_blocks
