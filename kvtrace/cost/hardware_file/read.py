"""A user's hardware TOML: a built-in GPU and what differs from its usual host.

gpu = "H100-SXM5"
gpus_per_node = 8
hbm = "80GiB"
hbm_rate = "3.35TB/s"

[host_link]
link = "pcie5_x16"
rate = "48GB/s"

[rdma]
port = "200Gb/s"
rate = "22GB/s"
ports_per_node = 4

[dram]
size = "2TiB"
idle_share = 0.5
read = "400GB/s"
write = "200GB/s"

[topology]
gpus_per_uplink = 2
numa_nodes = 2
nic_placement = "switch"
nvme_placement = "socket"

[nvme]
tier = "nvme_gen5_x4"
drives = 4
rate = "12GB/s"

[pool]
nvme_tier = "nvme_gen4_x4"
drives = 12

[storage.our_appliance]
title = "our appliance"
medium = "dfs"
rate_per = "client"
read = "20GB/s"
write = "8GB/s"
first_byte = "500us"

[moves]
chunk = "2MiB"
handover = "4ms"
dram_lookup = "200us"
pool_lookup = "1ms"
gpu_memory_utilisation = 0.92
activation_reserve = "4GiB"
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from kvtrace.cost.evidence import Constant, read_user_toml
from kvtrace.cost.gpus import built_in_hardware
from kvtrace.cost.hardware import Gpu, HardwareProfile, Network
from kvtrace.cost.hardware_file.calibration import with_calibration
from kvtrace.cost.hardware_file.storage import with_storage, with_topology
from kvtrace.cost.links import Link, list_links, load_link
from kvtrace.cost.toml_reader import TomlReader
from kvtrace.units import NS_PER_S, parse_bytes, parse_duration_ns, parse_flops, parse_rate

_TOP: Final = ("gpu", "name", "family", "gpus_per_node", "hbm", "hbm_rate", "bf16", "fp8", "fp4",
               "scaleup", "gpu_usd_per_hour", "host_link", "tcp", "rdma", "dram", "topology",
               "nvme", "pool", "storage", "moves", "calibration")  # fmt: skip
_HOST_LINK: Final = ("link", "rate", "latency")
_NETWORK: Final = ("port", "rate", "ports_per_node", "latency", "setup")
_DRAM: Final = ("size", "idle_share", "read", "write")
_MOVES: Final = ("chunk", "load_efficiency", "load_contention", "handover", "dram_lookup",
                 "pool_lookup", "gpu_memory_utilisation", "activation_reserve")  # fmt: skip


def load_hardware_file(path: Path) -> HardwareProfile:
    """The profile that a user's TOML describes.

    Raises:
        UsageError: unreadable, an unknown key (with close ones), or a value without a clear unit.
    """
    return profile_of(read_user_toml(path), path)


def profile_of(document: Mapping[str, object], path: Path) -> HardwareProfile:
    """The profile that such a document describes; `path` is where it stands.

    Raises:
        UsageError: as `load_hardware_file`.
    """
    reader = TomlReader(document, path)
    reader.check(_TOP)
    gpu_name = document.get("gpu")
    if not isinstance(gpu_name, str):
        raise reader.fault("`gpu` is missing: it names the built-in GPU to start from")
    profile = built_in_hardware(gpu_name)
    profile = _with_gpu(profile, reader)
    profile = replace(
        profile,
        host_link=_with_host_link(profile.host_link, reader.section("host_link", _HOST_LINK)),
        tcp=_with_network(profile.tcp, reader.section("tcp", _NETWORK), "tcp"),
        rdma=_with_network(profile.rdma, reader.section("rdma", _NETWORK), "rdma"),
    )
    profile = _with_dram(profile, reader.section("dram", _DRAM))
    profile = with_topology(with_storage(profile, reader), reader)
    profile = _with_moves(profile, reader.section("moves", _MOVES))
    return with_calibration(profile, reader)


def _seconds(text: str) -> float:
    return parse_duration_ns(text) / NS_PER_S


def _with_gpu(profile: HardwareProfile, reader: TomlReader) -> HardwareProfile:
    base = profile.gpu
    gpu = replace(
        base,
        family=reader.word("family") or base.family,
        hbm_bytes=reader.given(base.hbm_bytes, reader.text("hbm", parse_bytes)),
        hbm_bytes_per_s=reader.given(base.hbm_bytes_per_s, reader.text("hbm_rate", parse_rate)),
        bf16_flops=reader.given(base.bf16_flops, reader.text("bf16", parse_flops)),
        fp8_flops=_optional(base, base.fp8_flops, reader, "fp8", parse_flops, "FLOP/s"),
        fp4_flops=_optional(base, base.fp4_flops, reader, "fp4", parse_flops, "FLOP/s"),
        scaleup_bytes_per_s=_optional(
            base, base.scaleup_bytes_per_s, reader, "scaleup", parse_rate, "B/s"
        ),
    )
    count = reader.whole("gpus_per_node")
    price = reader.number("gpu_usd_per_hour")
    return replace(
        profile,
        name=reader.word("name") or reader.path.stem,
        gpu=gpu,
        gpus_per_node=profile.gpus_per_node if count is None else count,
        gpu_usd_per_hour=reader.given(profile.gpu_usd_per_hour, price),
    )


def _optional(
    gpu: Gpu,
    constant: Constant | None,
    reader: TomlReader,
    key: str,
    parse: Callable[[str], float],
    unit: str,
) -> Constant | None:
    """A constant that the built-in GPU may lack."""
    value = reader.text(key, parse)
    if value is None or constant is not None:
        return constant if constant is None else reader.given(constant, value)
    return reader.stated(f"gpus.{gpu.name}.{key}", f"{gpu.name}: {key}", value, unit)


def _with_host_link(link: Link, reader: TomlReader) -> Link:
    name = reader.word("link", list_links())
    if name is not None:
        link = load_link(name)
    return _with_rate(link, reader)


def _with_rate(link: Link, reader: TomlReader) -> Link:
    return replace(
        link,
        max_bytes_per_s=reader.given(link.max_bytes_per_s, reader.text("rate", parse_rate)),
        latency_s=reader.given(link.latency_s, reader.text("latency", _seconds)),
    )


def _with_network(network: Network, reader: TomlReader, kind: str) -> Network:
    port = network.port
    line_rate = reader.text("port", parse_rate)
    if line_rate is not None:
        port = _port_of_rate(line_rate, kind, reader)
    port = _with_rate(port, reader)
    line, reached = port.peak_bytes_per_s.value, port.max_bytes_per_s.value
    if reached > line:
        stated = f"`{kind}.rate` of {reached / 1e9:g} GB/s is above the port's line rate"
        raise reader.fault(f"{stated} of {line / 1e9:g} GB/s ({8 * line / 1e9:g} Gb/s)")
    return Network(
        port=port,
        ports_per_node=reader.given(network.ports_per_node, reader.whole("ports_per_node")),
        setup_s=reader.given(network.setup_s, reader.text("setup", _seconds)),
    )


def _port_of_rate(line_rate: float, kind: str, reader: TomlReader) -> Link:
    """The built-in port of this line rate, else the nearest one scaled to it."""
    ports = [load_link(name) for name in list_links() if name.startswith(f"{kind}_")]
    nearest = min(ports, key=lambda port: abs(port.peak_bytes_per_s.value / line_rate - 1))
    factor = line_rate / nearest.peak_bytes_per_s.value
    port = nearest if abs(factor - 1) < 1e-9 else nearest.scaled(factor)
    return replace(port, peak_bytes_per_s=reader.given(port.peak_bytes_per_s, line_rate))


def _with_dram(profile: HardwareProfile, reader: TomlReader) -> HardwareProfile:
    return replace(
        profile,
        dram_bytes_per_node=reader.given(
            profile.dram_bytes_per_node, reader.text("size", parse_bytes)
        ),
        dram_idle_share=reader.given(profile.dram_idle_share, reader.share("idle_share")),
        dram_read_bytes_per_s=reader.given(
            profile.dram_read_bytes_per_s, reader.text("read", parse_rate)
        ),
        dram_write_bytes_per_s=reader.given(
            profile.dram_write_bytes_per_s, reader.text("write", parse_rate)
        ),
    )


def _with_moves(profile: HardwareProfile, reader: TomlReader) -> HardwareProfile:
    efficiency = reader.share("load_efficiency")
    contention = reader.number("load_contention")
    if contention is not None and contention >= 1:
        raise reader.fault("`moves.load_contention` is below 1: more ranks never load slower")
    utilisation = reader.share("gpu_memory_utilisation")
    return replace(
        profile,
        chunk_bytes=reader.given(profile.chunk_bytes, reader.text("chunk", parse_bytes)),
        load_efficiency=reader.given(profile.load_efficiency, efficiency or None),
        load_contention=reader.given(profile.load_contention, contention),
        handover_s=reader.given(profile.handover_s, reader.text("handover", _seconds)),
        dram_lookup_s=reader.given(profile.dram_lookup_s, reader.text("dram_lookup", _seconds)),
        pool_lookup_s=reader.given(profile.pool_lookup_s, reader.text("pool_lookup", _seconds)),
        gpu_memory_utilisation=reader.given(profile.gpu_memory_utilisation, utilisation or None),
        activation_reserve_bytes=reader.given(
            profile.activation_reserve_bytes, reader.text("activation_reserve", parse_bytes)
        ),
    )
