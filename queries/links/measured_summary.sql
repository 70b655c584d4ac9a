-- name: links/measured_summary
-- question: How many bytes crossed each kind of link in all, and how fast at most?
-- grain: one row per kind of link
-- params: none
-- reads: samples
-- order: link
-- note: bytes as in links/measured_bytes. Rates are of one link: mean over its time, and most over one
-- note: observation.
with flows as (   -- one row per observation of bytes or a rate at a link with a time
    select
        samples.sample_key,
        samples.sample_key // 17592186044416 as file_id,
        coalesce(samples.engine, '') as device,
        split_part(samples.metric, '_', 1) as link,
        split_part(samples.metric, '_', 2) as direction,
        samples.clock,
        samples.observed_at_ns,
        samples.unit,
        samples.value,
        samples.window_ns
    from samples
    where regexp_full_match(samples.metric, '(pcie|nvlink|nic|rdma)_[rt]x_bytes(_per_s)?')
        and samples.value is not null
        and samples.observed_at_ns is not null
        and (samples.unit = 'bytes_per_s' or samples."window" = 'interval')
),
timed as (   -- one row per observation: its bytes and the time that they took
    select
        sample_key,
        file_id,
        device,
        link,
        direction,
        clock,
        observed_at_ns,
        case
            when unit = 'bytes' then window_ns
            else observed_at_ns - lag(observed_at_ns) over (
                partition by file_id, device, link, direction, unit
                order by observed_at_ns, sample_key
            )
        end as passed_ns,
        unit,
        value
    from flows
),
moved as (   -- one row per observation with known bytes over a known time
    select
        sample_key,
        file_id,
        device,
        link,
        direction,
        clock,
        observed_at_ns,
        passed_ns,
        case when unit = 'bytes' then value else value * passed_ns / 1e9 end as moved_bytes
    from timed
    where passed_ns > 0
),
per_link as (   -- one row per link
    select
        link,
        file_id,
        device,
        min(observed_at_ns - passed_ns) as start_ns,
        max(observed_at_ns) as last_at_ns,
        min(clock) as clock,
        fsum(moved_bytes order by sample_key) filter (direction = 'tx') as tx_bytes,
        fsum(moved_bytes order by sample_key) filter (direction = 'rx') as rx_bytes,
        sum(passed_ns) filter (direction = 'tx') as tx_ns,
        sum(passed_ns) filter (direction = 'rx') as rx_ns,
        max(moved_bytes / passed_ns * 1e9) filter (direction = 'tx') as tx_most,
        max(moved_bytes / passed_ns * 1e9) filter (direction = 'rx') as rx_most
    from moved
    group by link, file_id, device
),
capacities as (   -- one row per kind of link that says its speed
    select
        split_part(samples.metric, '_', 1) as link,
        min(samples.value) as capacity_bytes_per_s
    from samples
    where samples.metric in ('nic_capacity_bytes_per_s', 'rdma_capacity_bytes_per_s')
        and samples.value > 0
    group by all
)
select
    per_link.link,                                      -- name: pcie | nvlink (of a GPU) | nic (Ethernet port) | rdma (RDMA port)
    count(*)::bigint as links,                          -- count: links with measured bytes
    count(distinct concat_ws(' ', per_link.file_id, regexp_extract(per_link.device, '^host [0-9]+')))::bigint as hosts,   -- count: machines that they are in
    min(per_link.clock) as clock,                       -- name: of the observations
    min(per_link.start_ns)::bigint as start_ns,         -- ns: start of the first measured time
    max(per_link.last_at_ns)::bigint as last_at_ns,            -- ns: end of the last
    fsum(per_link.tx_bytes order by per_link.file_id, per_link.device) as tx_bytes,   -- bytes: that left the GPUs or ports; null: not measured
    fsum(per_link.rx_bytes order by per_link.file_id, per_link.device) as rx_bytes,   -- bytes: that reached them
    fsum(per_link.tx_bytes / nullif(per_link.tx_ns, 0) * 1e9 order by per_link.file_id, per_link.device)
        / nullif(count(per_link.tx_bytes), 0) as tx_bytes_per_s,   -- bytes/s: mean of one link
    fsum(per_link.rx_bytes / nullif(per_link.rx_ns, 0) * 1e9 order by per_link.file_id, per_link.device)
        / nullif(count(per_link.rx_bytes), 0) as rx_bytes_per_s,   -- bytes/s: mean of one link
    max(per_link.tx_most) as highest_tx_bytes_per_s,    -- bytes/s: most over one observation of one link
    max(per_link.rx_most) as highest_rx_bytes_per_s,    -- bytes/s: the same, towards the GPU or port
    any_value(capacities.capacity_bytes_per_s) as capacity_bytes_per_s   -- bytes/s: speed of the slowest such port, each way; null: not said
from per_link
left join capacities on capacities.link = per_link.link
group by per_link.link
order by per_link.link
