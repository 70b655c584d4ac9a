-- name: links/measured_bytes
-- question: How many bytes crossed each link, and how busy was it?
-- grain: one row per link (kind, file, device) and slice; up to 96 equal slices
-- params: none
-- reads: samples
-- order: link, file_id, device, slice_start_ns
-- note: counters give bytes. DCGM gives rates, each the mean since the sample before it: bytes are rate
-- note: times that time, and the first sample gives none. Bytes of headers are in them.
with flows as (   -- one row per observation of bytes or a rate at a link with a time
    select
        samples.sample_key,
        samples.sample_key // 17592186044416 as file_id,
        coalesce(samples.engine, '') as device,
        split_part(samples.metric, '_', 1) as link,
        split_part(samples.metric, '_', 2) as direction,
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
        observed_at_ns,
        passed_ns,
        case when unit = 'bytes' then value else value * passed_ns / 1e9 end as moved_bytes
    from timed
    where passed_ns > 0
),
capacities as (   -- one row per link that says its speed
    select
        samples.sample_key // 17592186044416 as file_id,
        coalesce(samples.engine, '') as device,
        split_part(samples.metric, '_', 1) as link,
        max(samples.value) as capacity_bytes_per_s
    from samples
    where samples.metric in ('nic_capacity_bytes_per_s', 'rdma_capacity_bytes_per_s')
        and samples.value > 0
    group by all
),
grid as (   -- one row: start and length of the slices
    select
        min(observed_at_ns) as start_ns,
        (max(observed_at_ns) - min(observed_at_ns))
            // least(96, greatest(1, 2000 // greatest(1, count(distinct concat_ws(' ', link, file_id, device))))) + 1 as slice_ns
    from moved
),
per_slice as (   -- one row per link and slice
    select
        moved.link,
        moved.file_id,
        moved.device,
        grid.start_ns + (moved.observed_at_ns - grid.start_ns) // grid.slice_ns * grid.slice_ns
            as slice_start_ns,
        fsum(moved.moved_bytes order by moved.sample_key) filter (moved.direction = 'tx') as tx_bytes,
        fsum(moved.moved_bytes order by moved.sample_key) filter (moved.direction = 'rx') as rx_bytes,
        sum(moved.passed_ns) filter (moved.direction = 'tx') as tx_ns,
        sum(moved.passed_ns) filter (moved.direction = 'rx') as rx_ns
    from moved, grid
    group by moved.link, moved.file_id, moved.device, slice_start_ns
)
select
    per_slice.link,                                     -- name: pcie | nvlink (of a GPU) | nic (Ethernet port) | rdma (RDMA port)
    per_slice.file_id::bigint as file_id,               -- key: the file; hosts are numbered inside it
    nullif(per_slice.device, '') as device,             -- name: host number and device; null: not said
    per_slice.slice_start_ns::bigint as slice_start_ns,   -- ns: start of the slice
    per_slice.tx_bytes,                                 -- bytes: that left the GPU or the port; null: not measured
    per_slice.rx_bytes,                                 -- bytes: that reached it
    per_slice.tx_bytes / nullif(per_slice.tx_ns, 0) * 1e9 as tx_bytes_per_s,   -- bytes/s: mean of the slice
    per_slice.rx_bytes / nullif(per_slice.rx_ns, 0) * 1e9 as rx_bytes_per_s,   -- bytes/s: mean of the slice
    capacities.capacity_bytes_per_s,                    -- bytes/s: speed of the port, each way, as it says; null: not said
    greatest(
        per_slice.tx_bytes / nullif(per_slice.tx_ns, 0) * 1e9,
        per_slice.rx_bytes / nullif(per_slice.rx_ns, 0) * 1e9
    ) / capacities.capacity_bytes_per_s as utilisation_ratio   -- ratio: busier way / speed; null without a known speed
from per_slice
left join capacities
    on capacities.file_id = per_slice.file_id
    and capacities.device = per_slice.device
    and capacities.link = per_slice.link
order by link, file_id, device nulls first, slice_start_ns
limit 2000
