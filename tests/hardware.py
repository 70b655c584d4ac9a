"""Hardware that only tests ask for."""

from __future__ import annotations

from dataclasses import replace

from kvtrace.cost.hardware import HardwareProfile


def with_link_speed(hardware: HardwareProfile, factor: float) -> HardwareProfile:
    """The same node with all links and DRAM `factor` times as fast."""
    return replace(
        hardware,
        host_link=hardware.host_link.scaled(factor),
        tcp=replace(hardware.tcp, port=hardware.tcp.port.scaled(factor)),
        rdma=replace(hardware.rdma, port=hardware.rdma.port.scaled(factor)),
        dram_read_bytes_per_s=hardware.dram_read_bytes_per_s.scaled(factor),
        dram_write_bytes_per_s=hardware.dram_write_bytes_per_s.scaled(factor),
    )
