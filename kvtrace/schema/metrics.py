"""The vocabulary of the samples table: what each metric means, whatever program printed it.

Readers map upstream fields to these by formula, not by name. A counter is stored as what it gained
between two observations (window `interval`); its first observation, which says nothing of an
interval, is `cumulative`.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class MetricName(NamedTuple):
    """One metric of the samples table."""

    name: str
    unit: str
    meaning: str


_ROWS: Final = (
    # hits: numerator and denominator where known, hit_unit and window always
    MetricName("prefix_hit_ratio", "ratio", "looked-up prefix found in HBM"),
    MetricName("external_prefix_hit_ratio", "ratio", "of the misses in HBM, found outside it"),
    MetricName("prompt_hit_ratio", "ratio", "prompt found in any tier"),
    MetricName("pool_hit_ratio", "ratio", "objects found in the pool's look-ups"),
    MetricName("layer_hit_ratio", "ratio", "found by a KV layer's look-up, HBM's part included"),
    MetricName("cpu_prefix_hit_ratio", "ratio", "looked-up prefix found in swap space on the host"),
    MetricName("mm_hit_ratio", "ratio", "multi-modal inputs found in their cache"),
    # tokens gained over the window
    MetricName("prompt_tokens", "tokens", "prompt tokens of the requests admitted"),
    MetricName("cached_tokens", "tokens", "prompt tokens served from any KV cache"),
    MetricName("cached_device_tokens", "tokens", "prompt tokens served from HBM"),
    MetricName("cached_host_tokens", "tokens", "prompt tokens served from host DRAM"),
    MetricName("cached_disk_tokens", "tokens", "prompt tokens served from local SSD"),
    MetricName("cached_remote_tokens", "tokens", "prompt tokens served from a remote pool"),
    MetricName("cached_external_tokens", "tokens", "served from outside HBM, tier not said"),
    MetricName("computed_tokens", "tokens", "prompt tokens computed"),
    MetricName("output_tokens", "tokens", "tokens generated"),
    MetricName("prompt_tokens_per_s", "tokens_per_s", "prompt tokens a second"),
    MetricName("generation_tokens_per_s", "tokens_per_s", "generated tokens a second"),
    # of one request: means over the window, numerator is the sum, denominator the count
    MetricName("request_prompt_tokens", "tokens", "mean prompt tokens of a request"),
    MetricName("request_computed_tokens", "tokens", "mean prompt tokens computed for a request"),
    # requests and queues
    MetricName("running_requests", "requests", "requests in the batch"),
    MetricName("waiting_requests", "requests", "requests in the queue"),
    MetricName("swapped_requests", "requests", "requests swapped out to the host"),
    MetricName("deferred_requests", "requests", "waiting requests that were deferred"),
    MetricName("preemptions", "requests", "requests preempted"),
    MetricName(
        "retracted_requests", "requests", "requests taken out of the batch and waiting again"
    ),
    MetricName("bootstrap_requests", "requests", "waiting for the other half of a hand-off"),
    MetricName("transferring_requests", "requests", "whose KV is being handed off"),
    MetricName("preallocated_requests", "requests", "with room reserved for KV to be handed off"),
    MetricName("pending_prompt_tokens", "tokens", "prompt tokens still to be prefilled"),
    MetricName("finished_requests", "requests", "requests that ended"),
    MetricName("new_requests", "requests", "sequences admitted to prefill, chunks counted again"),
    MetricName("kv_fetch_waiting_requests", "requests", "waiting for a KV fetch to start"),
    MetricName("kv_fetch_running_requests", "requests", "with a KV fetch in progress"),
    MetricName("kv_fetch_done_requests", "requests", "fetched and waiting to run"),
    MetricName("router_overlap_blocks", "blocks", "router's estimate of blocks held by its choice"),
    # capacity and use of HBM
    MetricName("kv_usage_ratio", "ratio", "KV blocks in use, of all in HBM"),
    MetricName("cpu_kv_usage_ratio", "ratio", "KV blocks in use, of all swap space on the host"),
    MetricName("swa_kv_usage_ratio", "ratio", "sliding-window KV in use, of its pool in HBM"),
    MetricName("mamba_usage_ratio", "ratio", "state slots of linear attention in use, of all"),
    MetricName("kv_used_tokens", "tokens", "tokens that KV is held for in HBM"),
    MetricName("kv_capacity_tokens", "tokens", "tokens that HBM can hold KV for"),
    MetricName("kv_capacity_blocks", "blocks", "KV blocks of HBM"),
    MetricName("kv_memory_bytes", "bytes", "HBM of one rank left for KV"),
    MetricName(
        "max_concurrency", "requests", "requests of the longest length whose KV fits in HBM"
    ),
    MetricName("kv_evicted_tokens", "tokens", "tokens whose KV was evicted from HBM"),
    MetricName("host_kv_used_tokens", "tokens", "tokens that KV is held for in host DRAM"),
    MetricName("host_kv_capacity_tokens", "tokens", "tokens that host DRAM can hold KV for"),
    MetricName("host_kv_used_bytes", "bytes", "KV bytes held in host DRAM"),
    MetricName("host_kv_capacity_bytes", "bytes", "host DRAM for KV"),
    MetricName("layer_stored_tokens", "tokens", "tokens that a KV layer stored"),
    # one iteration
    MetricName("iteration_elapsed_s", "s", "wall time of one engine step"),
    MetricName("iteration_device_s", "s", "time of one engine step on the GPU"),
    MetricName("iteration_context_requests", "requests", "requests in prefill in one engine step"),
    MetricName("iteration_context_tokens", "tokens", "prompt tokens computed in one engine step"),
    MetricName(
        "iteration_generation_requests", "requests", "requests in decode in one engine step"
    ),
    MetricName("iteration_generation_tokens", "tokens", "tokens generated in one engine step"),
    # means over the window: numerator is the sum, denominator the count
    MetricName("ttft_s", "s", "mean time to first token, from arrival"),
    MetricName("queue_s", "s", "mean time in the queue"),
    MetricName("prefill_s", "s", "mean time in prefill"),
    MetricName("e2e_s", "s", "mean time from arrival to last token"),
    MetricName("tpot_s", "s", "mean time per output token"),
    *(
        MetricName(f"{stage}_p{quantile}_le_s", "s", f"P{quantile} of the {what} is at most this")
        for stage, what in (
            ("ttft", "time to first token"),
            ("queue", "time in the queue"),
            ("prefill", "time in prefill"),
            ("e2e", "time from arrival to last token"),
            ("transfer", "time of one transfer"),
        )
        for quantile in (50, 90, 99)
    ),
    # residency of KV blocks in HBM, of a sample of them
    MetricName("kv_block_lifetime_s", "s", "mean time from allocation to eviction"),
    MetricName("kv_block_idle_before_evict_s", "s", "mean time from last use to eviction"),
    MetricName("kv_block_reuse_gap_s", "s", "mean time between two uses"),
    # moves of KV over the window
    MetricName("kv_loaded_bytes", "bytes", "KV bytes moved towards HBM"),
    MetricName("kv_stored_bytes", "bytes", "KV bytes moved away from HBM"),
    MetricName("kv_loaded_tokens", "tokens", "tokens whose KV moved towards HBM, each rank's own"),
    MetricName("kv_stored_tokens", "tokens", "tokens whose KV moved away from it, each rank's own"),
    MetricName("kv_load_bytes_per_s", "bytes_per_s", "mean rate of the copies towards HBM"),
    MetricName("kv_store_bytes_per_s", "bytes_per_s", "mean rate of the copies away from HBM"),
    MetricName("kv_load_s", "s", "time spent moving KV towards HBM, summed over ranks"),
    MetricName("kv_store_s", "s", "time spent moving KV away from HBM, summed over ranks"),
    MetricName("kv_moved_bytes", "bytes", "KV bytes moved between instances"),
    MetricName("kv_move_s", "s", "time spent moving KV between instances, summed over ranks"),
    MetricName("kv_transfers", "transfers", "moves of KV between instances, each rank's own"),
    MetricName("failed_kv_transfers", "transfers", "moves of KV that failed, each rank's own"),
    MetricName("kv_expired_requests", "requests", "requests whose KV expired before it was read"),
    MetricName("transfer_bytes_per_s", "bytes_per_s", "KV bytes moved a second, as printed"),
    MetricName("transfer_tasks", "transfers", "transfers that ended"),
    MetricName("transfer_slow_ratio", "ratio", "transfers slower than the last printed bound"),
    # the pool
    MetricName("pool_used_bytes", "bytes", "bytes held in the pool's DRAM"),
    MetricName("pool_capacity_bytes", "bytes", "DRAM of the pool"),
    MetricName("pool_ssd_used_bytes", "bytes", "bytes held on the pool's SSDs"),
    MetricName("pool_ssd_capacity_bytes", "bytes", "SSD of the pool"),
    MetricName("pool_usage_ratio", "ratio", "DRAM of the pool in use"),
    MetricName("pool_clients", "clients", "clients that the pool has"),
    MetricName("pool_failed_allocations", "requests", "writes for which the pool had no room"),
    MetricName("pool_objects", "objects", "objects held in the pool"),
    MetricName("pool_evicted_objects", "objects", "objects evicted from the pool"),
    MetricName("pool_evicted_bytes", "bytes", "bytes evicted from the pool"),
    MetricName("pool_read_bytes", "bytes", "bytes read from the pool"),
    MetricName("pool_written_bytes", "bytes", "bytes written to the pool"),
    MetricName("pool_read_p95_le_s", "s", "P95 of the time of one read is at most this"),
    MetricName("pool_write_p95_le_s", "s", "P95 of the time of one write is at most this"),
    MetricName("pool_read_tokens", "tokens", "tokens whose KV was read from the pool"),
    MetricName("pool_written_tokens", "tokens", "tokens whose KV was written to the pool"),
    MetricName("pool_read_bytes_per_s", "bytes_per_s", "mean rate of one read from the pool"),
    MetricName("pool_write_bytes_per_s", "bytes_per_s", "mean rate of one write to the pool"),
    # measured links; `engine` names host and device
    MetricName("pcie_tx_bytes", "bytes", "bytes that left the GPU over PCIe"),
    MetricName("pcie_rx_bytes", "bytes", "bytes that reached the GPU over PCIe"),
    MetricName("nvlink_tx_bytes", "bytes", "bytes that left the GPU over NVLink"),
    MetricName("nvlink_rx_bytes", "bytes", "bytes that reached the GPU over NVLink"),
    MetricName("nic_tx_bytes", "bytes", "bytes sent by an Ethernet port"),
    MetricName("nic_rx_bytes", "bytes", "bytes received by an Ethernet port"),
    MetricName("rdma_tx_bytes", "bytes", "bytes sent by an RDMA port"),
    MetricName("rdma_rx_bytes", "bytes", "bytes received by an RDMA port"),
    # rates as the exporter gives them: the mean over its own interval, headers included
    MetricName("pcie_tx_bytes_per_s", "bytes_per_s", "rate at which data left the GPU over PCIe"),
    MetricName("pcie_rx_bytes_per_s", "bytes_per_s", "rate at which data reached it over PCIe"),
    MetricName("nvlink_tx_bytes_per_s", "bytes_per_s", "rate at which data left it over NVLink"),
    MetricName("nvlink_rx_bytes_per_s", "bytes_per_s", "rate at which data reached it over NVLink"),
    MetricName("nic_capacity_bytes_per_s", "bytes_per_s", "speed of an Ethernet port"),
    MetricName("rdma_capacity_bytes_per_s", "bytes_per_s", "speed of an RDMA port"),
    MetricName("sm_active_ratio", "ratio", "time share with a warp on an SM"),
    MetricName("dram_active_ratio", "ratio", "time share in which HBM moved data"),
)
METRICS: Final[dict[str, MetricName]] = {row.name: row for row in _ROWS}
"""By name. A format that needs another one adds a row here."""
HIT_METRICS: Final = ("prefix_hit_ratio", "external_prefix_hit_ratio", "prompt_hit_ratio")
"""Metrics that say how much of the prompts a cache caught: grade C where nothing better is."""
LINK_METRICS: Final = (
    "pcie_tx_bytes",
    "pcie_rx_bytes",
    "nvlink_tx_bytes",
    "nvlink_rx_bytes",
    "nic_tx_bytes",
    "nic_rx_bytes",
    "rdma_tx_bytes",
    "rdma_rx_bytes",
)
"""Metrics of bytes that crossed a link."""
