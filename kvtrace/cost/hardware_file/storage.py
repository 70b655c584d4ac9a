"""The parts of a user's hardware TOML on wiring, drives and stores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, cast

from kvtrace.cost.evidence import Constant
from kvtrace.cost.hardware import HardwareProfile
from kvtrace.cost.storage import MEDIA, RATES_PER, Medium, RatePer, StorageTier
from kvtrace.cost.toml_reader import TomlReader
from kvtrace.cost.topology import PLACEMENTS, Placement
from kvtrace.units import NS_PER_S, parse_duration_ns, parse_rate

_TOPOLOGY: Final = ("gpus_per_uplink", "numa_nodes", "nic_placement", "nvme_placement")
_NVME: Final = ("tier", "drives", "rate", "write", "first_byte")
_POOL: Final = ("nvme_tier", "drives")
_STORE: Final = ("title", "medium", "rate_per", "read", "write", "first_byte")


def with_topology(profile: HardwareProfile, document: TomlReader) -> HardwareProfile:
    """The profile with what `[topology]`, `[nvme]` and `[pool]` state.

    Raises:
        UsageError: an unknown key, tier or placement, or a value without a clear unit.
    """
    wiring, drives = document.section("topology", _TOPOLOGY), document.section("nvme", _NVME)
    base = profile.topology
    tier = drives.word("tier")
    chosen = profile.tier(base.nvme_tier if tier is None else tier)
    topology = replace(
        base,
        gpus_per_uplink=wiring.given(base.gpus_per_uplink, wiring.whole("gpus_per_uplink")),
        numa_nodes=wiring.whole("numa_nodes") or base.numa_nodes,
        nic_placement=_placement(wiring, "nic_placement", base.nic_placement),
        nvme_placement=_placement(wiring, "nvme_placement", base.nvme_placement),
        nvme_tier=chosen.tier,
        nvme_per_node=drives.given(base.nvme_per_node, drives.whole("drives")),
    )
    changed = _overridden(chosen, drives, "rate")
    tiers = tuple(changed if one.tier == changed.tier else one for one in profile.tiers)
    pool = document.section("pool", _POOL)
    pool_tier = profile.tier(pool.word("nvme_tier") or profile.pool_nvme_tier)
    return replace(
        profile,
        topology=topology,
        tiers=tiers,
        pool_nvme_tier=pool_tier.tier,
        pool_nvme_per_node=pool.given(profile.pool_nvme_per_node, pool.whole("drives")),
    )


def with_storage(profile: HardwareProfile, document: TomlReader) -> HardwareProfile:
    """The profile with the stores of `[storage.NAME]`: overridden, or added.

    Raises:
        UsageError: an unknown key, a store without its medium or reads, or an unclear unit.
    """
    table = document.table.get("storage", {})
    if not isinstance(table, Mapping):
        raise document.fault("`storage` is not a table of stores")
    tiers = {tier.tier: tier for tier in profile.tiers}
    for name, entry in table.items():
        if not isinstance(entry, Mapping):
            raise document.fault(f"`storage.{name}` is not a table")
        reader = TomlReader(entry, document.path, f"storage.{name}")
        reader.check(_STORE)
        known = tiers.get(name)
        tiers[name] = _added(name, reader) if known is None else _overridden(known, reader, "read")
    return replace(profile, tiers=tuple(tiers.values()))


def _placement(reader: TomlReader, key: str, base: Placement) -> Placement:
    return cast("Placement", reader.word(key, PLACEMENTS) or base)


def _overridden(tier: StorageTier, reader: TomlReader, read_key: str) -> StorageTier:
    write = reader.text("write", parse_rate)
    stated = tier.write_bytes_per_s or _constant(tier.tier, "write_bytes_per_s", "B/s", 0.0, reader)
    return replace(
        tier,
        title=reader.word("title") or tier.title,
        medium=cast("Medium", reader.word("medium", MEDIA) or tier.medium),
        rate_per=cast("RatePer", reader.word("rate_per", RATES_PER) or tier.rate_per),
        read_bytes_per_s=reader.given(tier.read_bytes_per_s, reader.text(read_key, parse_rate)),
        write_bytes_per_s=tier.write_bytes_per_s if write is None else reader.given(stated, write),
        first_byte_s=reader.given(tier.first_byte_s, reader.text("first_byte", _seconds)),
    )


def _added(name: str, reader: TomlReader) -> StorageTier:
    medium, read = reader.word("medium", MEDIA), reader.text("read", parse_rate)
    first = reader.text("first_byte", _seconds)
    for key, value in (("medium", medium), ("read", read), ("first_byte", first)):
        if value is None:
            raise reader.fault(f"`storage.{name}` is no built-in store, so it needs `{key}`")
    write = reader.text("write", parse_rate)
    return StorageTier(
        tier=name,
        title=reader.word("title") or name,
        medium=cast("Medium", medium),
        rate_per=cast("RatePer", reader.word("rate_per", RATES_PER) or "client"),
        read_bytes_per_s=_constant(name, "read_bytes_per_s", "B/s", read or 0.0, reader),
        write_bytes_per_s=None
        if write is None
        else _constant(name, "write_bytes_per_s", "B/s", write, reader),
        first_byte_s=_constant(name, "first_byte_s", "s", first or 0.0, reader),
    )


def _constant(tier: str, key: str, unit: str, value: float, reader: TomlReader) -> Constant:
    return reader.stated(f"tiers.{tier}.{key}", f"{tier}: {key.split('_')[0]}", value, unit)


def _seconds(text: str) -> float:
    return parse_duration_ns(text) / NS_PER_S
