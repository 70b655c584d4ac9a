"""Time stamps: exact, every zone form, impossible dates refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvtrace.ingest.clocks import (
    civil_ns,
    parse_iso,
    seconds_resolution_ns,
    seconds_to_ns,
    zone_shift,
)

# 2026-03-02T08:00:00Z
EIGHT = 1_772_438_400_000_000_000


@pytest.mark.parametrize(
    ("text", "ns", "is_zoned"),
    [
        ("2026-03-02T08:00:00Z", EIGHT, True),
        ("2026-03-02T16:00:00+08:00", EIGHT, True),
        ("2026-03-02T03:00:00-0500", EIGHT, True),
        ("2026-03-02 10:00:00 +02", EIGHT, True),
        ("2026-03-02 08:00:00", EIGHT, False),
        ("2026-03-02T08:00:00,250", EIGHT + 250_000_000, False),
        ("2026-03-02T08:00:00.123456789Z", EIGHT + 123_456_789, True),
        ("2026-03-02T08:00:00.123456789999Z", EIGHT + 123_456_789, True),
        ("2026-03-02T08:00:00.1234567", EIGHT + 123_456_700, False),
    ],
)
def test_iso_forms(text: str, ns: int, is_zoned: bool) -> None:
    found = parse_iso(text)
    assert found is not None
    assert (found.ns, found.is_zoned) == (ns, is_zoned)


@pytest.mark.parametrize(
    "text",
    ["", "2026-03-02", "2026-02-29 00:00:00", "2026-03-02 24:00:00", "2026-13-02 00:00:00", "now"],
)
def test_other_texts_are_no_time(text: str) -> None:
    assert parse_iso(text) is None


@given(
    st.datetimes(min_value=datetime(1971, 1, 1), max_value=datetime(2200, 1, 1)),
    st.integers(min_value=-14 * 60, max_value=14 * 60),
)
def test_iso_agrees_with_the_standard_library(moment: datetime, minutes: int) -> None:
    zoned = moment.replace(tzinfo=timezone(timedelta(minutes=minutes)))
    found = parse_iso(zoned.isoformat())
    since = zoned - datetime(1970, 1, 1, tzinfo=UTC)
    assert found is not None
    assert found.ns == (since.days * 86_400 + since.seconds) * 10**9 + since.microseconds * 1_000


def test_years_that_do_not_fit_64_bits_are_no_time() -> None:
    for year in ("0001", "0728", "1677", "2262", "9999"):
        assert parse_iso(f"{year}-07-29 00:00:03") is None
    last = parse_iso("2261-12-31 23:59:59.999999999")
    assert last is not None
    assert last.ns < 2**63


def test_decimal_seconds_are_exact() -> None:
    assert seconds_to_ns(Decimal("1787267980.0827403")) == 1_787_267_980_082_740_300
    assert seconds_to_ns(Decimal("27536.660701067")) == 27_536_660_701_067
    assert seconds_to_ns(Decimal("1E+400")) is None
    assert seconds_to_ns(Decimal("9999999999")) is None  # 10^19 ns do not fit 64 bits
    assert seconds_to_ns(Decimal("NaN")) is None


def test_resolution_is_the_last_written_digit() -> None:
    assert seconds_resolution_ns(Decimal("5")) == 10**9
    assert seconds_resolution_ns(Decimal("5.25")) == 10**7
    assert seconds_resolution_ns(Decimal("5.1234567891")) == 1


def test_zone_shift_knows_summer_time() -> None:
    shift = zone_shift("Europe/Berlin")
    winter = civil_ns(2025, 1, 15, 12 * 3600)
    summer = civil_ns(2025, 7, 15, 12 * 3600)
    assert winter is not None
    assert summer is not None
    assert winter - shift(winter) == 3600 * 10**9
    assert summer - shift(summer) == 7200 * 10**9
    assert zone_shift(None)(5) == 5
