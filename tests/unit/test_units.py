"""Units are strict: a unit that could mean two things is refused with both readings."""

from __future__ import annotations

import pytest

from kvtrace import units
from kvtrace.errors import UsageError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("80GiB", 80 * 2**30),
        ("80 GB", 80 * 10**9),
        ("1.5TiB", 3 * 2**39),
        ("1_000B", 1000),
        ("64kB", 64_000),
        ("64KiB", 65_536),
        ("1,024MB", 1_024_000_000),
    ],
)
def test_bytes_follow_their_unit(text: str, expected: int) -> None:
    assert units.parse_bytes(text) == expected


@pytest.mark.parametrize(
    "text", ["80G", "80Gb", "80", "80gib", "GiB", "-1GB", "nanGB", "", "1,5GB", "1,0245GB", ",5GB"]
)
def test_unclear_bytes_are_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        units.parse_bytes(text)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("text", "expected"),
    [("400Gb/s", 50e9), ("50GB/s", 50e9), ("100 Gbps", 12.5e9), ("1GiB/s", float(2**30))],
)
def test_rates_tell_bits_from_bytes(text: str, expected: float) -> None:
    assert units.parse_rate(text) == expected


@pytest.mark.parametrize("text", ["400G", "400GB", "400", "400gb/s"])
def test_unclear_rates_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        units.parse_rate(text)


def test_the_hint_of_an_unclear_rate_offers_both_readings() -> None:
    with pytest.raises(UsageError) as caught:
        units.parse_rate("400G")
    assert caught.value.hint is not None
    assert "400Gb/s" in caught.value.hint
    assert "400GB/s" in caught.value.hint


def test_durations_are_whole_nanoseconds() -> None:
    assert units.parse_duration_ns("250ms") == 250_000_000
    assert units.parse_duration_ns("2h") == 7_200_000_000_000
    with pytest.raises(UsageError):
        units.parse_duration_ns("5")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.0005, "0.5 ms"),
        (0.25, "250 ms"),
        (2.5, "2,500 ms"),
        (60.0, "60.0 s"),
        (3600.0, "60.0 min"),
    ],
)
def test_durations_are_shown_in_the_unit_people_read(value: float, expected: str) -> None:
    assert units.format_seconds(value) == expected


def test_capacity_is_binary_and_traffic_decimal() -> None:
    assert units.format_bytes(80 * 2**30) == "80 GiB"
    assert units.format_traffic(47.45e12) == "47.45 TB"
    assert units.format_rate(50e9) == "50 GB/s"
    assert units.format_bytes(12) == "12 B"
    assert units.format_bytes(1.23456 * 2**30, digits=3) == "1.23 GiB"


def test_arithmetic_is_stated_dense_with_its_unit() -> None:
    assert units.parse_flops("989TFLOPS") == 989e12
    assert units.parse_flops("1.98 PFLOP/s") == 1.98e15
    with pytest.raises(UsageError, match="no clear unit of arithmetic") as caught:
        units.parse_flops("989T")
    assert "989TFLOPS" in (caught.value.hint or "")
    assert units.format_flops(273.8e12) == "273.8 TFLOP"
    assert units.format_flops(2e18) == "2 EFLOP"
    assert units.format_flops(12) == "12 FLOP"


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [
        (50e9, "B/s", "50 GB/s"),
        (2.0**31, "B", "2 GiB"),
        (989e12, "FLOP/s", "989 TFLOPS"),
        (0.92, "ratio", "0.92"),
        (8, "ports", "8 ports"),
        (3.2e-6, "s", "3.2 us"),
        (400e-9, "s", "400 ns"),
        (0.0005, "s", "500 us"),
        (0.002, "s", "2 ms"),
        (0, "s", "0 ms"),
    ],
)
def test_a_constant_is_shown_by_its_unit(value: float, unit: str, expected: str) -> None:
    assert units.format_quantity(value, unit) == expected
