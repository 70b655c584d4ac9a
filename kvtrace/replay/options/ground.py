"""What all options of a comparison share, and the changes of it that an option makes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from kvtrace.cost.deployment import Deployment
from kvtrace.cost.dtypes import kv_element_bytes
from kvtrace.cost.evidence import Constant
from kvtrace.cost.fleet import Fleet, storage_network
from kvtrace.cost.hardware import Network
from kvtrace.cost.links import Link, list_links, load_link
from kvtrace.errors import KvtraceError
from kvtrace.units import GB

BITS_PER_BYTE: Final = 8
_FP8: Final = "fp8"
_FP8_OF_LATENTS: Final = "fp8_ds_mla"


class CannotRunError(Exception):
    """An option that is not possible here; the text says why, for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """The service as it stands, and what is known of its requests."""

    deployment: Deployment
    fleet: Fleet
    long_prompt_tokens: int | None = None
    """Isolation: a prompt of more tokens is long; null: no prompt stands out."""
    long_instances: int = 0
    """Isolation: so many instances carry the long prompts' share of the prefill; 0: none can."""
    has_slow_ports: bool = False
    """Ports of a rate that an option states are taken at the slow end of their range."""

    def on(self, instances: int) -> Ground:
        """The same service on another number of instances; its pool stays as large."""
        return replace(self, fleet=replace(self.fleet, instances=instances))


def at_port_rate(ground: Ground, bits_per_s: float) -> Ground:
    """The service with every port to and of a pool at another line rate.

    Ports of data/links.toml, as many as before; what a fleet file states of ports is replaced.

    Raises:
        CannotRunError: nobody published a port of that rate.
    """
    hardware = ground.deployment.hardware
    rdma = replace(hardware.rdma, port=_port("rdma", bits_per_s, ground))
    tcp = replace(hardware.tcp, port=_port("tcp", bits_per_s, ground))
    hardware = replace(hardware, rdma=rdma, tcp=tcp)
    limit, usable = rdma.port.max_bytes_per_s, _usable(rdma, hardware.chunk_bytes.value)
    one = replace(
        limit.scaled(usable / limit.value),
        id="fleet.pool_nic_bytes_per_s",
        title="usable rate of a pool port",
    )
    node = replace(
        one.scaled(rdma.ports_per_node.value),
        id="fleet.node_network_bytes_per_s",
        title="usable RDMA rate of a GPU node",
    )
    return replace(
        ground,
        deployment=replace(ground.deployment, hardware=hardware),
        fleet=replace(
            ground.fleet,
            pool_nic_bytes_per_s=one,
            pool_port_line_bytes_per_s=bits_per_s / BITS_PER_BYTE,
            node_network_bytes_per_s=node,
            storage_network_bytes_per_s=storage_network(hardware),
        ),
    )


def with_more_nodes(ground: Ground, times: int) -> Ground:
    """The service with a pool of so many times its nodes, each with its DRAM and ports."""
    fleet = ground.fleet
    more = replace(
        fleet,
        pool_nodes=fleet.pool_nodes.scaled(times),
        pool_dram_bytes=fleet.pool_dram_bytes.scaled(times),
    )
    return replace(ground, fleet=more)


def _port(kind: str, bits_per_s: float, ground: Ground) -> Link:
    name = f"{kind}_{bits_per_s / GB:.0f}g"
    if name not in list_links():
        raise CannotRunError(f"no {kind} port of {bits_per_s / GB:.0f} Gb/s is known")
    port = load_link(name)
    return port.at_end(fast=False) if ground.has_slow_ports else port


def _usable(network: Network, chunk_bytes: float) -> float:
    return network.port.bytes_per_s(chunk_bytes)


def line_bits_per_s(ground: Ground) -> float:
    """Line rate of the node's own RDMA ports."""
    return ground.deployment.hardware.rdma.port.peak_bytes_per_s.value * BITS_PER_BYTE


def in_fp8(ground: Ground) -> Ground:
    """The service with its KV in fp8, in HBM and below: half the bytes of bf16.

    HBM keeps its bytes, so that it holds more tokens, also where a start-up log told the tokens.

    Raises:
        CannotRunError: KV is no wider than that already, or the LLM has no such layout.
    """
    deployment = ground.deployment
    now = deployment.kv_dtype
    if kv_element_bytes(now) <= kv_element_bytes(_FP8):
        raise CannotRunError(f"KV is in {now} already")
    room_bytes = deployment.hbm_cache_bytes
    last = ""
    for dtype in (_FP8_OF_LATENTS, _FP8):
        try:
            other = replace(deployment, kv_dtype=dtype, measured_kv_tokens=None)
            if other.kv_bytes_per_token >= deployment.kv_bytes_per_token:
                last = f"{dtype} takes no fewer bytes than {now}"
                continue
            if deployment.measured_kv_tokens is not None:
                tokens = int(room_bytes / other.kv_bytes_per_token)
                other = replace(other, measured_kv_tokens=tokens)
            return replace(ground, deployment=other)
        except KvtraceError as error:
            last = error.message
    raise CannotRunError(f"{deployment.llm.name} has no KV in fp8: {last}")


def node_share(deployment: Deployment) -> float:
    """The part of a node's stores that one instance has; more than 1: it spans nodes."""
    return deployment.kv_ranks / deployment.hardware.gpus_per_node


def network_bytes_per_s(ground: Ground, *, is_tcp: bool) -> float:
    """Usable rate of all ports of one GPU node; TCP as a fleet file states of the front end, else
    never above what it states between GPUs.
    """
    hardware, stated = ground.deployment.hardware, ground.fleet.node_network_bytes_per_s
    if is_tcp and is_given(ground.fleet.storage_network_bytes_per_s):
        return ground.fleet.storage_network_bytes_per_s.value
    if is_tcp:
        tcp = hardware.tcp
        rate = tcp.ports_per_node.value * _usable(tcp, hardware.chunk_bytes.value)
        return min(rate, stated.value) if is_given(stated) else rate
    return stated.value


def is_given(constant: Constant) -> bool:
    """A fleet file or flag states it."""
    return constant.kind == "given"
