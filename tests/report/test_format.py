"""Numbers for people: units printed, unknown kept, hostile text disarmed."""

from __future__ import annotations

import math

import pytest

from kvtrace.audit.record import Cell
from kvtrace.report.format import (
    Scale,
    exact_value,
    format_in,
    format_interval,
    format_value,
    pick_scale,
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
    assert (format_interval(1.0, 12.0, "s") or "").replace("\u00a0", " ") == "1.00 s – 12.0 s"


def test_terminal_escapes_and_direction_marks_become_visible() -> None:
    hostile = "a\x1b[31m\u202egpj.exe\ud800\u2028b\nc"
    assert safe_text(hostile) == r"a\u001b[31m\u202egpj.exe\ud800\u2028b c"


def test_long_text_is_cut() -> None:
    assert safe_text("x" * 500, limit=10) == "xxxxxxxxxx…"


def test_copied_values_keep_full_precision() -> None:
    assert exact_value(0.1 + 0.2) == "0.30000000000000004"
    assert exact_value(None) == ""
    assert exact_value(True) == "true"


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [
        (0.10171, "times", "0.10 ×"),
        (0.52152, "times", "0.52 ×"),
        (0.0345, "times", "0.035 ×"),
        (12.34, "times", "12.3 ×"),
        (250.0, "times", "250 ×"),
        (0.00734, "correlation", "0.01"),
        (1, "requests", "1 request"),
        (1.0, "GPUs", "1 GPU"),
        (2, "GPUs", "2 GPUs"),
        (1.0, "hours", "1 hour"),
        (1.0, "USD/GPU-hour", "$1.00/GPU-hour"),
    ],
)
def test_units_read_as_people_say_them(value: float, unit: str, expected: str) -> None:
    assert shown(value, unit) == expected


def test_a_column_has_the_unit_of_its_largest_value() -> None:
    scale = pick_scale("s", [0.0, 75.0, 672.0, None])
    assert scale == Scale("s", 1.0)
    texts = [format_in(value, scale) for value in (0.0, 0.3024, 75.0, 672.0, None)]
    assert texts == ["0\u00a0s", "0.30\u00a0s", "75.0\u00a0s", "672.0\u00a0s", None]


def test_held_and_moved_bytes_have_their_own_powers() -> None:
    assert pick_scale("bytes", [3e12], name="capacity_bytes") == Scale("TiB", 2**40)
    assert pick_scale("bytes", [3e12], name="moved_bytes") == Scale("TB", 10**12)


def test_small_values_of_a_column_keep_two_digits() -> None:
    assert format_in(0.000_123_4, Scale("s", 1.0)) == "0.00012\u00a0s"


def test_instants_and_counts_need_no_choice_of_unit() -> None:
    assert pick_scale("ns", [1_748_772_000 * 10**9], name="slice_start_ns") is None
    assert pick_scale("tokens", [5.0]) is None
    assert pick_scale("s", [0.0, None]) is None


def test_equal_ends_are_printed_once() -> None:
    assert format_interval(0.5, 0.5, "ratio") == "50\u00a0%"
