"""Today as it is modelled beside what was measured of it: what the SLO of a comparison rests on."""

from __future__ import annotations

from collections.abc import Iterator

from kvtrace.audit.findings.check import MS_PER_S
from kvtrace.audit.fleet.record import FleetSizes
from kvtrace.audit.record import Validity
from kvtrace.audit.tables.measured import Measured
from kvtrace.audit.thresholds import TODAY_GAP
from kvtrace.audit.view import number
from kvtrace.units import format_seconds


def add_measured(sizes: FleetSizes | None, measured: Measured) -> None:
    """TTFT of today's option as replayed, and as measured, where either is known."""
    if sizes is None:
        return
    today = next((one for one in measured.options if one.title == sizes.reference), None)
    if today is not None and today.is_feasible:
        sizes.today_ttft_p50_s, sizes.today_ttft_p90_s = today.ttft_s.p50, today.ttft_s.p90
    if (row := measured.latency) is not None:
        p50, p90 = number(row, "ttft_p50_ms"), number(row, "ttft_p90_ms")
        sizes.measured_ttft_p50_s = None if p50 is None else p50 / MS_PER_S
        sizes.measured_ttft_p90_s = None if p90 is None else p90 / MS_PER_S


def today_validity(sizes: FleetSizes | None) -> Iterator[Validity]:
    """A warning where today as modelled is not what was measured."""
    if sizes is None:
        return
    pairs = (
        ("p50", sizes.today_ttft_p50_s, sizes.measured_ttft_p50_s),
        ("p90", sizes.today_ttft_p90_s, sizes.measured_ttft_p90_s),
    )
    known = [(name, mine, real) for name, mine, real in pairs if mine and real]
    if all(1 / TODAY_GAP.value <= mine / real <= TODAY_GAP.value for _, mine, real in known):
        return
    shown = ", ".join(
        f"TTFT {name} {format_seconds(mine)} modelled, {format_seconds(real)} measured"
        for name, mine, real in known
    )
    rests = (
        "limits that are not stated are those of the model"
        if sizes.is_slo_stated
        else "the SLO is no worse than today as modelled, not as measured"
    )
    yield Validity(
        code="today_is_not_as_measured",
        severity="warning",
        message=f"{sizes.reference} stands for today: {shown} (limit {TODAY_GAP.value:g} times "
        f"either way); {rests}. State the SLO and the deployed fleet, or calibrate",
    )
