-- name: policies/hits
-- question: What does one cache serve under each eviction policy and admission, at each capacity?
-- grain: one row per weight, capacity_blocks, policy, admission and ttl_ns
-- params: kv_bytes_per_token DOUBLE = null, block_size_tokens BIGINT = null
-- reads: policy_hits
-- order: weight, capacity_blocks, policy, admission, ttl_ns
-- note: no rows until `kvtrace policies` or `kvtrace analyze` made policy_hits.
-- note: idealised: blocks are there at once. Each cache domain has a cache of this capacity to itself.
-- note: strict_optimum_low and _high hold the best that any cache of this capacity could do; hits in blocks and in tokens are bounds each for itself.
with policies as (   -- one row per policy and capacity, over all cache domains
    select
        weight,
        capacity_blocks,
        policy,
        admission,
        ttl_ns,
        sum(hit_blocks)::bigint as hit_blocks,
        sum(hit_tokens)::bigint as hit_tokens,
        sum(block_refs)::bigint as block_refs,
        sum(prompt_tokens)::bigint as prompt_tokens,
        sum(writes_blocks)::bigint as writes_blocks,
        sum(writes_tokens)::bigint as writes_tokens,
        sum(requests)::bigint as requests,
        sum(requests_with_hit)::bigint as requests_with_hit
    from policy_hits
    group by weight, capacity_blocks, policy, admission, ttl_ns
)
select
    weight,                                      -- name: blocks (each takes one place) | tokens (a partial block takes less)
    capacity_blocks,                             -- blocks: capacity in full blocks
    capacity_blocks * getvariable('block_size_tokens')::bigint * getvariable('kv_bytes_per_token')::double as capacity_bytes,   -- bytes: the same in KV bytes; null where the bytes of a token are not known
    policy,                                      -- name: lru | leaf_lru | fifo | flat_fifo | lfu | arc | s3_fifo | length_aware | ttl, or a bound
    admission,                                   -- name: all | second_use (a block is written from its second request on)
    ttl_ns,                                      -- ns: a block is gone this long after its last use; null for other policies
    hit_blocks,                                  -- blocks: references served from the cache
    hit_tokens,                                  -- tokens: prompt tokens served from the cache
    block_refs,                                  -- blocks: references in all
    prompt_tokens,                               -- tokens: prompt tokens of all requests
    hit_blocks / nullif(block_refs, 0) as hit_ratio_blocks,          -- ratio: hit_blocks / block_refs
    hit_tokens / nullif(prompt_tokens, 0) as hit_ratio_tokens,       -- ratio: hit_tokens / prompt_tokens
    writes_blocks,                               -- blocks: written into the cache; null for a bound
    writes_tokens,                               -- tokens: of those blocks; null for a bound
    requests_with_hit,                           -- requests: with at least one block served; null for a bound of one capacity
    requests                                     -- requests: in all
from policies
order by weight, capacity_blocks, policy, admission, ttl_ns
