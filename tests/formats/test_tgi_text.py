"""TGI router lines: Rust durations, output by division, nothing from imitations."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from kvtrace.ingest.formats.tgi_text import FORMATS
from tests.formats.reading import DATA, confidence, read_bytes

TGI = FORMATS[0]
GOOD = (DATA / "tgi_text" / "good.log").read_bytes()
MALFORMED = (DATA / "tgi_text" / "malformed.log").read_bytes()


def test_text_and_json_lines_are_requests() -> None:
    reading = read_bytes(TGI, GOOD)
    assert [(row.e2e_ns, row.queue_ns, row.output_tokens) for row in reading.requests] == [
        (2_500_000_000, 54_810, 20),  # the stop text is no field; 1.21 s / 60.5 ms
        (62_500_000_000, 1_500_000_000, None),  # 10.4 s / 4 s is 2.6 tokens: unknown
        (301_000_000, 1_000, 3),
    ]
    assert {row.prompt_tokens for row in reading.requests} == {None}
    assert reading.ignored == {"other_engine_line": 2, "other_program": 1}
    assert reading.context.evidence_grade == "L"


def test_the_line_is_the_end_of_the_request() -> None:
    row = read_bytes(TGI, GOOD).requests[0]
    when = datetime.fromtimestamp((row.arrived_at_ns or 0) / 1e9, UTC)
    assert when.isoformat() == "2025-05-01T01:31:13.500000+00:00"


@pytest.mark.parametrize(
    ("inference", "token", "output"),
    [
        (b"1s", b"100.5ms", 10),  # 9.95: within 1 % of 10
        (b"1s", b"98ms", None),  # 10.2
        (b"100.4s", b"1s", None),  # 100.4: within 1 %, but 100 and 101 are both near
        (b"1s", b"0ns", None),
        (b"1ms", b"1s", None),  # no token
    ],
)
def test_output_is_a_whole_number_or_unknown(
    inference: bytes, token: bytes, output: int | None
) -> None:
    line = GOOD.splitlines(keepends=True)[0]
    line = line.replace(b'"1.210s"', b'"%s"' % inference).replace(b'"60.5ms"', b'"%s"' % token)
    assert read_bytes(TGI, line).requests[0].output_tokens == output


def test_damaged_lines_are_rejected() -> None:
    reading = read_bytes(TGI, MALFORMED)
    assert reading.rows == []
    assert reading.rejected == [(line, "damaged_line") for line in range(1, 6)]


def test_sniff() -> None:
    assert confidence(TGI, GOOD) > 0.8
    assert confidence(TGI, b"2025-05-01T01:31:23Z  INFO generate{id=7}: other: done\n") == 0.0
