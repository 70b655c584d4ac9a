"""What limits an option: the resource that keeps its fleet from being smaller, and the next one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kvtrace.audit.fleet.pressure import busiest, used_shares
from kvtrace.audit.fleet.record import Binding
from kvtrace.audit.slo.figures import SloCheck
from kvtrace.audit.thresholds import LINK_BINDS, PREFILL_BINDS
from kvtrace.replay.relax import Resource
from kvtrace.replay.result import ReplayResult
from kvtrace.schema.arrays import RequestTrace

NOTHING: Final = "none"
_WORDS: Final = {
    "prefill": "prefill compute",
    "decode": "decode bandwidth",
    "hbm_capacity": "HBM for KV",
    "tpot": "TPOT",
    "move": "the time of a move, not its bandwidth",
    "redundancy": "redundancy",
    NOTHING: "nothing",
}


def resource_words(name: str) -> str:
    """`decode bandwidth`, `link pool_nic_rdma`."""
    return _WORDS.get(name, name.replace("link:", "link "))


def bind(
    trace: RequestTrace,
    result: ReplayResult,
    check: SloCheck,
    relaxed: Mapping[Resource, SloCheck],
) -> Binding:
    """What binds in this replay; `relaxed`: the same with each resource free, if replayed.

    Where the SLO is missed and free resources were replayed, that one binds which alone restores
    it, of several the one that does so by most; where none does, the one that brings the worst
    figure nearest. Else it is the busiest resource: prefill and links from their thresholds on.
    """
    shares = used_shares(trace, result)
    is_missed = not check.is_kept
    if is_missed and relaxed:
        first, second, why = _by_relief(check, relaxed, shares)
        basis = "relaxed"
    else:
        first, second, why = _by_use(check, shares, is_missed=is_missed)
        basis = "busiest"
    return Binding(
        option=result.scenario.option_id,
        instances=result.scenario.instances,
        is_missed=is_missed,
        binds=first,
        next=second,
        basis="relaxed" if basis == "relaxed" else "busiest",
        used=shares,
        why=why,
    )


def _by_relief(
    check: SloCheck, relaxed: Mapping[Resource, SloCheck], shares: dict[str, float]
) -> tuple[str, str, str]:
    order = sorted(relaxed, key=lambda one: (_misses(relaxed[one]), one))
    names = [_named(one, check, shares) for one in order]
    missed = f"{check} is missed (replayed)"
    if relaxed[order[0]].is_kept:
        others = [*names[1:], *_untried(relaxed, check, shares)]
        second = others[0] if others else NOTHING
        return names[0], second, f"{missed}; with {resource_words(names[0])} free it is kept"
    still = f"with {resource_words(names[0])} free it is still missed: {relaxed[order[0]]}"
    untried = _untried(relaxed, check, shares)
    if untried:
        second = untried[1] if len(untried) > 1 else names[0]
        return untried[0], second, f"{missed}; {still}"
    if _misses(relaxed[order[0]]) >= _misses(check):
        return "move", names[0], f"{missed}; no resource that is free alone brings it nearer"
    return names[0], names[1], f"{missed}; {still}"


def _untried(
    relaxed: Mapping[Resource, SloCheck], check: SloCheck, shares: dict[str, float]
) -> list[str]:
    """Resources that no replay was made free of, what binds by use first."""
    tried = set(relaxed)
    names = [
        name
        for name in busiest(shares)
        if ("links" if name.startswith("link:") else name) not in tried
    ]
    is_tpot = check.worst is not None and check.worst.name.startswith("TPOT")
    return [name if name != "decode" or not is_tpot else "tpot" for name in names]


def _misses(check: SloCheck) -> tuple[bool, bool, float]:
    """How far from the SLO: less is nearer."""
    figures = [figure for figure in check.figures if figure.is_judged]
    times = max((figure.times for figure in figures), default=float("inf"))
    return check.is_overloaded, not check.is_kept, times


def _named(resource: Resource, check: SloCheck, shares: Mapping[str, float]) -> str:
    """The link that is meant, and TPOT where decode binds by the time of a token."""
    if resource == "links":
        links = {name: share for name, share in shares.items() if name.startswith("link:")}
        return max(links, key=lambda name: (links[name], name)) if links else "move"
    worst = check.worst
    if resource == "decode" and worst is not None and worst.name.startswith("TPOT"):
        return "tpot"
    return str(resource)


def _by_use(check: SloCheck, shares: dict[str, float], *, is_missed: bool) -> tuple[str, str, str]:
    order = busiest(shares)
    worst = check.worst
    if is_missed and worst is not None and worst.name.startswith("TPOT"):
        rest = [name for name in order if name != "tpot"]
        return "tpot", rest[0] if rest else NOTHING, f"{check} is missed (replayed)"
    first = order[0] if order else NOTHING
    second = order[1] if len(order) > 1 else NOTHING
    if not is_missed and not _is_busy(first, shares):
        why = "the SLO is kept, and no resource is busy enough to bind"
        return NOTHING, first, why
    shown = f"{100 * shares[first]:.0f} % in use" if order else "no clock"
    head = f"{check} is missed (replayed); " if is_missed else "the SLO is kept; "
    return first, second, f"{head}the busiest is {resource_words(first)}, {shown}"


def _is_busy(name: str, shares: Mapping[str, float]) -> bool:
    limit = LINK_BINDS if name.startswith("link:") else PREFILL_BINDS
    return shares.get(name, 0.0) >= limit.value
