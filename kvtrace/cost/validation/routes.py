"""The stages of a path of validation points, over the links and tiers of the cost model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from kvtrace.cost.evidence import moves_constant, number, read_toml
from kvtrace.cost.hardware import HardwareProfile
from kvtrace.cost.links import Link, load_link
from kvtrace.cost.validation.paths import PathLink, PathText, Protocol, Tier
from kvtrace.units import GIB

_PORTS: Final[Mapping[Protocol, tuple[int, ...]]] = {
    "rdma": (25, 100, 200, 400, 800),
    "tcp": (10, 25, 100, 200, 400),
    "efa": (100, 200, 400),
}
_TIER_NAMES: Final[tuple[tuple[str, str], ...]] = (
    ("3fs cluster", "3fs_cluster_180_nodes"),
    ("3fs", "3fs_client_1x400g"),
    ("cloud file", "cloud_file_storage"),
    ("nfs", "nfs_over_100g_tcp"),
    ("express", "s3_express_one_zone"),
    ("s3", "s3_standard_per_instance"),
    ("object", "object_store_coreweave_aios_per_8_gpu_node"),
    ("raid", "raid0_5_drives_3_gen4_2_gen3"),
    ("gen3", "nvme_gen3_x4"),
    ("gen5", "nvme_gen5_x4"),
    ("gen4", "nvme_gen4_x4"),
)
"""Words of a tier's name to its row of data/storage.toml, the first that fits."""
_TIER_DEFAULTS: Final[Mapping[Tier, str]] = {
    "nvme": "nvme_gen4_5_measured_single_kv_daemon",
    "object": "object_store_coreweave_aios_per_8_gpu_node",
    "nfs": "nfs_over_100g_tcp",
}
_SERVED_BY_LINK: Final[Mapping[str, str]] = {
    "efa_100g": "hgx_ampere",
    "rdma_25g": "hgx_ampere",
    "rdma_100g": "hgx_ampere",
    "rdma_200g": "hgx_ampere",
    "efa_200g": "hgx_hopper",
    "rdma_400g": "hgx_hopper",
    "efa_400g": "hgx_blackwell",
    "rdma_800g": "hgx_blackwell",
}
"""The host generation that comes with a port: what its DRAM takes from or gives to the network."""


_LONG_CHUNK: Final = float(GIB)
"""Bytes of one operation of a copy benchmark that does not say."""


class CannotPredictError(Exception):
    """Why a point is outside the model; the text is the reason that is shown."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One serial stage of a move."""

    name: str
    bytes_per_s: float
    fixed_s: float

    def seconds(self, kv_bytes: float) -> float:
        """Seconds for `kv_bytes` over all ranks."""
        return self.fixed_s + kv_bytes / self.bytes_per_s


@dataclass(frozen=True, slots=True)
class Route:
    """Serial stages from a tier to another, all ranks together."""

    stages: tuple[Stage, ...]

    @property
    def bytes_per_s(self) -> float:
        """Rate of long moves."""
        return 1.0 / math.fsum(1.0 / stage.bytes_per_s for stage in self.stages)

    @property
    def fixed_s(self) -> float:
        """Seconds of a move of no byte."""
        return math.fsum(stage.fixed_s for stage in self.stages)

    def seconds(self, kv_bytes: float) -> float:
        """Seconds to move `kv_bytes`."""
        return math.fsum(stage.seconds(kv_bytes) for stage in self.stages)


@dataclass(frozen=True, slots=True)
class RouteContext:
    """What a point says besides its path."""

    hardware: HardwareProfile | None
    ranks: int
    """Ranks that load their shares at once."""
    chunk_bytes: int | None
    words: str
    """Engine and note, in lower case."""
    is_bare: bool
    """A copy benchmark: no engine between the link and the measurement."""


def build_route(path: PathText, context: RouteContext) -> Route:
    """The stages of the path.

    Raises:
        CannotPredictError: a tier or link whose speed is not known.
    """
    if "compressed" in path.words:
        raise CannotPredictError("the path is compressed, and the ratio is not in the row")
    if len(path.tiers) == 1:
        return Route(())
    stages: list[Stage] = []
    for index, links in enumerate(path.links):
        stages += _hop(path, index, links, context)
    return Route(tuple(stages))


