"""What the running system keeps below HBM, by its logs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import polars as pl

from kvtrace.api.setup import Setup, told_by_logs
from kvtrace.cost.evidence import Constant
from kvtrace.cost.fleet import Answer, BelowHbm, Fleet
from kvtrace.query.catalog import load_catalog
from kvtrace.store.dataset import Dataset

_QUERY: Final = "samples/below_hbm"
_TABLES: Final = ("samples", "transfers", "block_events")
_NOT_SAID: Final = "not_said"
_WORDS: Final[Mapping[str, tuple[str, str]]] = {
    "samples": ("sample", "samples"),
    "moves": ("move of KV", "moves of KV"),
    "kv_events": ("block stored there", "blocks stored there"),
}
"""Of one observation, and of several."""
_HOST_RANKS: Final = "hicache_host_bytes_per_rank"
_HICACHE: Final = "hicache"


def with_observed(setup: Setup, dataset: Dataset) -> Setup:
    """The setup with what the logs show below HBM, where nobody stated it."""
    fleet = setup.fleet
    shown = _shown(dataset)
    evidence = _evidence(dataset, shown)
    if fleet.below_hbm.kind == "assumed":
        fleet = replace(fleet, below_hbm=_answer(fleet.below_hbm, evidence, dataset))
    if fleet.dram_used_bytes_per_instance is None:
        size = _host_bytes(setup, dataset, shown)
        fleet = replace(fleet, dram_used_bytes_per_instance=size)
    return replace(setup, fleet=_with_pool_size(fleet, shown))


def _shown(dataset: Dataset) -> pl.DataFrame:
    catalog = load_catalog()
    if not any(part.rows for table in _TABLES for part in dataset.manifest.tables.get(table, ())):
        return catalog.without_rows(_QUERY).frame
    with dataset.session() as session:
        return catalog.run(session, _QUERY).frame


def _evidence(dataset: Dataset, shown: pl.DataFrame) -> dict[str, list[str]]:
    """By tier below HBM: what shows it, for people."""
    found: dict[str, list[str]] = defaultdict(list)
    for tier, tokens in dataset.manifest.totals.cached_tiers.items():
        if tier != "device" and tokens:
            found[tier].append(f"{tokens:,} cached tokens from {tier}")
    for row in shown.iter_rows(named=True):
        count = int(row["observations"])
        what = f"{count:,} {_WORDS[row['evidence']][count != 1]}"
        where = "" if row["tier"] == _NOT_SAID else f" ({row['tier']})"
        found[row["tier"]].append(what + where)
    told = told_by_logs(dataset.manifest)
    if told.get(_HOST_RANKS) or str(told.get(_HICACHE)) == "True":
        found["host"].append("the engine starts with HiCache")
    return found


def _answer(
    base: Answer[BelowHbm], evidence: Mapping[str, list[str]], dataset: Dataset
) -> Answer[BelowHbm]:
    """Of the tiers that the logs show; one that they do not name cannot be replayed."""
    why = "; ".join(one for tier in sorted(evidence) for one in evidence[tier])
    if "disk" in evidence and "remote" not in evidence:
        return base.given("local_ssd", kind="given", source=f"logs: {why}")
    if "remote" in evidence:
        both = "host" in evidence or "disk" in evidence
        value: BelowHbm = "host_dram_and_pool" if both else "pool"
        return base.given(value, kind="given", source=f"logs: {why}")
    if "host" in evidence:
        return base.given("host_dram", kind="given", source=f"logs: {why}")
    if _NOT_SAID in evidence:
        source = f"the logs show a tier below HBM and do not name it ({why})"
        return base.given("nothing", kind="assumed", source=source)
    tiers = dataset.manifest.totals.cached_tiers
    if all(tiers.get(tier) == 0 for tier in ("host", "remote")):
        source = "logs: no token was cached below HBM"
        return base.given("nothing", kind="given", source=source)
    return base


def _host_bytes(setup: Setup, dataset: Dataset, shown: pl.DataFrame) -> Constant | None:
    """Host DRAM for KV of one instance, as its engine printed it."""
    of_rank = told_by_logs(dataset.manifest).get(_HOST_RANKS)
    if isinstance(of_rank, int | float) and of_rank > 0:
        return _size(of_rank * setup.deployment.kv_ranks, "HiCache, by rank")
    printed = shown.filter(pl.col("tier") == "host")["capacity_bytes"].max()
    return _size(printed, "printed size") if isinstance(printed, int) and printed > 0 else None


def _size(value: float, how: str) -> Constant:
    return Constant(
        id="fleet.dram_used_bytes_per_instance",
        title="host DRAM that the running system keeps KV in, per instance",
        value=float(value),
        unit="B",
        low=None,
        high=None,
        kind="given",
        source=f"logs: {how}",
        as_of="",
    )


def _with_pool_size(fleet: Fleet, shown: pl.DataFrame) -> Fleet:
    """The pool as large as it printed, where the running system has one and nobody stated it."""
    printed = shown.filter(pl.col("tier") == "remote")["capacity_bytes"].max()
    if fleet.pool_dram_bytes.kind != "assumed" or not isinstance(printed, int) or printed <= 0:
        return fleet
    return replace(fleet, pool_dram_bytes=fleet.pool_dram_bytes.given(printed, source="logs"))
