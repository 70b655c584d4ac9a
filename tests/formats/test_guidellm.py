"""guidellm's reports, new and old: requests by outcome, exact differences of instants."""

from __future__ import annotations

from kvtrace.ingest.formats.guidellm import FORMATS
from kvtrace.ingest.registry import all_formats
from tests.formats.reading import DATA, read_bytes, sniffed

(GUIDELLM,) = FORMATS
GOOD = (DATA / "guidellm" / "good.json").read_bytes()
OLD = (DATA / "guidellm" / "old.json").read_bytes()
DAMAGED = (DATA / "guidellm" / "damaged.json").read_bytes()
MS = 1_000_000


def test_a_report_of_version_2() -> None:
    reading = read_bytes(GUIDELLM, GOOD)
    done, stopped, failed, second = reading.requests
    assert (done.request_id, done.session_id, done.turn) == ("chatcmpl-0", "c-1", 0)
    assert done.arrived_at_ns == 1_780_000_000_250 * MS
    assert (done.prompt_tokens, done.cached_tokens, done.output_tokens) == (1_000, 960, 4)
    assert (done.ttft_ns, done.ttft_from, done.e2e_ns) == (500 * MS, "client", 2_000 * MS)
    assert done.tpot_ns == 500 * MS  # 1.5 s over the 3 tokens after the first
    assert (stopped.status, stopped.cached_tokens, stopped.e2e_ns) == (
        "cancelled",
        None,
        1_000 * MS,
    )
    assert (failed.status, failed.request_id, failed.ttft_ns) == ("error", "g-2", None)
    assert (failed.prompt_tokens, failed.e2e_ns) == (None, 125 * MS)
    assert (second.cached_tokens, second.is_benchmark) == (0, True)
    assert reading.note_codes == {"several_runs"}
    assert reading.context.clock == "utc"
    assert "canary" not in repr(reading.requests)


def test_earlier_names_of_the_first_and_last_token() -> None:
    earlier = GOOD.replace(b"_token_iteration", b"_iteration")
    assert earlier.count(b'"first_iteration"') >= 1
    done = read_bytes(GUIDELLM, earlier).requests[0]
    assert (done.ttft_ns, done.ttft_from, done.tpot_ns) == (500 * MS, "client", 500 * MS)


def test_a_report_without_version() -> None:
    reading = read_bytes(GUIDELLM, OLD)
    done, failed = reading.requests
    assert (done.request_id, done.llm, done.prompt_tokens) == ("r-1", "m-1", 300)
    assert (done.ttft_ns, done.e2e_ns, done.tpot_ns) == (500 * MS, 2_000 * MS, 100 * MS)
    assert (failed.status, failed.ttft_ns, failed.e2e_ns) == ("error", None, 500 * MS)
    assert reading.context.evidence_grade == "L"
    assert reading.note_codes == {"requests_sampled"}
    assert "canary" not in repr(reading.requests)


def test_damage_is_rejected_and_reversed_times_are_unknown() -> None:
    reading = read_bytes(GUIDELLM, DAMAGED)
    assert reading.rejected == [
        (1, "invalid_field"),
        (2, "invalid_field"),
        (4, "invalid_field"),
        (6, "invalid_field"),
        (7, "invalid_json"),
    ]
    assert reading.ignored == {"no_requests": 1}
    (row,) = reading.requests
    assert (row.ttft_ns, row.tpot_ns, row.e2e_ns) == (None, None, 2_000 * MS)
    assert row.flags == ("time_order",)


def test_it_is_recognised_whole_and_by_its_start() -> None:
    for data in (GOOD, OLD, DAMAGED, GOOD[:700], OLD[:900]):
        assert sniffed(all_formats(), data) == "guidellm"
