"""Time between two lines of one log, across the changes of clocks that have a zone."""

from __future__ import annotations

import pytest

from kvtrace.ingest.formats.sglang_text import FORMATS as SGLANG
from kvtrace.ingest.formats.vllm_text import FORMATS as VLLM
from kvtrace.units import NS_PER_S
from tests.formats.reading import Reading, read_bytes


def a_request(begin: str, end: str, *, tz: str | None, year: int | None = 2025) -> Reading:
    text = (
        f"INFO {begin} [x.py:1] Added request a.\nINFO {end} [x.py:1] Aborted request(s) a.\n"
        "INFO 12-01 00:00:00 [x.py:1] Added request b.\n"
    )
    return read_bytes(VLLM[0], text.encode(), tz=tz, year=year)


@pytest.mark.parametrize(
    ("begin", "end", "tz", "seconds"),
    [
        # Berlin, 30 March 2025: 02:00 is 03:00. 26 October 2025: 03:00 is 02:00.
        ("03-30 01:59:50", "03-30 03:00:10", "Europe/Berlin", 20),
        ("10-26 01:59:50", "10-26 03:00:10", "Europe/Berlin", 7_220),
        ("10-26 01:59:50", "10-26 02:30:00", "Europe/Berlin", None),
        ("10-26 02:30:00", "10-26 03:30:00", "Europe/Berlin", None),
        ("10-26 01:59:50", "10-26 03:00:10", None, 3_620),
        ("10-26 01:59:50", "10-26 03:00:10", "UTC", 3_620),
        ("10-27 02:30:00", "10-27 02:30:05", "Europe/Berlin", 5),
    ],
)
def test_clocks_put_forward_or_back_are_no_time(
    begin: str, end: str, tz: str | None, seconds: int | None
) -> None:
    row = a_request(begin, end, tz=tz).requests[0]
    assert row.status == "cancelled"
    assert row.e2e_ns == (None if seconds is None else seconds * NS_PER_S)


def test_full_dates_know_their_year() -> None:
    # Berlin, 29 March 2026: 02:00 is 03:00.
    text = (
        "[2026-03-29 01:59:59] Receive: obj=GenerateReqInput(rid='a', text='x')\n"
        "[2026-03-29 03:00:01] Finish: obj=GenerateReqInput(rid='a'), out={'meta_info': {'id': 'a',"
        " 'prompt_tokens': 4}}\n"
    )
    row = read_bytes(SGLANG[0], text.encode(), tz="Europe/Berlin").requests[0]
    assert row.e2e_ns == 2 * NS_PER_S


@pytest.mark.parametrize(("year", "is_noted"), [(2025, False), (None, True)])
def test_a_stated_year_is_not_assumed(year: int | None, is_noted: bool) -> None:
    reading = a_request("10-26 01:00:00", "10-26 01:00:01", tz=None, year=year)
    codes = {note.code for note in reading.context.notes}
    assert ("year_assumed" in codes) is is_noted
