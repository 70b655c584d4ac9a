"""Upstream metrics of KV layers and of machines, and what they become.

LMCache 0.3 to 0.5 (in the engine and as a server), Mooncake master and client, DCGM exporter, node
exporter, RDMA ports.

The DCP fields of DCGM (`DCGM_FI_PROF_*_BYTES`) are rates in bytes a second, the mean over its own
interval, seen from the GPU, headers included; older exporters gave them the type `counter` all the
same (NVIDIA/dcgm-exporter issue 87 and pull request 88). Ports: node exporter has already turned
4-byte words into bytes; raw counters of /sys (`port_xmit_data`) are words.
"""

from __future__ import annotations

from typing import Final

from kvtrace.ingest.prometheus.uses import (
    Family,
    Program,
    counter,
    counters,
    gauge,
    share,
    summed,
)

_WORD_BYTES: Final = 4.0

_LMCACHE: Final[dict[str, Family]] = {
    "num_lookup_tokens": counters(share("layer_hit_ratio", "denominator", "tokens")),
    "num_lookup_hits": counters(share("layer_hit_ratio", "numerator", "tokens")),
    "num_prompt_tokens": counter("prompt_tokens"),
    "num_vllm_hit_tokens": counter("cached_device_tokens"),
    "num_hit_tokens": counter("cached_external_tokens"),
    "num_stored_tokens": counter("layer_stored_tokens"),
    "time_to_retrieve": summed("kv_load_s"),
    "time_to_store": summed("kv_store_s"),
    "num_remote_read_bytes": counter("pool_read_bytes"),
    "num_remote_write_bytes": counter("pool_written_bytes"),
    "local_cache_usage": gauge("host_kv_used_bytes"),
    "remote_cache_usage": gauge("pool_used_bytes"),
}
_LMCACHE_MP: Final[dict[str, Family]] = {
    # only whole chunks are looked up; what the GPU holds is not seen
    "lookup_requested": counters(share("layer_hit_ratio", "denominator", "tokens")),
    "lookup_requested_tokens": counters(share("layer_hit_ratio", "denominator", "tokens")),
    "lookup_hit": counters(share("layer_hit_ratio", "numerator", "tokens")),
    "lookup_hit_tokens": counters(share("layer_hit_ratio", "numerator", "tokens")),
    "l1_memory_usage_bytes": gauge("host_kv_used_bytes"),
    "l2_usage_bytes": gauge("pool_used_bytes"),
}
_MOONCAKE_GETS: Final[dict[str, Family]] = {
    # some masters write them without a prefix
    "total_get_nums": counters(share("pool_hit_ratio", "denominator", "objects")),
    "valid_get_nums": counters(share("pool_hit_ratio", "numerator", "objects")),
}
_MOONCAKE_MASTER: Final[dict[str, Family]] = {
    "allocated_bytes": gauge("pool_used_bytes"),
    "total_capacity_bytes": gauge("pool_capacity_bytes"),
    "key_count": gauge("pool_objects"),
    "evicted_key_count": counter("pool_evicted_objects"),
    "evicted_size_bytes": counter("pool_evicted_bytes"),
    **_MOONCAKE_GETS,
}
_MOONCAKE_CLIENT: Final[dict[str, Family]] = {
    "transfer_read_bytes": counter("pool_read_bytes"),
    "transfer_write_bytes": counter("pool_written_bytes"),
}
_DCGM: Final[dict[str, Family]] = {
    "PCIE_TX_BYTES": gauge("pcie_tx_bytes_per_s"),
    "PCIE_RX_BYTES": gauge("pcie_rx_bytes_per_s"),
    "NVLINK_TX_BYTES": gauge("nvlink_tx_bytes_per_s"),
    "NVLINK_RX_BYTES": gauge("nvlink_rx_bytes_per_s"),
    "SM_ACTIVE": gauge("sm_active_ratio"),
    "DRAM_ACTIVE": gauge("dram_active_ratio"),
}
_NODE: Final[dict[str, Family]] = {
    "network_transmit_bytes": counter("nic_tx_bytes"),
    "network_receive_bytes": counter("nic_rx_bytes"),
    "network_speed_bytes": gauge("nic_capacity_bytes_per_s"),
    "infiniband_port_data_transmitted_bytes": counter("rdma_tx_bytes"),
    "infiniband_port_data_received_bytes": counter("rdma_rx_bytes"),
    "infiniband_rate_bytes_per_second": gauge("rdma_capacity_bytes_per_s"),
    # mlx5 in Ethernet mode (ethtool -S): RDMA traffic that passes the kernel by
    "ethtool_tx_vport_rdma_unicast_bytes": counter("rdma_tx_bytes"),
    "ethtool_rx_vport_rdma_unicast_bytes": counter("rdma_rx_bytes"),
    "ethtool_transmitted_vport_rdma_unicast_bytes": counter("rdma_tx_bytes"),
    "ethtool_received_vport_rdma_unicast_bytes": counter("rdma_rx_bytes"),
}
_RDMA: Final[dict[str, Family]] = {
    "port_transmit_data_bytes": counter("rdma_tx_bytes"),
    "port_receive_data_bytes": counter("rdma_rx_bytes"),
    "port_rate_bytes_per_second": gauge("rdma_capacity_bytes_per_s"),
    "port_xmit_data": counter("rdma_tx_bytes", scale=_WORD_BYTES),
    "port_rcv_data": counter("rdma_rx_bytes", scale=_WORD_BYTES),
}
LAYERS: Final[tuple[Program, ...]] = (
    Program("lmcache_mp", ("lmcache_mp_",), _LMCACHE_MP),
    Program("lmcache", ("lmcache_",), _LMCACHE),
    Program("mooncake", ("mooncake_master_", "master_"), _MOONCAKE_MASTER),
    Program("mooncake", ("mooncake_",), _MOONCAKE_CLIENT),
    Program("mooncake", ("",), _MOONCAKE_GETS),
)
MACHINES: Final[tuple[Program, ...]] = (
    Program("dcgm", ("DCGM_FI_PROF_",), _DCGM, is_machine=True),
    Program("node", ("node_",), _NODE, is_machine=True),
    Program("rdma", ("infiniband_", "rdma_", ""), _RDMA, is_machine=True),
)
