"""Numbers for people: units printed, unknown kept, hostile text disarmed."""

from __future__ import annotations

import math

import pytest

from kvtrace.audit.record import Cell
from kvtrace.report.format import (
    exact_value,
    format_interval,
    format_value,
    safe_text,
)


def shown(value: Cell, unit: str, name: str = "") -> str | None:
    text = format_value(value, unit, name=name)
    return None if text is None else text.replace("\u00a0", " ")


@pytest.mark.parametrize(
    ("value", "unit", "name", "expected"),
    [
        (0.373624, "ratio", "", "37.36 %"),
        (0.5, "ratio", "", "50 %"),
        (0.0000123, "ratio", "", "0.0012 %"),
        (144_793_823, "tokens", "", "144,793,823 tokens"),
        (0.22, "s", "", "220 ms"),
        (60.0, "s", "", "60.0 s"),
        (1_500_000, "ns", "queue_ns", "1.5 ms"),
        (250, "ms", "", "250 ms"),
        (3e-9, "s", "", "3 ns"),
        (2 * 2**30, "bytes", "capacity_bytes", "2 GiB"),
        (2e9, "bytes", "moved_bytes", "2 GB"),
        (4.745e13, "bytes", "bytes_requested", "47.45 TB"),
        (1.9e10, "bytes/s", "", "19 GB/s"),
        (-1_200.0, "USD/month", "", "−$1,200/month"),
        (2.4, "USD/h", "", "$2.40/h"),
        (0, "USD", "", "$0"),
        (5.8e-11, "", "", "0"),
        (True, "", "", "yes"),
        ("bf16", "name", "", "bf16"),
        (1_748_772_000 * 10**9, "ns", "observed_at_ns", "2025-06-01 10:00:00"),
        (90 * 10**9, "ns", "slice_start_ns", "90.0 s"),
        (math.inf, "s", "", "∞"),
    ],
)
def test_values_carry_their_unit(value: Cell, unit: str, name: str, expected: str) -> None:
    assert shown(value, unit, name) == expected


@pytest.mark.parametrize("value", [None, math.nan])
def test_unknown_is_not_zero_and_not_blank(value: Cell) -> None:
    assert format_value(value, "tokens") is None


def test_an_interval_needs_both_ends() -> None:
    assert format_interval(None, 2.0, "s") is None
    assert (format_interval(1.0, 12.0, "s") or "").replace("\u00a0", " ") == "1,000 ms – 12.0 s"


def test_terminal_escapes_and_direction_marks_become_visible() -> None:
    hostile = "a\x1b[31m\u202egpj.exe\ud800\u2028b\nc"
    assert safe_text(hostile) == r"a\u001b[31m\u202egpj.exe\ud800\u2028b c"


def test_long_text_is_cut() -> None:
    assert safe_text("x" * 500, limit=10) == "xxxxxxxxxx…"


def test_copied_values_keep_full_precision() -> None:
    assert exact_value(0.1 + 0.2) == "0.30000000000000004"
    assert exact_value(None) == ""
    assert exact_value(True) == "true"
