"""Prometheus series of engines, KV layers and machines: what each becomes, and what it gained."""

from __future__ import annotations

from typing import Final

SUPPLIED: Final = (
    "prefix_hit_ratio",
    "external_prefix_hit_ratio",
    "prompt_hit_ratio",
    "layer_hit_ratio",
    "pool_hit_ratio",
    "prompt_tokens",
    "cached_tokens",
    "cached_device_tokens",
    "cached_host_tokens",
    "cached_disk_tokens",
    "cached_remote_tokens",
    "cached_external_tokens",
    "computed_tokens",
    "output_tokens",
    "kv_usage_ratio",
    "kv_capacity_tokens",
    "running_requests",
    "waiting_requests",
    "preemptions",
    "ttft_s",
    "queue_s",
    "prefill_s",
    "e2e_s",
    "tpot_s",
    "request_computed_tokens",
    "kv_block_idle_before_evict_s",
    "kv_loaded_bytes",
    "kv_stored_bytes",
    "kv_load_s",
    "kv_store_s",
    "pool_read_bytes",
    "pool_written_bytes",
    "pool_used_bytes",
    "pcie_tx_bytes_per_s",
    "pcie_rx_bytes_per_s",
    "nvlink_tx_bytes_per_s",
    "nvlink_rx_bytes_per_s",
    "sm_active_ratio",
    "dram_active_ratio",
    "nic_tx_bytes",
    "nic_rx_bytes",
    "rdma_tx_bytes",
    "rdma_rx_bytes",
)
"""Metrics that audits use most; `schema/metrics.py` has all."""
EXPORTERS: Final = (
    "vLLM 0.6 to 0.33, SGLang 0.4 to 0.5.23, TensorRT-LLM 1.x, LMCache 0.3 to 0.5"
    " (in the engine and as a server), Mooncake master and client, Dynamo frontend 1.x,"
    " llama.cpp, TGI; DCGM exporter 3 and 4, node exporter 1.x (names and HELP texts of their"
    " sources and documentation)"
)
"""Programs whose names were read."""
