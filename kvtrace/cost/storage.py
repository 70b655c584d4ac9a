"""Tiers below HBM that hold KV: drives, file systems, object stores, DRAM behind a network."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal, cast, get_args

from kvtrace.cost.evidence import Constant, read_constant, read_toml
from kvtrace.cost.links import Link
from kvtrace.errors import ModelError

Medium = Literal["dram", "nvme", "nvme_raid", "dfs", "nfs", "object"]
RatePer = Literal["drive", "socket", "node", "client", "cluster"]
"""What one stated rate belongs to: a drive or a socket of a node; the node that holds the bytes; a
client node, network included; all clients together."""

MEDIA: Final[tuple[str, ...]] = get_args(Medium)
RATES_PER: Final[tuple[str, ...]] = get_args(RatePer)


@dataclass(frozen=True, slots=True)
class StorageTier:
    """A store of KV, as published: rates and the first byte."""

    tier: str
    """Such as nvme_gen4_x4."""
    title: str
    medium: Medium
    rate_per: RatePer
    read_bytes_per_s: Constant
    write_bytes_per_s: Constant | None
    """Null where nobody published one."""
    first_byte_s: Constant
    """Seconds to the first byte of one read."""
    capacity_bytes: Constant | None = None
    """Of one drive or node; null where the rates of any size are alike, or nobody stated one."""

    @property
    def is_shared(self) -> bool:
        """True where its rate is that of a client's network or of all clients, not of a device."""
        return self.rate_per in ("client", "cluster")

    def link(self, *, is_reading: bool = True, units: float = 1.0) -> Link:
        """The tier as a link of `units` drives, sockets or nodes side by side.

        Assumes: requests are deep enough in flight that a chunk costs nothing besides its bytes.

        Raises:
            ModelError: nobody published the rate of writes.
        """
        rate = self.read_bytes_per_s if is_reading else self.write_bytes_per_s
        if rate is None:
            raise ModelError(
                "KVT-C051",
                f"the write rate of {self.title} is not known",
                hint=f'state it in a hardware TOML: `[storage.{self.tier}]` `write = "2GB/s"`',
            )
        rate = rate.scaled(units)
        none = replace(
            self.first_byte_s,
            id=f"tiers.{self.tier}.op_s",
            title=f"{self.title}: fixed cost of a chunk",
            value=0.0,
            low=None,
            high=None,
            kind="assumed",
        )
        return Link(self.tier, rate, rate, none, self.first_byte_s)

    def at_end(self, *, fast: bool) -> StorageTier:
        """The same store with rates and first byte at one end of their ranges."""
        write = self.write_bytes_per_s
        return replace(
            self,
            read_bytes_per_s=self.read_bytes_per_s.at_end(high=fast),
            write_bytes_per_s=None if write is None else write.at_end(high=fast),
            first_byte_s=self.first_byte_s.at_end(high=not fast),
        )

    def constants(self) -> tuple[Constant, ...]:
        """All numbers of the tier."""
        write = () if self.write_bytes_per_s is None else (self.write_bytes_per_s,)
        size = () if self.capacity_bytes is None else (self.capacity_bytes,)
        return (self.read_bytes_per_s, *write, self.first_byte_s, *size)


def list_tiers() -> tuple[str, ...]:
    """Names of the built-in tiers."""
    return tuple(read_toml("storage.toml")["tiers"])


def load_tier(name: str) -> StorageTier:
    """A tier of data/storage.toml by its exact name."""
    entry = read_toml("storage.toml")["tiers"][name]
    source, as_of, title = str(entry["source"]), str(entry["as_of"]), str(entry["title"])

    def read(key: str, unit: str, words: str) -> Constant | None:
        raw = entry.get(key)
        if raw is None:
            return None
        if not isinstance(raw, dict):
            raise ValueError(f"storage.toml: {name}.{key} is not a table")
        return read_constant(
            raw,
            id=f"tiers.{name}.{key}",
            unit=unit,
            title=f"{title}: {words}",
            source=source,
            as_of=as_of,
        )

    rate, first = read("read_bytes_per_s", "B/s", "reads"), read("first_byte_s", "s", "first byte")
    if rate is None or first is None:
        raise ValueError(f"storage.toml: {name} has no reads or no first byte")
    return StorageTier(
        tier=name,
        title=title,
        medium=cast("Medium", str(entry["medium"])),
        rate_per=cast("RatePer", str(entry["rate_per"])),
        read_bytes_per_s=rate,
        write_bytes_per_s=read("write_bytes_per_s", "B/s", "writes"),
        first_byte_s=first,
        capacity_bytes=read("capacity_bytes", "B", "capacity"),
    )
