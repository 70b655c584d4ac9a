"""Checks on RDMA in place: the host bounce, and the load that is left."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from kvtrace.audit.findings.check import Evidence, Hit, measured, modelled
from kvtrace.audit.findings.limits import (
    BOUNCE_FACTOR,
    ENOUGH_MOVES,
    LOAD_SHARE,
    MOVE_MATTERS,
)
from kvtrace.audit.findings.replayed import stage_times
from kvtrace.audit.record import Option, Quantity
from kvtrace.audit.uncertainty.ranges import ratio
from kvtrace.replay.options.recipes import find_recipe
from kvtrace.replay.result import ReplayResult
from kvtrace.units import format_seconds, format_traffic

_RDMA: Final = "nic_rdma"
_PULLS: Final = "remote>host"
_LOADS: Final = "host>device"


def load_is_what_is_left(evidence: Evidence) -> Hit | None:
    """RDMA brings KV to the host, and the copy from there into HBM is the larger part."""
    found = [
        (share, result)
        for ident, result in evidence.results.items()
        if (share := _load_share(result)) is not None
        and share >= LOAD_SHARE.value
        and _moves_matter(evidence, ident)
    ]
    seen = _measured_load_share(evidence)
    if not found and seen is None:
        return None
    found.sort(key=lambda pair: (-pair[0], pair[1].scenario.option_id))
    parts = [] if seen is None else [seen[0]]
    if found:
        share, result = found[0]
        parts.append(
            f"{result.scenario.title}: {100 * share:.0f} % of a move after its lookup is the load "
            "from host memory into HBM, not the network (modelled); faster ports shorten the rest "
            "only"
        )
    return Hit(
        severity="warning",
        confidence="medium" if seen is not None else evidence.modelled_confidence,
        message=". ".join(parts),
        evidence=(
            *(() if seen is None else seen[1]),
            *(
                modelled(f"load_share_of_move:{r.scenario.option_id}", share, "ratio", "replay")
                for share, r in found
            ),
        ),
    )


def _load_share(result: ReplayResult) -> float | None:
    """Of pull and load together; null where no stage is a pull over RDMA, or none a load."""
    by_kind = {stage.kind: stage for stage in stage_times(result)}
    pull, load = by_kind.get("pull"), by_kind.get("load")
    if pull is None or load is None or not any(one.startswith(_RDMA) for one in pull.link_ids):
        return None
    return ratio(load.seconds, pull.seconds + load.seconds)


def _moves_matter(evidence: Evidence, ident: str) -> bool:
    option = evidence.option(ident)
    if option is None or not option.is_feasible:
        return False
    return (ratio(option.move_s.mean, option.ttft_s.mean) or 0.0) >= MOVE_MATTERS.value


def _measured_load_share(evidence: Evidence) -> tuple[str, tuple[Quantity, ...]] | None:
    """Observed pulls of a remote pool beside observed copies into HBM: which takes a byte longer.

    Only where the pulls run faster than TCP could: then RDMA is in place.
    """
    rows = {row.path: row for row in evidence.moves if row.direction == "load"}
    pull, load, deployment = rows.get(_PULLS), rows.get(_LOADS), evidence.deployment
    if pull is None or load is None or deployment is None:
        return None
    if min(pull.timed_transfers, load.timed_transfers) < ENOUGH_MOVES.value:
        return None
    if not pull.bytes_per_s or not load.bytes_per_s:
        return None
    share = pull.bytes_per_s / (pull.bytes_per_s + load.bytes_per_s)
    tcp = next(hop for hop in deployment.path("pool_tcp").stages if hop.kind == "pull").bytes_per_s
    if pull.bytes_per_s <= tcp or share < LOAD_SHARE.value:
        return None
    text = (
        f"The pool's pulls run at {_rate(pull.bytes_per_s)}, faster than TCP, the loads into HBM "
        f"behind them at {_rate(load.bytes_per_s)} (measured): {100 * share:.0f} % of the two is "
        "the load"
    )
    return text, (
        measured("pull_bytes_per_s", pull.bytes_per_s, "bytes/s", "moves/measured_rates"),
        measured("load_bytes_per_s", load.bytes_per_s, "bytes/s", "moves/measured_rates"),
    )


def host_bounce_dominates(evidence: Evidence) -> Hit | None:
    """The copy through host memory makes RDMA moves much longer than GPU-direct ones."""
    slow = [
        (factor, bounce, direct)
        for bounce, direct in _by_bounce(evidence)
        if (factor := ratio(bounce.move_s.mean, direct.move_s.mean)) is not None
        and factor >= BOUNCE_FACTOR.value
        and (_move_of_ttft(bounce) or 0.0) >= MOVE_MATTERS.value
    ]
    if not slow:
        return None
    factor, bounce, direct = max(slow, key=lambda one: (one[0], one[1].id))
    of_ttft = _move_of_ttft(bounce) or 0.0
    return Hit(
        severity="warning",
        confidence=evidence.modelled_confidence,
        message=(
            f"With the host bounce a move takes {format_seconds(bounce.move_s.mean or 0.0)} on "
            f"average, GPU-direct {format_seconds(direct.move_s.mean or 0.0)} ({factor:.2f} times, "
            f"modelled), {100 * of_ttft:.0f} % of TTFT: the copy through host memory, not the "
            "network, makes the difference"
        ),
        evidence=(
            modelled("bounce_over_direct", factor, "times", "replays of both paths"),
            modelled("move_share_of_ttft", of_ttft, "ratio", "replay"),
            *(
                modelled(f"move_mean_s:{o.id}", o.move_s.mean, "s", "replay")
                for o in (bounce, direct)
            ),
        ),
    )


def _move_of_ttft(option: Option) -> float | None:
    return ratio(option.move_s.mean, option.ttft_s.mean)


def _by_bounce(evidence: Evidence) -> Iterator[tuple[Option, Option]]:
    """Pairs of options of the catalogue that differ in the host bounce alone."""
    known = {
        option.id: (option, recipe)
        for option in evidence.options
        if (recipe := find_recipe(option.id)) is not None
    }
    for bounce, recipe in known.values():
        for direct, other in known.values():
            if (recipe.wire, other.wire) != ("rdma_bounce", "rdma_direct"):
                continue
            names = {"option_id": other.option_id, "title": other.title, "wire": other.wire}
            if replace(recipe, **names, is_quick=other.is_quick) == other:  # type: ignore[arg-type]
                yield bounce, direct


def _rate(bytes_per_s: float | None) -> str:
    return "unknown" if bytes_per_s is None else f"{format_traffic(bytes_per_s)}/s"
