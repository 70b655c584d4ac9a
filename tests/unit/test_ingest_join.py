"""Joining sources by request id: filled, never added, conflicts counted."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from kvtrace.ingest.pipeline import Ingested
from kvtrace.schema.manifest import Clock
from tests.unit.ingest_formats import ingest, made_up, write_rows

S = 1_000_000_000


def joined(
    tmp_path: Path,
    trace: list[dict[str, object]],
    log: list[dict[str, object]],
    *,
    trace_clock: Clock = "relative",
    trace_step_ns: int | None = None,
    log_step_ns: int | None = None,
) -> Ingested:
    """A trace with blocks (grade A, headline) beside an engine log."""
    return ingest(
        [write_rows(tmp_path / "a.trace", "trace", trace), write_rows(tmp_path / "b", "log", log)],
        made_up("trace", clock=trace_clock, block_size=10, resolution_ns=trace_step_ns),
        made_up("log", clock="utc", resolution_ns=log_step_ns),
    )


def trace_row(request_id: str, at_s: float = 0, **fields: object) -> dict[str, object]:
    row = {"request_id": request_id, "arrived_at_ns": int(at_s * S), "prompt_tokens": 10}
    return {**row, "block_keys": [1], **fields}


def log_row(request_id: str, at_s: float = 100, **fields: object) -> dict[str, object]:
    return {"request_id": request_id, "arrived_at_ns": int(at_s * S), **fields}


def codes(result: Ingested) -> list[str]:
    return [note.code for note in result.notes]


def test_nulls_are_filled_and_known_values_kept(tmp_path: Path) -> None:
    result = joined(
        tmp_path,
        [trace_row("a", output_tokens=3), trace_row("b", llm="own")],
        [
            log_row("a", output_tokens=9, cached_tokens=4, llm="m", ttft_ns=5, ttft_from="arrival"),
            log_row("b", prompt_tokens=11, llm="m"),
        ],
    )
    rows = result.frames["requests"].select(
        "prompt_tokens", "output_tokens", "cached_tokens", "llm", "ttft_ns", "ttft_from"
    )
    assert rows.rows() == [(10, 3, 4, "m", 5, "arrival"), (10, None, None, "own", None, None)]
    assert result.totals.requests == 2
    assert (result.totals.cached_tokens, result.totals.cached_known_requests) == (4, 1)
    assert [(source.role, source.requests) for source in result.sources] == [
        ("headline", 2),
        ("joined", 2),
    ]
    conflict = next(note for note in result.notes if note.code == "join_conflicts")
    assert conflict.message.startswith("1 requests have other prompt tokens")


def test_file_counts_stay_when_rows_are_merged(tmp_path: Path) -> None:
    result = joined(tmp_path, [trace_row("a")], [log_row("a")])
    assert [(entry.rows_in, entry.used, entry.ignored) for entry in result.files] == [(2, 1, 1)] * 2


def test_unmatched_rows_stand_beside(tmp_path: Path) -> None:
    result = joined(tmp_path, [trace_row("a")], [log_row("a"), log_row("x", prompt_tokens=7)])
    assert result.frames["requests"]["is_headline"].to_list() == [True, False]
    assert result.totals.prompt_tokens == 10
    assert result.sources[1].role == "joined"
    assert "unmatched_requests" in codes(result)


def test_few_matches_fill_but_do_not_make_the_source_joined(tmp_path: Path) -> None:
    others = [log_row(f"x{number}") for number in range(3)]
    result = joined(tmp_path, [trace_row("a")], [log_row("a", cached_tokens=1), *others])
    assert result.sources[1].role == "beside"
    assert result.totals.cached_tokens == 1
    assert len(result.frames["requests"]) == 4


def test_ids_that_are_not_unique_do_not_join(tmp_path: Path) -> None:
    result = joined(
        tmp_path,
        [trace_row("a"), trace_row("b")],
        [log_row("a", cached_tokens=1), log_row("a", cached_tokens=2), log_row("b")],
    )
    assert result.totals.cached_tokens is None
    assert result.frames["requests"].filter(~pl.col("is_headline")).height == 2
    assert result.frames["requests"]["flags"].to_list()[3] == ["id_conflict"]


def test_vllm_suffix_is_stripped_only_where_the_plain_id_exists(tmp_path: Path) -> None:
    result = joined(
        tmp_path,
        [trace_row("chatcmpl-1"), trace_row("c-0a1b2c3d"), trace_row("d")],
        [
            log_row("chatcmpl-1-1a2b3c4d", cached_tokens=1),
            log_row("c-0a1b2c3d", cached_tokens=2),
            log_row("d-notahex1", cached_tokens=4),
        ],
    )
    assert result.frames["requests"]["cached_tokens"].to_list() == [1, 2, None, 4]
    assert result.totals.cached_tokens == 3


def test_suffix_is_stripped_on_the_headline_side_too(tmp_path: Path) -> None:
    result = joined(tmp_path, [trace_row("a-1a2b3c4d")], [log_row("a", cached_tokens=1)])
    assert result.totals.cached_tokens == 1


def test_no_common_id_leaves_the_source_beside(tmp_path: Path) -> None:
    result = joined(tmp_path, [trace_row("a")], [log_row("b", prompt_tokens=5)])
    assert result.sources[1].role == "beside"
    assert result.totals.prompt_tokens == 10
    assert "stands_beside" in codes(result)


def test_absolute_clock_of_the_joined_source_dates_the_headline(tmp_path: Path) -> None:
    # The trace counts in steps of 3 s, so the finer log gives the arrivals; `c` has no partner and
    # keeps its distance: median shift (100.5 - 0, 103 - 3) = 100.25 s after the start.
    result = joined(
        tmp_path,
        [trace_row("a", 0), trace_row("b", 3), trace_row("c", 6)],
        [log_row("a", 100.5), log_row("b", 103)],
        trace_step_ns=3 * S,
        log_step_ns=1000,
    )
    rows = result.frames["requests"]
    assert rows["arrived_at_ns"].to_list() == [int(100.5 * S), 103 * S, int(106.25 * S)]
    assert rows["clock"].to_list() == ["utc"] * 3
    assert result.sources[0].clock == "utc"
    assert "clock_from_joined_source" in codes(result)


def test_finer_relative_clock_is_kept_and_only_shifted(tmp_path: Path) -> None:
    result = joined(
        tmp_path,
        [trace_row("a", 0), trace_row("b", 0.25), trace_row("c", 2.5)],
        [log_row("a", 100), log_row("b", 100), log_row("c", 102)],
        trace_step_ns=1_000_000,
        log_step_ns=S,
    )  # shifts 100, 99.75, 99.5: median 99.75
    assert result.frames["requests"]["arrived_at_ns"].to_list() == [
        int(99.75 * S),
        100 * S,
        int(102.25 * S),
    ]


def test_headline_of_mere_order_is_dated_where_it_can_be(tmp_path: Path) -> None:
    result = joined(
        tmp_path,
        [trace_row("a"), trace_row("b"), trace_row("c")],
        [log_row("a", 100), log_row("c", 90)],
        trace_clock="order",
    )
    assert result.frames["requests"]["arrived_at_ns"].to_list() == [100 * S, None, 90 * S]
    # Dense ids follow the dates: c, a, then b without one.
    assert result.domains[0].block_refs == 3


def test_undated_matches_do_not_date_the_headline(tmp_path: Path) -> None:
    result = joined(
        tmp_path,
        [trace_row("a", 0), trace_row("b", 1)],
        [log_row("a", 100), {"request_id": "b"}],
    )
    assert result.frames["requests"]["clock"].to_list() == ["relative"] * 2


def test_failure_seen_by_the_engine_beats_a_trace_that_knows_no_status(tmp_path: Path) -> None:
    result = joined(
        tmp_path,
        [trace_row("a"), trace_row("b"), trace_row("c")],
        [log_row("a", status="error"), log_row("b", status="open"), log_row("c", status="ok")],
    )
    assert result.frames["requests"]["status"].to_list() == ["error", "ok", "ok"]


def test_flags_are_united_and_benchmark_marks_kept(tmp_path: Path) -> None:
    result = joined(
        tmp_path,
        [trace_row("a", flags=["x"])],
        [log_row("a", flags=["x", "y"], is_benchmark=True)],
    )
    assert result.frames["requests"]["flags"].to_list() == [["x", "y"]]
    assert result.frames["requests"]["is_benchmark"].to_list() == [True]