def port_link(link: PathLink) -> Link:
    """The port that a path names, scaled from the nearest built-in one.

    Raises:
        CannotPredictError: the protocol has no port of a known speed.
    """
    speeds = _PORTS.get(link.protocol)
    if speeds is None:
        raise CannotPredictError(f"no port is known for {link.protocol}")
    wanted = link.gbit_per_s or max(speed for speed in speeds if speed <= 400)
    nearest = min(speeds, key=lambda speed: (abs(math.log(speed / wanted)), speed))
    port = load_link(f"{link.protocol}_{nearest}g")
    return port if nearest == wanted else port.scaled(wanted / nearest)


def link_rate(link: Link, chunk_bytes: float) -> float:
    """Rate by the chunk law; ports that queue operations overlap what a chunk costs.

    Formula: c / (t_op + c / B_max); pipelined min(c / t_op, B_max).
    """
    if not is_pipelined(link.link) or not link.op_s.value:
        return link.bytes_per_s(chunk_bytes)
    return min(chunk_bytes / link.op_s.value, link.max_bytes_per_s.value)


def is_pipelined(name: str) -> bool:
    """True where operations are posted to a queue."""
    entry: Mapping[str, object] = read_toml("links.toml")["links"][name]
    return bool(entry.get("is_pipelined", False))


def served_dram_bytes_per_s(port: str) -> float:
    """What one node's DRAM takes from the network, by the generation of its ports."""
    if port == "efa_100g":
        return storage_tier("dram_ddr4_3200_2_socket_as_rdma_source", 1)[0]
    host = read_toml("hosts.toml")["hosts"][_SERVED_BY_LINK[port]]
    entry = host["dram_write_bytes_per_s"]
    if not isinstance(entry, dict):
        raise ValueError(f"hosts.{_SERVED_BY_LINK[port]}.dram_write_bytes_per_s is not a table")
    return number(entry["value"])


def storage_tier(name: str, count: int, *, is_write: bool = False) -> tuple[float, float]:
    """(bytes/s, first-byte seconds) of a tier of data/storage.toml, `count` of them side by side.

    Raises:
        CannotPredictError: nobody published the tier's write rate.
    """
    entry = read_toml("storage.toml")["tiers"][name]
    key = "write_bytes_per_s" if is_write else "read_bytes_per_s"
    rate, latency = entry.get(key), entry["first_byte_s"]
    if not isinstance(rate, dict):
        raise CannotPredictError(f"the write rate of {entry['title']} is not known")
    if not isinstance(latency, dict):
        raise ValueError(f"storage.{name}.first_byte_s is not a table")
    return count * number(rate["value"]), number(latency["value"])


def _hop(
    path: PathText, index: int, links: tuple[PathLink, ...], context: RouteContext
) -> list[Stage]:
    here, there = path.tiers[index], path.tiers[index + 1]
    stages = []
    below = {here, there} - {"hbm", "dram", "remote_dram", "pool", "cxl"}
    if below:
        name = path.names[index] if here in below else path.names[index + 1]
        tier = here if here in below else there
        stages.append(_storage(tier, name, links, is_write=there in below))
    for link in links:
        if link.protocol == "client":
            continue
        is_network = link.protocol in ("rdma", "tcp", "efa")
        stage = (
            _network(path, link, {here, there}, context)
            if is_network
            else _local(path, link, context)
        )
        streams = stages and (is_network or link.protocol == "gds" or "hbm" in (here, there))
        stages = [_slower(stages[0], stage)] if streams else [*stages, stage]
    if not stages and {here, there} == {"dram", "hbm"}:
        stages.append(_local(path, PathLink("pcie", 1, None, None), context))
    if not stages and "cxl" in (here, there):
        stages.append(_local(path, PathLink("cxl", 1, None, None), context))
    if not stages:
        raise CannotPredictError(f"no link is named between {here} and {there}")
    return stages


def _slower(one: Stage, other: Stage) -> Stage:
    """A tier behind a network, or straight into a GPU: bytes stream at the slower rate."""
    rate = min(one.bytes_per_s, other.bytes_per_s)
    return Stage(one.name, rate, one.fixed_s + other.fixed_s)


def _storage(tier: Tier, name: str, links: tuple[PathLink, ...], *, is_write: bool) -> Stage:
    if tier == "dfs" and "3fs" not in name:
        link = load_link("storage_scale_client")
        return Stage(name, link.max_bytes_per_s.value, link.latency_s.value)
    key = next((key for word, key in _TIER_NAMES if word in name), _TIER_DEFAULTS.get(tier))
    if key is None:
        raise CannotPredictError(f"the speed of `{name}` is not known")
    count = 1
    if tier == "nvme" and name[:1].isdigit():
        count = max(1, int(name.split("x", 1)[0].strip() or 1)) if "x" in name[:4] else 1
    clients = [link.count for link in links if link.protocol == "client"]
    rate, latency = storage_tier(key, clients[0] if clients else count, is_write=is_write)
    return Stage(name, rate, latency)


