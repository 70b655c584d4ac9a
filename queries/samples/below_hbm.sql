-- name: samples/below_hbm
-- question: Which tiers below HBM did the running system show, beside the cached tokens of its requests?
-- grain: one row per tier and kind of evidence
-- params: none
-- reads: samples, transfers, block_events
-- order: tier, evidence
-- note: a load shows the tier that it begins in, a store the one that it ends in; what lies between is a way, no
-- note: tier. A hand-off from a prefill to a decode instance shows none.
with told as (   -- one row per observation of a tier below HBM
    select
        case metric
            when 'cached_host_tokens' then 'host'
            when 'host_kv_used_tokens' then 'host'
            when 'host_kv_used_bytes' then 'host'
            when 'cached_disk_tokens' then 'disk'
            when 'cached_external_tokens' then 'not_said'
            when 'external_prefix_hit_ratio' then 'not_said'
            else 'remote'
        end as tier,
        'samples' as evidence
    from samples
    where
        value > 0
        and metric in (
            'cached_host_tokens', 'host_kv_used_tokens', 'host_kv_used_bytes', 'cached_disk_tokens',
            'cached_external_tokens', 'external_prefix_hit_ratio',
            'cached_remote_tokens', 'pool_used_bytes', 'pool_objects', 'pool_hit_ratio',
            'pool_read_bytes', 'pool_written_bytes', 'pool_read_tokens', 'pool_written_tokens'
        )
    union all
    select
        coalesce(split_part(path, '>', case when direction = 'load' then 1 else -1 end), 'not_said'),
        'moves'
    from transfers
    where direction in ('load', 'store')
    union all
    select medium, 'kv_events'
    from block_events
    where "change" = 'stored'
),
capacities as (   -- one row per tier whose size is said
    select
        case metric when 'host_kv_capacity_bytes' then 'host' else 'remote' end as tier,
        max(value) as capacity_bytes
    from samples
    where metric in ('host_kv_capacity_bytes', 'pool_capacity_bytes')
    group by all
)
select
    tier,                                    -- name: host | disk | remote | not_said (below HBM, and no more is known)
    evidence,                                -- name: samples | moves | kv_events
    count(*)::bigint as observations,        -- count: samples above zero, moves, or blocks stored there
    max(capacity_bytes)::bigint as capacity_bytes   -- bytes: largest size that was printed of one engine's host tier, or of the pool; null: none
from told
left join capacities using (tier)
where tier in ('host', 'disk', 'remote', 'not_said')
group by tier, evidence
order by tier, evidence
