"""Does an option fit on what the measured load leaves of a link?"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from kvtrace.audit.findings.check import Evidence, Hit, LinkRow, known_only, measured, modelled
from kvtrace.audit.findings.limits import LINK_LEFT
from kvtrace.audit.findings.link_rows import LINKS_TABLE, SUMMARY_QUERY
from kvtrace.units import format_traffic


@dataclass(frozen=True, slots=True)
class _Shortage:
    """One way of one link that an option does not fit on."""

    row: LinkRow
    way: str
    need: float
    left: float
    used: float

    @property
    def over(self) -> float:
        """Need over what is left; a full link counts as infinitely short."""
        return self.need / self.left if self.left > 0 else math.inf


def link_leaves_too_little(evidence: Evidence) -> Hit | None:
    """A link carries so much today that an option's KV does not fit beside it."""
    short = [one for row in evidence.links for one in _shortages(row)]
    if not short:
        return None
    worst = max(short, key=lambda one: (one.over, one.row.option_id, one.way))
    row = worst.row
    options = sorted({one.row.title for one in short})
    return Hit(
        severity="warning",
        confidence=evidence.modelled_confidence if row.is_same_window else "low",
        message=(
            f"{row.title} would move {_rate(worst.need)} of KV {worst.way} HBM over each "
            f"`{row.link_id}` on the mean; today it carries {_rate(worst.used)} (measured), which "
            f"leaves {_rate(worst.left)} of {_rate(row.usable_bytes_per_s)}. {_same_window(row)}"
            f"Options that do not fit: {', '.join(options)}"
        ),
        evidence=known_only(
            modelled("needed_bytes_per_s", worst.need, "bytes/s", LINKS_TABLE),
            measured("carried_bytes_per_s", worst.used, "bytes/s", SUMMARY_QUERY),
            modelled("left_bytes_per_s", worst.left, "bytes/s", LINKS_TABLE),
            modelled("usable_bytes_per_s", row.usable_bytes_per_s, "bytes/s", LINKS_TABLE),
        ),
    )


def _shortages(row: LinkRow) -> Iterator[_Shortage]:
    ways = (
        ("towards", row.read_bytes_per_s, row.left_read_bytes_per_s, row.rx_bytes_per_s),
        ("away from", row.written_bytes_per_s, row.left_written_bytes_per_s, row.tx_bytes_per_s),
    )
    for way, need, left, used in ways:
        if need is None or left is None or used is None or need <= 0:
            continue
        if need > LINK_LEFT.value * left:
            yield _Shortage(row, way, need, left, used)


def _same_window(row: LinkRow) -> str:
    if row.is_same_window:
        return ""
    return "The counters are of another time than the replayed requests. "


def _rate(bytes_per_s: float | None) -> str:
    return "unknown" if bytes_per_s is None else f"{format_traffic(bytes_per_s)}/s"
