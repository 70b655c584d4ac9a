"""A log of some hours with a stated peak factor: what is replayed is no longer what was logged."""

from __future__ import annotations

from dataclasses import replace

from kvtrace.audit.build import build_audit
from kvtrace.cost.evidence import Constant
from kvtrace.cost.fleet import Fleet
from tests.unit.audit_fakes import make_fleet, make_input


def raised(times: float, kind: str = "given") -> Fleet:
    factor = Constant(
        id="fleet.peak_factor",
        title="peak factor",
        value=times,
        unit="ratio",
        low=None,
        high=None,
        kind=kind,  # type: ignore[arg-type]
        source="fleet.toml",
        as_of="",
    )
    return replace(make_fleet(), peak_factor=factor)


def test_the_window_says_by_what_its_load_was_raised() -> None:
    window = build_audit(make_input(fleet=raised(2.0))).replay_window
    assert window is not None
    assert window.load_factor == 2.0
    assert not window.is_whole_trace
    notes = build_audit(make_input(fleet=raised(2.0))).data.validity
    assert any("raised to 2 times its sessions" in one.message for one in notes)


def test_a_factor_that_nobody_stands_behind_does_not_stand_for_a_day() -> None:
    short = build_audit(make_input(span_s=10_800.0)).verdict
    assert any("do not show the busiest hour" in one for one in short.conditions)
    stated = build_audit(make_input(span_s=10_800.0, fleet=raised(1.0))).verdict
    assert not any("do not show the busiest hour" in one for one in stated.conditions)
    guessed = build_audit(make_input(span_s=10_800.0, fleet=raised(1.0, "assumed"))).verdict
    assert any("do not show the busiest hour" in one for one in guessed.conditions)
