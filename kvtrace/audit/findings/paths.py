"""Checks on the way of KV: where a move waits, what it shares, and in which pieces it goes."""

from __future__ import annotations

from typing import Final

from kvtrace.audit.findings.check import Evidence, Hit, known_only, measured, modelled
from kvtrace.audit.findings.limits import (
    ENOUGH_MOVES,
    SHARED_RATE,
)
from kvtrace.audit.findings.replayed import StageTimes, stage_times
from kvtrace.audit.record import Quantity
from kvtrace.audit.thresholds import LINK_BINDS
from kvtrace.audit.view import Row, count, number, rows_of
from kvtrace.replay.result import ReplayResult
from kvtrace.units import format_seconds, format_traffic

TOGETHER_TABLE: Final = "moves/alone_and_together"
_PCIE: Final = "pcie"
_OVER_PCIE: Final = ("host>device", "device>host")
"""Paths of logs that are copies between host memory and HBM alone."""


def pcie_contention(evidence: Evidence) -> Hit | None:
    """Copies between host memory and HBM that share PCIe get clearly less than alone."""
    seen = _slowed_rows(rows_of(evidence.queries, TOGETHER_TABLE))
    slowed = _slowed_loads(evidence)
    if not seen and not slowed:
        return None
    parts = [_together_words(row) for row in seen[:1]]
    parts += [_slowed_words(result, stage) for result, stage in slowed[:1]]
    return Hit(
        severity="warning",
        confidence="medium" if seen else evidence.modelled_confidence,
        message=". ".join(parts),
        evidence=(
            *(quantity for row in seen for quantity in _together_evidence(row)),
            *(
                modelled(f"rate_over_alone:{r.scenario.option_id}", s.rate_share, "ratio", "replay")
                for r, s in slowed
            ),
        ),
        table=TOGETHER_TABLE if seen else None,
    )


def _slowed_rows(rows: list[Row]) -> list[Row]:
    slow = [
        row
        for row in rows
        if row.get("path") in _OVER_PCIE
        and min(count(row, "alone_moves") or 0, count(row, "together_moves") or 0)
        >= ENOUGH_MOVES.value
        and (number(row, "together_over_alone") or 1.0) <= SHARED_RATE.value
    ]
    return sorted(slow, key=lambda row: number(row, "together_over_alone") or 1.0)


def _slowed_loads(evidence: Evidence) -> list[tuple[ReplayResult, StageTimes]]:
    """Options that carry the load and whose loads over PCIe wait for each other, worst first."""
    feasible = {option.id for option in evidence.options if option.is_feasible}
    found = [
        (result, stage)
        for ident, result in evidence.results.items()
        if ident in feasible
        for stage in stage_times(result)
        if stage.kind == "load"
        and _PCIE in stage.link_ids
        and (stage.rate_share or 1.0) <= SHARED_RATE.value
    ]
    return sorted(found, key=lambda pair: (pair[1].rate_share or 1.0, pair[0].scenario.option_id))


def _together_words(row: Row) -> str:
    return (
        f"Copies over {row.get('path')} run at {_rate(number(row, 'alone_bytes_per_s'))} alone and "
        f"at {_rate(number(row, 'together_bytes_per_s'))} each when others run beside them "
        f"({number(row, 'together_over_alone') or 0.0:.2f} of it; "
        f"{count(row, 'alone_moves') or 0:,} "
        f"and {count(row, 'together_moves') or 0:,} moves, {number(row, 'others_mean') or 0.0:.1f} "
        "others on the mean, measured)"
    )


def _slowed_words(result: ReplayResult, stage: StageTimes) -> str:
    spec = result.scenario.links.get(_PCIE)
    shared = 1 if spec is None else spec.instances_per_link
    beside = f", which {shared} instances share" if shared > 1 else ""
    return (
        f"{result.scenario.title}: loads get {stage.rate_share or 0.0:.2f} of the rate that PCIe"
        f"{beside} gives one alone ({format_seconds(stage.seconds)} in all instead of "
        f"{format_seconds(stage.alone_s)}, modelled)"
    )


def _together_evidence(row: Row) -> tuple[Quantity, ...]:
    ident = f":{row.get('path')}"
    rates = ("alone_bytes_per_s", "together_bytes_per_s")
    return known_only(
        *(
            measured(f"{name}{ident}", number(row, name), "bytes/s", TOGETHER_TABLE)
            for name in rates
        ),
        measured(
            f"together_over_alone{ident}",
            number(row, "together_over_alone"),
            "ratio",
            TOGETHER_TABLE,
        ),
    )


def pool_node_bound_by_dram(evidence: Evidence) -> Hit | None:
    """The memory of the pool nodes gives less than their ports, and what they give is used up."""
    fleet = evidence.fleet
    if fleet is None:
        return None
    ports = fleet.pool_nics_per_node.value * fleet.pool_nic_bytes_per_s.value
    dram = fleet.pool_dram_bytes_per_s.value
    busy = [
        (link.utilisation, option)
        for option in evidence.pools
        if option.id in evidence.results
        for link in option.links
        if _is_pools_own(evidence.results[option.id], link.link_id)
        and link.utilisation >= LINK_BINDS.value
    ]
    if dram >= ports or not busy:
        return None
    used, option = max(busy, key=lambda pair: (pair[0], pair[1].id))
    return Hit(
        severity="warning",
        confidence=evidence.modelled_confidence,
        message=(
            f"{option.title}: the pool nodes are busy {100 * used:.0f} % of the time, and a node's "
            f"memory serves {_rate(dram)}, less than the {_rate(ports)} of its ports (modelled): "
            "more or faster ports add nothing"
        ),
        evidence=(
            modelled("pool_dram_bytes_per_s", dram, "bytes/s", "fleet"),
            modelled("pool_ports_bytes_per_s", ports, "bytes/s", "fleet"),
            *(modelled(f"pool_busy:{o.id}", share, "ratio", "replay") for share, o in busy),
        ),
    )


def _is_pools_own(result: ReplayResult, link_id: str) -> bool:
    """The one link of the whole fleet on the way from a shared tier."""
    spec = result.scenario.links.get(link_id)
    crossed = {
        one
        for tier in result.scenario.tiers
        if tier.scope == "shared"
        for stage in tier.read
        for one in stage.link_ids
    }
    return spec is not None and spec.scope == "shared" and link_id in crossed


def _rate(bytes_per_s: float | None) -> str:
    return "unknown" if bytes_per_s is None else f"{format_traffic(bytes_per_s)}/s"
