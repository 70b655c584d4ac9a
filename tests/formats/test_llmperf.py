"""llmperf's responses: zeros of a failure say nothing."""

from __future__ import annotations

from kvtrace.ingest.formats.llmperf import FORMATS
from kvtrace.ingest.registry import all_formats
from tests.formats.reading import DATA, read_bytes, sniffed

(LLMPERF,) = FORMATS
GOOD = (DATA / "llmperf" / "good.json").read_bytes()
DAMAGED = (DATA / "llmperf" / "damaged.json").read_bytes()
MS = 1_000_000


def test_a_request_and_a_failure() -> None:
    reading = read_bytes(LLMPERF, GOOD)
    row, failed = reading.requests
    assert (row.prompt_tokens, row.output_tokens, row.cached_tokens) == (300, 5, None)
    assert (row.ttft_ns, row.ttft_from, row.e2e_ns) == (500 * MS, "client", 1_500 * MS)
    assert (row.tpot_ns, row.status) == (250 * MS, "ok")  # 1 s over 4 tokens
    assert failed.status == "error"
    assert (failed.prompt_tokens, failed.output_tokens, failed.ttft_ns, failed.e2e_ns) == (
        None,
        None,
        None,
        None,
    )
    assert (reading.context.clock, row.arrived_at_ns, row.is_benchmark) == ("order", None, True)
    assert "client_token_counts" in reading.note_codes
    assert "canary" not in repr(reading.requests)


def test_damage_is_rejected() -> None:
    reading = read_bytes(LLMPERF, DAMAGED)
    assert reading.rejected == [
        (3, "invalid_field"),
        (5, "invalid_field"),
        (6, "invalid_field"),
        (7, "invalid_field"),
        (8, "invalid_json"),
    ]
    _, negative, endless = reading.requests
    assert (negative.ttft_ns, negative.flags) == (None, ("negative_ttft",))
    assert (endless.ttft_ns, endless.e2e_ns) == (500 * MS, None)


def test_it_is_recognised() -> None:
    assert sniffed(all_formats(), GOOD) == "llmperf"
    assert sniffed(all_formats(), DAMAGED) == "llmperf"
