"""Observed moves of KV beside the cost model: does the running system move as fast as assumed?"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

from kvtrace.audit.bounds import knows_flops
from kvtrace.audit.findings.check import Evidence, Hit, MoveRow, known_only, measured, modelled
from kvtrace.audit.findings.limits import ENOUGH_MOVES, SLOW_MOVES
from kvtrace.audit.inputs import ResultOfQuery
from kvtrace.audit.record import Cell, Quantity, Table
from kvtrace.audit.tables.shape import TableShape
from kvtrace.audit.uncertainty.ranges import ratio
from kvtrace.audit.view import count, number, rows_of
from kvtrace.cost.calibration import OBSERVED_PATHS
from kvtrace.cost.deployment import Deployment
from kvtrace.units import format_traffic

MOVES_TABLE: Final = "moves/measured_and_modelled"
_QUERY: Final = "moves/measured_rates"
_SHAPE: Final = TableShape(
    MOVES_TABLE,
    "Observed moves against the cost model (rates of the model: one move alone)",
    (
        ("direction", "name", "load (to HBM) | store (from HBM) | hand_off"),
        ("path", "name", "as far as the source says"),
        ("transfers", "count", "observed moves"),
        ("timed_transfers", "count", "of these, with bytes and seconds"),
        ("moved_bytes", "bytes", "moved"),
        ("measured_bytes_per_s", "bytes/s", "measured: all bytes over all seconds"),
        ("measured_p10_bytes_per_s", "bytes/s", "measured: 10 % of the moves are slower"),
        ("bytes_p50", "bytes", "measured: median move"),
        ("modelled_bytes_per_s", "bytes/s", "modelled: a move of the median size on this path"),
        ("measured_over_modelled", "times", "below one the system is slower than the model"),
        ("measured_tokens_per_s", "tokens/s", "measured: tokens moved a second"),
        ("recompute_tokens_per_s", "tokens/s", "modelled: prompt tokens computed a second"),
    ),
)


def move_rows(
    queries: Mapping[str, ResultOfQuery],
    deployment: Deployment,
    *,
    mean_prompt_tokens: float | None,
) -> list[MoveRow]:
    """The observed paths with their modelled rates.

    `recompute_tokens_per_s` is the rate of computing a mean prompt from nothing, for the moves
    whose log says tokens: moving fewer tokens a second than that is slower than recomputing.
    """
    recompute = _recompute_rate(deployment, mean_prompt_tokens)
    found = []
    for row in rows_of(queries, _QUERY):
        path = row.get("path")
        name = path if isinstance(path, str) else None
        size = number(row, "bytes_p50")
        tokens = number(row, "tokens_per_s")
        found.append(
            MoveRow(
                direction=str(row.get("direction")),
                path=name,
                transfers=count(row, "transfers") or 0,
                timed_transfers=count(row, "timed_transfers") or 0,
                moved_bytes=count(row, "moved_bytes"),
                bytes_per_s=number(row, "bytes_per_s"),
                slow_bytes_per_s=number(row, "bytes_per_s_p10"),
                median_bytes=size,
                modelled_bytes_per_s=_modelled_rate(name, size, deployment),
                tokens_per_s=tokens,
                recompute_tokens_per_s=recompute if tokens is not None else None,
            )
        )
    return found


def _modelled_rate(
    path: str | None, kv_bytes: float | None, deployment: Deployment
) -> float | None:
    """Bytes a second of one move of this size alone on the path, its fixed seconds included."""
    known = OBSERVED_PATHS.get(path or "")
    if known is None or not kv_bytes:
        return None
    path_id, direction, stage = known
    model = deployment.path(path_id, direction=direction)
    if stage is None:
        return kv_bytes / model.move_s(kv_bytes)
    seconds = math.fsum(hop.seconds(kv_bytes) for hop in model.stages if hop.kind == stage)
    return kv_bytes / seconds


def _recompute_rate(deployment: Deployment, prompt_tokens: float | None) -> float | None:
    if not prompt_tokens or not knows_flops(deployment):
        return None
    return prompt_tokens / deployment.prefill.prefill_s(prompt_tokens, 0)


def moves_table(rows: Sequence[MoveRow]) -> dict[str, Table]:
    """The table, if anything was observed."""
    if not rows:
        return {}
    cells: list[list[Cell]] = [
        [
            row.direction,
            row.path,
            row.transfers,
            row.timed_transfers,
            row.moved_bytes,
            row.bytes_per_s,
            row.slow_bytes_per_s,
            row.median_bytes,
            row.modelled_bytes_per_s,
            row.over_model,
            row.tokens_per_s,
            row.recompute_tokens_per_s,
        ]
        for row in rows
    ]
    return {MOVES_TABLE: _SHAPE.table(cells)}


def moves_slower_than_modelled(evidence: Evidence) -> Hit | None:
    """Observed loads run far below the rate that the options are modelled with."""
    slow = [
        (row, over)
        for row in evidence.moves
        if row.timed_transfers >= ENOUGH_MOVES.value
        and (over := row.over_model) is not None
        and over <= SLOW_MOVES.value
    ]
    if not slow:
        return None
    row, over = min(slow, key=lambda pair: pair[1])
    return Hit(
        severity="warning",
        confidence="medium",
        message=(
            f"{_words(row)} ran at {_rate(row.bytes_per_s)}, the model has "
            f"{_rate(row.modelled_bytes_per_s)} for that path: {over:.2f} of it. Options that move "
            "KV this way are shown too fast until the path is as fast as its hardware"
        ),
        evidence=_evidence_of(row),
    )


def moves_slower_than_recompute(evidence: Evidence) -> Hit | None:
    """Observed loads bring fewer tokens a second than prefill computes."""
    slow = [
        (row, over)
        for row in evidence.moves
        if row.direction == "load"
        and row.transfers >= ENOUGH_MOVES.value
        and (over := ratio(row.tokens_per_s, row.recompute_tokens_per_s)) is not None
        and over < 1
    ]
    if not slow:
        return None
    row, over = min(slow, key=lambda pair: pair[1])
    return Hit(
        severity="critical",
        confidence=evidence.modelled_confidence,
        message=(
            f"{_words(row)} brought {row.tokens_per_s:,.0f} tokens a second; recomputing a prompt "
            f"gives {row.recompute_tokens_per_s:,.0f}: a hit on this path took {1 / over:.1f} "
            "times as long as no hit"
        ),
        evidence=_evidence_of(row),
    )


def _words(row: MoveRow) -> str:
    return f"The observed {row.direction} moves over {row.path or 'an unnamed path'}"


def _rate(bytes_per_s: float | None) -> str:
    return "unknown" if bytes_per_s is None else f"{format_traffic(bytes_per_s)}/s"


def _evidence_of(row: MoveRow) -> tuple[Quantity, ...]:
    return known_only(
        measured("timed_transfers", row.timed_transfers, "count", _QUERY),
        measured("measured_bytes_per_s", row.bytes_per_s, "bytes/s", _QUERY),
        modelled("modelled_bytes_per_s", row.modelled_bytes_per_s, "bytes/s", MOVES_TABLE),
        measured("measured_tokens_per_s", row.tokens_per_s, "tokens/s", _QUERY),
        modelled("recompute_tokens_per_s", row.recompute_tokens_per_s, "tokens/s", MOVES_TABLE),
    )
