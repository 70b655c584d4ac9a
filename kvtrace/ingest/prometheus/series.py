"""From a sample's name and labels to what it means: program, target, and uses."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from kvtrace.ingest.prometheus.engines import ENGINES
from kvtrace.ingest.prometheus.exposition import Labels
from kvtrace.ingest.prometheus.layers import LAYERS, MACHINES
from kvtrace.ingest.prometheus.targets import Target, target_of
from kvtrace.ingest.prometheus.uses import Family, Program, Suffix, Use
from kvtrace.schema.metrics import METRICS

PROGRAMS: Final = (*ENGINES, *LAYERS, *MACHINES)
CONFIG_INFO: Final = "cache_config_info"
_HISTOGRAM: Final[dict[str, Suffix]] = {"_sum": "sum", "_count": "count", "_bucket": "bucket"}
_VIRTUAL: Final = re.compile(
    r"(?:lo|veth|docker|br|cni|cali|cilium|flannel|virbr|tunl|kube|nodelocaldns|dummy|vxlan|ovs|tap"
    r"|tun|lxc|lxd|bond|team|wg|ifb)[-_0-9a-z]*|.*\..*",
    re.IGNORECASE,
)
"""Devices whose bytes another device counts too: bridges, bonds, VLANs, containers, loopback."""


@dataclass(frozen=True, slots=True)
class Known:
    """A name that the tables know, taken apart."""

    program: Program
    base: str
    family: Family
    suffix: Suffix
    is_created: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """One time series that feeds a metric, or the creation time of one. One object a series."""

    target: Target
    base: str
    suffix: Suffix
    kind: str
    """counter, gauge or created."""
    uses: tuple[Use, ...]
    bound: float | None = None
    """Upper bound of a bucket."""
    labels: Labels = ()

    @property
    def is_counter(self) -> bool:
        """Whether its value only grows."""
        return self.kind == "counter"


def resolve(name: str) -> Known | None:
    """What a metric's name stands for; `:` and `.` may be written `_`, counters end in `_total`."""
    plain = name.replace(":", "_").replace(".", "_")
    for program in PROGRAMS:
        for prefix in program.prefixes:
            if plain.startswith(prefix):
                known = _in_program(program, plain[len(prefix) :])
                if known is not None:
                    return known
    return None


def _in_program(program: Program, rest: str) -> Known | None:
    base = rest.rstrip("_")
    for candidate in (base, base.removesuffix("_total")):
        family = program.families.get(candidate)
        if family is not None and any(use.suffix == "" for use in family.uses):
            return Known(program, candidate, family, "")
    for ending, suffix in _HISTOGRAM.items():
        stem = base.removesuffix(ending)
        family = program.families.get(stem) if stem != base else None
        if family is not None and any(use.suffix == suffix for use in family.uses):
            return Known(program, stem, family, suffix)
    if base.endswith("_created"):
        stem = base.removesuffix("_created").removesuffix("_total")
        family = program.families.get(stem)
        if family is not None and family.kind != "gauge":
            return Known(program, stem, family, "", is_created=True)
    return None


def series_of(known: Known, labels: Labels) -> Series | str:
    """The series, or why it is not used."""
    values = dict(labels)
    target = target_of(known.program, values)
    if known.is_created:
        return Series(target, known.base, "", "created", (), labels=labels)
    if known.program.is_machine and _VIRTUAL.fullmatch(values.get("device", "")):
        return "virtual_device"
    uses = tuple(
        use for use in known.family.uses if use.suffix == known.suffix and use.wants(values)
    )
    if values.get("tp_rank", "0") != "0" and uses:
        uses = tuple(use for use in uses if _is_bytes(use))
        if not uses:
            return "rank_copy"  # tensor-parallel ranks count the same tokens and requests
    if not uses:
        return "metric_not_used"
    kind = "counter" if known.suffix else known.family.kind
    bound = None
    if known.suffix == "bucket":
        bound = _bound(values.get("le"))
        if bound is None:
            return "metric_not_used"
    return Series(target, known.base, known.suffix, kind, uses, bound, labels)


def _is_bytes(use: Use) -> bool:
    """Whether each rank counts its own share of it."""
    return use.metric in METRICS and METRICS[use.metric].unit == "bytes"


def _bound(text: str | None) -> float | None:
    try:
        bound = float(text) if text is not None and len(text) <= 40 and text.isascii() else None
    except ValueError:
        return None
    return bound if bound is not None and bound == bound else None  # not NaN
