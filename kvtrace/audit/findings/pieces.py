"""Checks on what is moved: copies of the same KV, and pieces too small for their way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kvtrace.audit.findings.check import Evidence, Hit, MoveRow, measured, modelled
from kvtrace.audit.findings.limits import (
    ENOUGH_MOVES,
    HALF_RATE,
    REPLICATION,
)
from kvtrace.cost.calibration import OBSERVED_PATHS
from kvtrace.cost.deployment import Deployment
from kvtrace.cost.links import Link
from kvtrace.replay.result import ReplayResult
from kvtrace.units import format_bytes, format_traffic

_ROUNDING: Final = 1e-9
_TWO: Final = 2.0
_RATES: Final = "moves/measured_rates"


def tp_replicates_kv(evidence: Evidence) -> Hit | None:
    """Tensor-parallel ranks hold copies of the same KV, and every load moves all of them."""
    deployment = evidence.deployment
    if deployment is None:
        return None
    copies = deployment.kv_bytes_per_token / deployment.kv_bytes_per_token_unreplicated
    if copies <= REPLICATION.value * (1 + _ROUNDING):
        return None
    llm = deployment.llm
    return Hit(
        severity="warning" if copies >= _TWO else "info",
        confidence="high" if evidence.prefill is not None else "low",
        message=(
            f"{llm.name} ({llm.attention}) at TP {deployment.tp}: a token's KV of "
            f"{format_bytes(deployment.kv_bytes_per_token_unreplicated)} is held {copies:.1f} "
            "times "
            f"over the ranks, {format_bytes(deployment.kv_bytes_per_token)}; HBM holds as many "
            "times fewer tokens, and a load brings every copy"
        ),
        evidence=(
            modelled("kv_copies", copies, "times", "shape of the LLM and TP"),
            modelled("kv_bytes_per_token", deployment.kv_bytes_per_token, "bytes", "shape and TP"),
        ),
    )


def fragmented_copies(evidence: Evidence) -> Hit | None:
    """KV goes in pieces so small that their fixed cost takes as long as their bytes."""
    deployment = evidence.deployment
    if deployment is None:
        return None
    seen = [pair for row in evidence.moves if (pair := _small(row, deployment)) is not None]
    rates = piece_rates(deployment, list(evidence.results.values()))
    slow = [pair for pair in rates if pair[1] <= HALF_RATE.value]
    if not seen and not slow:
        return None
    parts = []
    if seen:
        row, share = min(seen, key=lambda pair: pair[1])
        parts.append(
            f"The observed {row.direction} moves over {row.path} hold "
            f"{format_traffic(row.median_bytes or 0.0)} (median, measured), for which the fixed "
            f"seconds of that path (modelled) are {100 * (1 - share):.0f} % of the move"
        )
    if slow:
        link, share = min(slow, key=lambda pair: (pair[1], pair[0].link))
        size = deployment.hardware.chunk_bytes
        parts.append(
            f"Pieces of {format_bytes(size.value)} reach {100 * share:.0f} % of what long ones "
            f"reach on {link.link} (modelled): half is reached from "
            f"{format_bytes(link.op_s.value * link.max_bytes_per_s.value)} on"
        )
    return Hit(
        severity="warning",
        confidence="medium" if seen else evidence.modelled_confidence,
        message=". ".join(parts),
        evidence=(
            *(measured(f"bytes_p50:{r.path}", r.median_bytes, "bytes", _RATES) for r, _ in seen),
            *(modelled(f"rate_over_long:{one.link}", s, "ratio", "chunk law") for one, s in slow),
        ),
    )


def _small(row: MoveRow, deployment: Deployment) -> tuple[MoveRow, float] | None:
    """The row with the share of its bytes in the seconds of a median move, where it is small."""
    known = OBSERVED_PATHS.get(row.path or "")
    if known is None or row.timed_transfers < ENOUGH_MOVES.value or not row.median_bytes:
        return None
    path_id, direction, stage = known
    path = deployment.path(path_id, direction=direction)
    hops = [hop for hop in path.stages if stage is None or hop.kind == stage]
    fixed_s = sum(hop.latency_s for hop in hops)
    bytes_s = sum(row.median_bytes / hop.bytes_per_s for hop in hops)
    share = bytes_s / (fixed_s + bytes_s)
    return (row, share) if share <= HALF_RATE.value else None


def piece_rates(
    deployment: Deployment, results: Sequence[ReplayResult]
) -> list[tuple[Link, float]]:
    """Links that the replayed options cross, with the rate of pieces over that of long ones."""
    hardware = deployment.hardware
    by_id = {
        "pcie": hardware.host_link,
        "nic_tcp": hardware.tcp.port,
        "nic_rdma": hardware.rdma.port,
    }
    crossed = {one for result in results for one in result.scenario.links}
    size = hardware.chunk_bytes.value
    return [
        (link, link.bytes_per_s(size) / link.max_bytes_per_s.value)
        for ident, link in by_id.items()
        if any(one in (ident, f"pool_{ident}") for one in crossed)
    ]
