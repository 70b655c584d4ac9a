"""The verb `hardware`: GPUs, links, stores, hosts and prices, as lists and as sheets."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Final

from kvtrace.api.query_results import to_json
from kvtrace.cost.evidence import Constant, price, read_toml
from kvtrace.cost.gpus import gpu_names, list_gpus
from kvtrace.cost.hardware import HardwareProfile, Network
from kvtrace.cost.hardware_file.calibration import CALIBRATED
from kvtrace.cost.links import Link, list_links, load_link
from kvtrace.cost.names import build_index, find_name
from kvtrace.cost.profiles import load_hardware
from kvtrace.cost.storage import StorageTier, list_tiers, load_tier
from kvtrace.cost.walk import collect_constants
from kvtrace.report.text.table import fitted_table
from kvtrace.units import (
    TB,
    format_bytes,
    format_quantity,
    format_rate,
    format_short_seconds,
)

_PRICES: Final = "prices"
_COLUMN: Final = 14
"""Columns of a value, its low and its high on a sheet."""
_FIGURES: Final = 3 * _COLUMN + 17
"""Columns of all figures of a line, with kind and source."""
_LEAST_TITLE: Final = 20
_OWN_UNITS: Final = ("B", "B/s", "s", "FLOP/s", "ratio")
"""Units that are printed beside the number; others stand behind the name of the figure."""


@dataclass(frozen=True, slots=True)
class Section:
    """Constants of one part of a sheet."""

    title: str
    constants: tuple[Constant, ...]


@dataclass(frozen=True, slots=True)
class HardwareSheet:
    """One GPU in its node, one link, one store, or the prices, with evidence."""

    name: str
    summary: str
    sections: tuple[Section, ...]
    facts: dict[str, object]
    """What is no number, such as where NICs sit."""

    def to_json(self) -> str:
        """The document of `kvtrace hardware NAME --json`."""
        return to_json(
            {
                "name": self.name,
                "summary": self.summary,
                **self.facts,
                "constants": [
                    {"section": section.title, **asdict(constant)}
                    for section in self.sections
                    for constant in section.constants
                ],
            }
        )

    def lines(self, width: int | None = None) -> list[str]:
        """The sheet for people: figure, value, interval, kind, and the number of its source."""
        sources: dict[str, int] = {}
        lines = [*textwrap.wrap(f"{self.name} · {self.summary}", width or 100)]
        for section in self.sections:
            lines += ["", _section_head(section.title, width or 100)]
            for constant in section.constants:
                text = f"{constant.source} {constant.as_of}".strip()
                number = sources.setdefault(text, len(sources) + 1)
                lines += _constant_lines(constant, number, width or 100)
        lines += ["", "sources"]
        for text, number in sources.items():
            lines += textwrap.wrap(
                f"[{number}] {text}",
                width or 100,
                initial_indent="  ",
                subsequent_indent="      ",
            )
        return lines


@dataclass(frozen=True, slots=True)
class HardwareListing:
    """All that is built in: GPUs in their usual hosts, links, stores, and prices."""

    profiles: tuple[HardwareProfile, ...]
    links: tuple[Link, ...]
    stores: tuple[StorageTier, ...]
    prices: tuple[Constant, ...]

    def to_json(self) -> str:
        """The document of `kvtrace hardware --json`: each constant once, by part."""
        return to_json(
            {
                "gpus": [_gpu_document(profile) for profile in self.profiles],
                "links": [
                    {"name": link.link, "constants": [asdict(c) for c in link.constants()]}
                    for link in self.links
                ],
                "stores": [_store_document(store) for store in self.stores],
                "prices": [asdict(constant) for constant in self.prices],
            }
        )

    def lines(self, width: int | None = None) -> list[str]:
        """Three tables and where to read on, for people."""
        return [
            self._gpu_table(width),
            "",
            self._link_table(width),
            "",
            self._store_table(width),
            "",
            *textwrap.wrap(
                "TFLOPS: dense bf16. Rates are a direction; low and high, kind, source and date: "
                "`kvtrace hardware NAME` with a GPU, a link, a store or `prices`. Your own: "
                "`--hardware FILE` (docs/model/hardware.md).",
                width or 100,
            ),
        ]

    def _gpu_table(self, width: int | None) -> str:
        header = ("gpu", "HBM", "TFLOPS", "HBM rate", "host link", "scale-up", "USD/h")
        rows = [
            (
                profile.gpu.name,
                format_bytes(profile.gpu.hbm_bytes.value),
                profile.gpu.bf16_flops.value / TB,
                format_rate(profile.gpu.hbm_bytes_per_s.value),
                profile.host_link.link,
                _rate_or_none(profile.gpu.scaleup_bytes_per_s),
                profile.gpu_usd_per_hour.value,
            )
            for profile in self.profiles
        ]
        return fitted_table(header, rows, width)

    def _link_table(self, width: int | None) -> str:
        header = ("link", "line rate", "long chunks", "a chunk", "latency", "kind")
        rows = [
            (
                link.link,
                format_rate(link.peak_bytes_per_s.value),
                format_rate(link.max_bytes_per_s.value),
                format_short_seconds(link.op_s.value),
                format_short_seconds(link.latency_s.value),
                link.max_bytes_per_s.kind,
            )
            for link in self.links
        ]
        return fitted_table(header, rows, width)

    def _store_table(self, width: int | None) -> str:
        header = ("store", "read", "write", "first byte", "a", "kind")
        rows = [
            (
                store.tier,
                format_rate(store.read_bytes_per_s.value),
                "unknown"
                if store.write_bytes_per_s is None
                else format_rate(store.write_bytes_per_s.value),
                format_short_seconds(store.first_byte_s.value),
                store.rate_per,
                store.read_bytes_per_s.kind,
            )
            for store in self.stores
        ]
        return fitted_table(header, rows, width)


def hardware(
    name: str | None = None, *, file: str | None = None
) -> HardwareListing | HardwareSheet:
    """All that is built in, or the sheet of a GPU, a link, a store or the prices.

    `file` is a hardware TOML: its profile, or the link or store of this name within it.

    Raises:
        UsageError: an unknown name (with close ones), or a file that cannot be used.
    """
    if name is None and file is None:
        return HardwareListing(
            profiles=tuple(load_hardware(gpu) for gpu in list_gpus()),
            links=tuple(load_link(link) for link in list_links()),
            stores=tuple(load_tier(tier) for tier in list_tiers()),
            prices=_prices(),
        )
    if name is not None and name.endswith(".toml") and file is None:
        name, file = None, name
    profile = None if file is None else load_hardware(file)
    if name is None and profile is not None:
        return _profile_sheet(profile)
    return _named_sheet(name or "", profile)


def _named_sheet(name: str, profile: HardwareProfile | None) -> HardwareSheet:
    stores = (
        {store.tier: store for store in profile.tiers}
        if profile is not None
        else {tier: load_tier(tier) for tier in list_tiers()}
    )
    plain = [(label, ()) for label in (*list_links(), *stores, _PRICES)]
    found = find_name(
        name,
        build_index([*gpu_names(), *plain]),
        what="GPU, link or store",
        code="KVT-C054",
        hint="`kvtrace hardware` lists them; or pass a hardware TOML",
    )
    if found == _PRICES:
        return HardwareSheet(_PRICES, "USD, dated", (Section("prices", _prices()),), {})
    if found in stores:
        store = stores[found]
        summary = f"{store.title} · {store.medium} · rates of one {store.rate_per}"
        facts: dict[str, object] = {"medium": store.medium, "rate_per": store.rate_per}
        return HardwareSheet(found, summary, (Section("store", store.constants()),), facts)
    if found in list_links():
        link = load_link(found)
        words = "rate(chunk) = chunk / (fixed cost of a chunk + chunk / rate of long chunks)"
        return HardwareSheet(found, words, (Section("link", link.constants()),), {})
    return _profile_sheet(load_hardware(found))


def _profile_sheet(profile: HardwareProfile) -> HardwareSheet:
    gpu, wiring = profile.gpu, profile.topology
    base = "" if profile.name == gpu.name else f"{gpu.name} · "
    summary = (
        f"{base}{gpu.vendor} · {gpu.family} · {gpu.tdp_watts:g} W · "
        f"{profile.gpus_per_node} a node ({profile.host}) · {wiring.numa_nodes} NUMA nodes · "
        f"NICs at the {wiring.nic_placement}, drives at the {wiring.nvme_placement}"
    )
    facts: dict[str, object] = {
        "gpu": gpu.name,
        "vendor": gpu.vendor,
        "family": gpu.family,
        "tdp_watts": gpu.tdp_watts,
        "host": profile.host,
        "gpus_per_node": profile.gpus_per_node,
        "host_link": profile.host_link.link,
        "rdma_port": profile.rdma.port.link,
        "tcp_port": profile.tcp.port.link,
        "numa_nodes": wiring.numa_nodes,
        "nic_placement": wiring.nic_placement,
        "nvme_placement": wiring.nvme_placement,
        "nvme_store": wiring.nvme_tier,
        "pool_nvme_store": profile.pool_nvme_tier,
        "stores": [_store_document(store) for store in profile.tiers],
    }
    return HardwareSheet(profile.name, summary, tuple(_sections(profile)), facts)


def _sections(profile: HardwareProfile) -> Iterator[Section]:
    gpu, link = profile.gpu, profile.host_link
    yield Section("GPU", gpu.constants())
    yield Section(f"host link: {link.link}", link.constants())
    for words, network in (("RDMA", profile.rdma), ("TCP", profile.tcp)):
        yield Section(f"{words} port: {network.port.link}", _network_constants(network))
    yield Section(
        "host memory",
        (
            profile.dram_bytes_per_node,
            profile.dram_idle_share,
            profile.dram_read_bytes_per_s,
            profile.dram_write_bytes_per_s,
        ),
    )
    yield Section("topology", profile.topology.constants())
    yield Section(f"drive: {profile.nvme.tier}", profile.nvme.constants())
    pool = profile.tier(profile.pool_nvme_tier)
    yield Section(f"pool node: {pool.tier}", (profile.pool_nvme_per_node,))
    yield Section(
        "moves and memory",
        (
            profile.chunk_bytes,
            profile.load_efficiency,
            profile.load_contention,
            profile.handover_s,
            profile.dram_lookup_s,
            profile.pool_lookup_s,
            profile.gpu_memory_utilisation,
            profile.activation_reserve_bytes,
        ),
    )
    yield Section("price", (profile.gpu_usd_per_hour,))
    fitted = [one for one in collect_constants(profile) if one.source.startswith(CALIBRATED)]
    if fitted:
        yield Section("fitted (calibration)", tuple(fitted))


def _network_constants(network: Network) -> tuple[Constant, ...]:
    return collect_constants(network)


def _prices() -> tuple[Constant, ...]:
    document = read_toml("prices.toml")
    gpus = tuple(load_hardware(gpu).gpu_usd_per_hour for gpu in list_gpus())
    return (*gpus, *(price(name) for name in document["constants"]))


def _gpu_document(profile: HardwareProfile) -> dict[str, object]:
    return {
        "name": profile.gpu.name,
        "vendor": profile.gpu.vendor,
        "family": profile.gpu.family,
        "tdp_watts": profile.gpu.tdp_watts,
        "host": profile.host,
        "host_link": profile.host_link.link,
        "gpus_per_node": profile.gpus_per_node,
        "constants": [asdict(constant) for constant in profile.gpu.constants()],
        "gpu_usd_per_hour": asdict(profile.gpu_usd_per_hour),
    }


def _store_document(store: StorageTier) -> dict[str, object]:
    return {
        "name": store.tier,
        "title": store.title,
        "medium": store.medium,
        "rate_per": store.rate_per,
        "constants": [asdict(constant) for constant in store.constants()],
    }


def _rate_or_none(constant: Constant | None) -> str:
    return "-" if constant is None else format_rate(constant.value)


def _constant_lines(constant: Constant, source: int, width: int) -> Iterator[str]:
    """`title  value  low  high  kind [source]`; a long title goes on below itself."""
    is_plain = constant.unit not in _OWN_UNITS
    title = constant.title.split(": ", 1)[-1] + (f" ({constant.unit})" if is_plain else "")
    unit = "ratio" if is_plain else constant.unit
    value, low, high = (
        "" if end is None else format_quantity(end, unit)
        for end in (constant.value, constant.low, constant.high)
    )
    first, *more = textwrap.wrap(title, max(width - _FIGURES, _LEAST_TITLE))
    label = max(width - _FIGURES, _LEAST_TITLE)
    yield f"  {first:<{label}}  {_columns(value, low, high)}{constant.kind} [{source}]"
    yield from (f"    {line}" for line in more)


def _section_head(title: str, width: int) -> str:
    label = max(width - _FIGURES, _LEAST_TITLE)
    return f"{title:<{label + 2}}  {_columns('value', 'low', 'high')}kind"


def _columns(*cells: str) -> str:
    return "".join(f"{cell:<{_COLUMN}}" for cell in cells)
