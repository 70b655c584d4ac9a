-- name: policies/second_use
-- question: What do writes on second use save, and which hits do they lose, by policy and capacity?
-- grain: one row per weight, capacity_blocks, policy and ttl_ns that was simulated with both admissions
-- params: kv_bytes_per_token DOUBLE = null
-- reads: policy_hits
-- order: weight, capacity_blocks, policy, ttl_ns
-- note: no rows until `kvtrace policies --admission both` or `kvtrace analyze --depth full` made policy_hits.
-- note: kept above 1: blocks that are asked for once no longer push others out.
with policies as (   -- one row per policy, admission and capacity, over all cache domains
    select
        weight,
        capacity_blocks,
        policy,
        admission,
        ttl_ns,
        sum(hit_blocks)::bigint as hit_blocks,
        sum(hit_tokens)::bigint as hit_tokens,
        sum(writes_blocks)::bigint as writes_blocks,
        sum(writes_tokens)::bigint as writes_tokens
    from policy_hits
    group by weight, capacity_blocks, policy, admission, ttl_ns
),
admissions as (   -- one row per policy and capacity, both admissions side by side
    select
        whole.weight,
        whole.capacity_blocks,
        whole.policy,
        whole.ttl_ns,
        whole.hit_blocks as all_hit_blocks,
        second.hit_blocks as second_use_hit_blocks,
        whole.hit_tokens as all_hit_tokens,
        second.hit_tokens as second_use_hit_tokens,
        whole.writes_blocks as all_writes_blocks,
        second.writes_blocks as second_use_writes_blocks,
        whole.writes_tokens as all_writes_tokens,
        second.writes_tokens as second_use_writes_tokens
    from policies as whole
    join policies as second
        on second.weight = whole.weight
        and second.capacity_blocks = whole.capacity_blocks
        and second.policy = whole.policy
        and coalesce(second.ttl_ns, -1) = coalesce(whole.ttl_ns, -1)
    where whole.admission = 'all' and second.admission = 'second_use'
)
select
    weight,                                      -- name: blocks (each takes one place) | tokens (a partial block takes less)
    capacity_blocks,                             -- blocks: capacity in full blocks
    policy,                                      -- name: the eviction policy
    ttl_ns,                                      -- ns: a block is gone this long after its last use; null for other policies
    all_hit_blocks,                              -- blocks: served where every block is written
    second_use_hit_blocks,                       -- blocks: served where a block is written from its second request on
    all_hit_tokens,                              -- tokens: served where every block is written
    second_use_hit_tokens,                       -- tokens: served where a block is written from its second request on
    all_writes_blocks,                           -- blocks: written where every block is
    second_use_writes_blocks,                    -- blocks: written from the second request on
    (all_writes_tokens - second_use_writes_tokens) * getvariable('kv_bytes_per_token')::double as saved_write_bytes,   -- bytes: KV bytes that are not written; null where the bytes of a token are not known
    second_use_hit_tokens / nullif(all_hit_tokens, 0) as hits_kept_ratio,         -- ratio: second_use_hit_tokens / all_hit_tokens
    second_use_writes_blocks / nullif(all_writes_blocks, 0) as writes_kept_ratio  -- ratio: second_use_writes_blocks / all_writes_blocks
from admissions
order by weight, capacity_blocks, policy, ttl_ns
