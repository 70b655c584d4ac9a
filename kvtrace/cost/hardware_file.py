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

from kvtrace.cost.evidence import Constant, number, read_user_toml
from kvtrace.cost.hardware import (
    HardwareProfile,
    Link,
    Network,
    list_links,
    load_hardware,
    load_link,
)
from kvtrace.errors import Location, UsageError
from kvtrace.units import NS_PER_S, parse_bytes, parse_duration_ns, parse_rate

_TOP: Final = ("gpu", "name", "gpus_per_node", "hbm", "hbm_rate", "host_link", "tcp", "rdma",
               "dram", "moves")  # fmt: skip
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
    document = read_user_toml(path)
    reader = _Reader(document, path)
    reader.check(_TOP)
    gpu_name = document.get("gpu")
    if not isinstance(gpu_name, str):
        raise reader.fault("`gpu` is missing: it names the built-in GPU to start from")
    profile = load_hardware(gpu_name)
    profile = _with_gpu(profile, reader)
    profile = replace(
        profile,
        host_link=_with_host_link(profile.host_link, reader.section("host_link", _HOST_LINK)),
        tcp=_with_network(profile.tcp, reader.section("tcp", _NETWORK), "tcp"),
        rdma=_with_network(profile.rdma, reader.section("rdma", _NETWORK), "rdma"),
    )
    profile = _with_dram(profile, reader.section("dram", _DRAM))
    return _with_moves(profile, reader.section("moves", _MOVES))


class _Reader:
    """One table of the file, with typed access and faults that name the place."""

    def __init__(self, table: Mapping[str, object], path: Path, section: str = "") -> None:
        self.table = table
        self.path = path
        self.prefix = f"{section}." if section else ""

    def fault(self, cause: str) -> UsageError:
        return UsageError(
            "KVT-C042",
            f"`{self.path}` is not a usable hardware file",
            where=Location(str(self.path)),
            cause=cause,
            hint="see docs/model/cost.md for the keys and an example",
        )

    def check(self, allowed: tuple[str, ...]) -> None:
        unknown = [key for key in self.table if key not in allowed]
        if unknown:
            import difflib

            close = difflib.get_close_matches(unknown[0], allowed, n=1)
            meant = f"; did you mean `{close[0]}`?" if close else f"; known: {', '.join(allowed)}"
            raise self.fault(f"unknown key `{self.prefix}{unknown[0]}`{meant}")

    def section(self, name: str, allowed: tuple[str, ...]) -> _Reader:
        table = self.table.get(name, {})
        if not isinstance(table, Mapping):
            raise self.fault(f"`{name}` is not a table")
        reader = _Reader(table, self.path, name)
        reader.check(allowed)
        return reader

    def text(self, key: str, parse: Callable[[str], float]) -> float | None:
        """A quantity written with its unit."""
        value = self.table.get(key)
        if value is None:
            return None
        if not isinstance(value, str):
            raise self.fault(f"`{self.prefix}{key}` needs a unit, written as a string")
        parsed = parse(value)
        if parsed <= 0:
            raise self.fault(f"`{self.prefix}{key}` is not above zero")
        return parsed

    def number(self, key: str) -> float | None:
        value = self.table.get(key)
        if value is None:
            return None
        try:
            parsed = number(value)
        except ValueError as error:
            raise self.fault(f"`{self.prefix}{key}`: {error}") from error
        if parsed < 0:
            raise self.fault(f"`{self.prefix}{key}` is below zero")
        return parsed

    def share(self, key: str) -> float | None:
        value = self.number(key)
        if value is not None and value > 1:
            raise self.fault(f"`{self.prefix}{key}` is a ratio, 0 to 1")
        return value

    def given(self, constant: Constant, value: float | None) -> Constant:
        return constant if value is None else constant.given(value, source=str(self.path))


def _seconds(text: str) -> float:
    return parse_duration_ns(text) / NS_PER_S


def _with_gpu(profile: HardwareProfile, reader: _Reader) -> HardwareProfile:
    gpu = replace(
        profile.gpu,
        hbm_bytes=reader.given(profile.gpu.hbm_bytes, reader.text("hbm", parse_bytes)),
        hbm_bytes_per_s=reader.given(
            profile.gpu.hbm_bytes_per_s, reader.text("hbm_rate", parse_rate)
        ),
    )
    count = reader.number("gpus_per_node")
    if count is not None and (count < 1 or count != int(count)):
        raise reader.fault("`gpus_per_node` is not a whole number above zero")
    name = reader.table.get("name", reader.path.stem)
    return replace(
        profile,
        name=str(name),
        gpu=gpu,
        gpus_per_node=profile.gpus_per_node if count is None else int(count),
    )


def _with_host_link(link: Link, reader: _Reader) -> Link:
    name = reader.table.get("link")
    if name is not None:
        if name not in list_links():
            raise reader.fault(f"`host_link.link` is none of {', '.join(list_links())}")
        link = load_link(str(name))
    return _with_rate(link, reader)


def _with_rate(link: Link, reader: _Reader) -> Link:
    return replace(
        link,
        max_bytes_per_s=reader.given(link.max_bytes_per_s, reader.text("rate", parse_rate)),
        latency_s=reader.given(link.latency_s, reader.text("latency", _seconds)),
    )


def _with_network(network: Network, reader: _Reader, kind: str) -> Network:
    port = network.port
    line_rate = reader.text("port", parse_rate)
    if line_rate is not None:
        port = _port_of_rate(line_rate, kind, reader)
    return Network(
        port=_with_rate(port, reader),
        ports_per_node=reader.given(network.ports_per_node, reader.number("ports_per_node")),
        setup_s=reader.given(network.setup_s, reader.text("setup", _seconds)),
    )


def _port_of_rate(line_rate: float, kind: str, reader: _Reader) -> Link:
    """The built-in port of this line rate, else the nearest one scaled to it."""
    ports = [load_link(name) for name in list_links() if name.startswith(f"{kind}_")]
    nearest = min(ports, key=lambda port: abs(port.peak_bytes_per_s.value / line_rate - 1))
    factor = line_rate / nearest.peak_bytes_per_s.value
    port = nearest if abs(factor - 1) < 1e-9 else nearest.scaled(factor)
    return replace(port, peak_bytes_per_s=reader.given(port.peak_bytes_per_s, line_rate))


def _with_dram(profile: HardwareProfile, reader: _Reader) -> HardwareProfile:
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


def _with_moves(profile: HardwareProfile, reader: _Reader) -> HardwareProfile:
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
