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
    ],
)
def test_bytes_follow_their_unit(text: str, expected: int) -> None:
    assert units.parse_bytes(text) == expected


@pytest.mark.parametrize("text", ["80G", "80Gb", "80", "80gib", "GiB", "-1GB", "nanGB", ""])
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
