"""What share of a peak an engine reaches: constants per GPU family, fitted or assumed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

from kvtrace.cost.evidence import Constant, read_constant, read_toml
from kvtrace.cost.hardware import HardwareProfile


@dataclass(frozen=True, slots=True)
class Efficiency:
    """Efficiencies of one GPU family."""

    family: str
    gemm: dict[str, Constant]
    """By compute format: bf16, fp8, fp4."""
    attention: Constant
    half_tokens: Constant
    """New tokens per rank at which GEMMs reach half of their efficiency."""
    hbm_read: Constant | None = None
    """Attainable share of HBM bandwidth in reads of weights; null: that of all families."""
    kv_read: Constant | None = None
    """Alike in attention that reads KV."""


@dataclass(frozen=True)
class EfficiencyTable:
    """All efficiencies: those of data/efficiency.toml, or others that a fit tries."""

    families: Mapping[str, Efficiency]
    shared: Mapping[str, Constant]

    def family(self, name: str) -> Efficiency:
        """Efficiencies of a GPU family; a family without a row gets the assumed ones."""
        return self.families.get(name) or replace(self.families["other"], family=name)

    def hbm_read(self, family: str) -> Constant:
        """Attainable share of HBM bandwidth in reads of weights: the family's, else that of all."""
        return self.family(family).hbm_read or self.shared["hbm_read"]

    def kv_read(self, family: str) -> Constant:
        """Alike in attention that reads KV; that of weights where none is known."""
        known = self.family(family).kv_read or self.shared.get("kv_read")
        return known or self.hbm_read(family)

    def allreduce(self, hardware: HardwareProfile, tp: int) -> tuple[Constant, float]:
        """The efficiency of an all-reduce over `tp` ranks, and its rate in bytes/s.

        Formula: algorithm rate = share x rate of the slowest link that the ring crosses.
        """
        if tp > hardware.gpus_per_node:
            share = self.shared["allreduce_network"]
            port = hardware.rdma.port.max_bytes_per_s.value
            return share, share.value * port * hardware.rdma.ports_per_node.value
        scaleup = hardware.gpu.scaleup_bytes_per_s
        if scaleup is None:
            share = self.shared["allreduce_pcie"]
            return share, share.value * hardware.host_link.max_bytes_per_s.value
        share = self.shared[f"allreduce_tp{2 if tp <= 2 else 4 if tp <= 4 else 8}"]
        return share, share.value * scaleup.value


@cache
def efficiency_table() -> EfficiencyTable:
    """The efficiencies of data/efficiency.toml."""
    document = read_toml("efficiency.toml")
    names = tuple(document["families"])
    return EfficiencyTable(
        families={name: _read_family(name) for name in names},
        shared={name: _read_shared(name) for name in document["shared"]},
    )


def _read_family(name: str) -> Efficiency:
    families = read_toml("efficiency.toml")["families"]
    entry = families[name]
    source = _source(str(entry["source"]))

    def read(key: str, unit: str, title: str) -> Constant:
        raw = entry[key] if key in entry else families["other"][key]
        if not isinstance(raw, dict):
            raise ValueError(f"efficiency.{name}.{key} is not a table")
        text, as_of = source if key in entry else _source("none")
        return read_constant(
            raw, id=f"efficiency.{name}.{key}", unit=unit, title=title, source=text, as_of=as_of
        )

    return Efficiency(
        family=name,
        gemm={
            dtype: read(f"gemm_{dtype}", "ratio", f"{name}: attainable share of the {dtype} peak")
            for dtype in ("bf16", "fp8", "fp4")
        },
        attention=read("attention", "ratio", f"{name}: share of the bf16 peak in attention"),
        half_tokens=read(
            "half_tokens", "tokens/rank", f"{name}: tokens at half of the GEMM efficiency"
        ),
        hbm_read=read("hbm_read", "ratio", f"{name}: share of memory bandwidth, weights")
        if "hbm_read" in entry
        else None,
        kv_read=read("kv_read", "ratio", f"{name}: share of memory bandwidth, KV in attention")
        if "kv_read" in entry
        else None,
    )


def _read_shared(name: str) -> Constant:
    entry = read_toml("efficiency.toml")["shared"][name]
    text, as_of = _source(str(entry["source"]))
    return read_constant({**entry, "source": text}, id=f"efficiency.{name}", as_of=as_of)


def _source(key: str) -> tuple[str, str]:
    entry = read_toml("efficiency.toml")["sources"][key]
    return str(entry["text"]), str(entry["as_of"])