def _network(path: PathText, link: PathLink, ends: set[Tier], context: RouteContext) -> Stage:
    port = port_link(link)
    chunk = _chunk(context)
    rate = link_rate(port, chunk)
    is_gpu = ends <= {"hbm"}
    share, fixed_rate = _library(context.words, link.protocol, is_gpu=is_gpu)
    if fixed_rate is not None:
        rate = fixed_rate
    elif share is not None:
        reached = port.peak_bytes_per_s.scaled(share).value
        port = replace(port, max_bytes_per_s=port.max_bytes_per_s.given(reached, source="library"))
        rate = link_rate(port, chunk)
    whole = link.count * rate
    if not is_gpu and link.protocol != "tcp":
        ceiling = served_dram_bytes_per_s(port.link)
        whole = min(whole, ceiling)
    setup = 0.0 if context.is_bare else _setup_s(link.protocol)
    return Stage(link.protocol, whole, port.latency_s.value + setup)


def _setup_s(protocol: Protocol) -> float:
    return moves_constant("tcp_setup_s" if protocol == "tcp" else "rdma_setup_s").value


def _library(words: str, protocol: Protocol, *, is_gpu: bool) -> tuple[float | None, float | None]:
    """(share of the line rate, or the rate itself) that the library a point names reaches."""
    for name, entry in read_toml("links.toml")["libraries"].items():
        if name not in words:
            continue
        key = "tcp_gpu_bytes_per_s" if protocol == "tcp" and is_gpu else protocol
        constant = entry.get(key)
        if isinstance(constant, dict):
            value = number(constant["value"])
            return (None, value) if key.endswith("per_s") else (value, None)
    return None, None


def _local(path: PathText, link: PathLink, context: RouteContext) -> Stage:
    chunk = _chunk(context)
    if link.protocol == "nvlink":
        one = _nvlink(link, context)
        setup = 0.0 if context.is_bare else moves_constant("peer_setup_s").value
        return Stage("nvlink", link.count * one.bytes_per_s(chunk), one.latency_s.value + setup)
    one = _host_link(path, link, context)
    ranks = 1 if path.is_per_rank else path.ranks or context.ranks
    rate = one.bytes_per_s(chunk)
    if not context.is_bare:
        rate *= moves_constant("load_efficiency").value
    here = min(ranks, 8 if context.hardware is None else context.hardware.gpus_per_node)
    rate *= ranks / (1.0 + moves_constant("load_contention").value * (here - 1))
    return Stage(link.protocol, rate, one.latency_s.value)


def _chunk(context: RouteContext) -> float:
    """Bytes of one operation: as stated; a bare copy moves all at once, an engine its pages."""
    if context.chunk_bytes:
        return context.chunk_bytes
    return _LONG_CHUNK if context.is_bare else moves_constant("chunk_bytes").value


def _nvlink(link: PathLink, context: RouteContext) -> Link:
    generation = link.generation
    if generation is None and context.hardware is not None:
        scaleup = context.hardware.gpu.scaleup_bytes_per_s
        if scaleup is None:
            raise CannotPredictError(f"{context.hardware.gpu.name} has no NVLink")
        generation = 5 if scaleup.value > 600e9 else 4 if scaleup.value > 300e9 else 3
    if generation not in (None, 3, 4, 5):
        raise CannotPredictError(f"NVLink {generation} is not among the links")
    return load_link(f"nvlink{generation or 4}")


def _host_link(path: PathText, link: PathLink, context: RouteContext) -> Link:
    if link.protocol == "c2c":
        return load_link("nvlink_c2c")
    if link.protocol == "cxl":
        return load_link("cxl2_x8")
    if link.generation is None and context.hardware is not None:
        named = context.hardware.host_link
    else:
        generation = link.generation or 5
        if generation not in (3, 4, 5, 6):
            raise CannotPredictError(f"PCIe {generation} is not among the links")
        named = load_link(f"pcie{generation}_x16")
    if "kernel" in path.words:
        kernel = load_link("pcie5_x16_kernel")
        factor = named.peak_bytes_per_s.value / kernel.peak_bytes_per_s.value
        return kernel if named.link == "pcie5_x16" else kernel.scaled(factor)
    return named
