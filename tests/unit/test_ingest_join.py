"""Joining sources by request id: filled, never added, conflicts counted, reused ids told apart."""

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
    assert "1 have other prompt_tokens, 1 have other output_tokens" in conflict.message
    assert result.frames["requests"]["flags"].to_list() == [["join_conflict"]] * 2


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


def test_an_id_of_one_instant_is_not_told_apart(tmp_path: Path) -> None:
    result = joined(
        tmp_path,
        [trace_row("a"), trace_row("b")],
        [log_row("a", cached_tokens=1), log_row("a", cached_tokens=2), log_row("b")],
    )
    assert result.totals.cached_tokens is None
    assert result.frames["requests"].filter(~pl.col("is_headline")).height == 2
    assert result.frames["requests"]["flags"].to_list()[3] == ["id_conflict"]
    assert "ambiguous_request_ids" in codes(result)


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


def test_a_request_whose_end_another_layer_saw_is_not_open(tmp_path: Path) -> None:
    result = joined(
        tmp_path,
        [trace_row(name, status="open") for name in ("a", "b", "c")],
        [log_row("a", status="ok"), log_row("b", status="cancelled"), log_row("x")],
    )
    rows = result.frames["requests"].filter("is_headline")
    assert rows["status"].to_list() == ["ok", "cancelled", "open"]


def test_flags_are_united_and_benchmark_marks_kept(tmp_path: Path) -> None:
    result = joined(
        tmp_path,
        [trace_row("a", flags=["x"])],
        [log_row("a", flags=["x", "y"], is_benchmark=True)],
    )
    assert result.frames["requests"]["flags"].to_list() == [["x", "y"]]
    assert result.frames["requests"]["is_benchmark"].to_list() == [True]


# Ids that come again


def utc(tmp_path: Path, trace: list[dict[str, object]], log: list[dict[str, object]]) -> Ingested:
    """The same two layers, both with dates."""
    return joined(tmp_path, trace, log, trace_clock="utc")


def test_an_id_that_comes_equally_often_joins_in_order_of_time(tmp_path: Path) -> None:
    # A process that numbers its requests from 0 was started three times. The log has its lines in
    # another order.
    result = utc(
        tmp_path,
        [trace_row("0", at, cached_tokens=None) for at in (1000, 5000, 9000)],
        [log_row("0", at, cached_tokens=n) for at, n in ((9002, 3), (1002, 1), (5002, 2))],
    )
    assert result.frames["requests"]["cached_tokens"].to_list() == [1, 2, 3]
    assert result.sources[1].role == "joined"


def test_where_counts_differ_the_nearest_joins_and_the_rest_stands_beside(tmp_path: Path) -> None:
    # The log was switched on before the second run: 5001 is near 5000, nothing is near 1000. Of
    # 9000 and 9400 the row at 9390 is nearer to the latter, and 9000 is left without.
    result = utc(
        tmp_path,
        [trace_row("0", 1000), trace_row("0", 5000), trace_row("1", 9000), trace_row("1", 9400)],
        [log_row("0", 5001, cached_tokens=2), log_row("1", 9390, cached_tokens=4)],
    )
    assert result.frames["requests"]["cached_tokens"].to_list() == [None, 2, None, 4]


def test_a_reused_id_far_in_time_is_left_apart_and_said(tmp_path: Path) -> None:
    # 601 s are more than the 600 s that a layer may be behind.
    result = utc(
        tmp_path,
        [trace_row("0", 1000), trace_row("0", 5000), trace_row("x", 5000)],
        [log_row("0", 5601, cached_tokens=2), log_row("x", 5000)],
    )
    assert result.totals.cached_tokens is None
    note = next(note for note in result.notes if note.code == "ambiguous_request_ids")
    assert note.message.startswith("1 requests")


def test_equal_counts_of_other_runs_are_not_paired_by_order(tmp_path: Path) -> None:
    # Two occurrences on both sides, but the trace missed the first run and the log the last one:
    # in order of time 5000 would go with 1000. By nearness only 5000 with 5001 is left.
    result = utc(
        tmp_path,
        [trace_row("0", 5000), trace_row("0", 9000)],
        [log_row("0", 1000, cached_tokens=1), log_row("0", 5001, cached_tokens=2)],
    )
    assert result.frames["requests"].filter("is_headline")["cached_tokens"].to_list() == [2, None]


def test_clocks_apart_are_aligned_by_the_ids_that_come_once(tmp_path: Path) -> None:
    # The trace counts from 0, the log is 100 s ahead of it, as three unique ids say; so the one
    # row "r" of the log at 150 is the trace's second "r", at 50.
    result = joined(
        tmp_path,
        [trace_row(name, at) for name, at in (("a", 0), ("b", 1), ("c", 2), ("r", 3), ("r", 1000))],
        [
            *(log_row(name, 100 + at) for name, at in (("a", 0), ("b", 1), ("c", 2))),
            log_row("r", 1101, cached_tokens=7),
        ],
    )
    assert result.frames["requests"]["cached_tokens"].to_list() == [None] * 4 + [7]


def test_ids_of_another_day_are_other_requests(tmp_path: Path) -> None:
    # Counters 0, 1, 2 of two runs, two days apart and at unsteady distances.
    day = 86_400
    result = utc(
        tmp_path,
        [trace_row(str(n), 1000 * n) for n in range(3)],
        [log_row(str(n), 2 * day + 7000 * n, cached_tokens=1) for n in range(3)],
    )
    assert result.totals.cached_tokens is None
    assert "ids_of_another_day" in codes(result)
    assert result.sources[1].role == "beside"


def test_a_steady_shift_of_a_year_is_a_wrong_clock(tmp_path: Path) -> None:
    year = 365 * 86_400
    result = utc(
        tmp_path,
        [trace_row(str(n), 1000 * n) for n in range(3)],
        [log_row(str(n), year + 1000 * n, cached_tokens=1) for n in range(3)],
    )
    assert result.totals.cached_tokens == 3


# Two files of one format that log the same requests


def instances(tmp_path: Path, *files: list[dict[str, object]]) -> Ingested:
    paths = [
        write_rows(tmp_path / f"{number}.log", "log", rows) for number, rows in enumerate(files)
    ]
    return ingest(paths, made_up("log", clock="utc"))


def test_prefill_and_decode_of_the_same_requests_count_once(tmp_path: Path) -> None:
    # Decode comes first by name; prefill knows the cached tokens and ends after one token.
    decode = [
        log_row(i, at + 2, prompt_tokens=10, output_tokens=9, e2e_ns=5 * S)
        for i, at in (("a", 100), ("b", 101), ("c", 109))
    ]
    prefill = [
        log_row(i, at, prompt_tokens=10, cached_tokens=4, output_tokens=1, e2e_ns=S)
        for i, at in (("a", 100), ("b", 101), ("d", 105))
    ]
    result = instances(tmp_path, decode, prefill)
    rows = result.frames["requests"].sort("arrived_at_ns")
    # a and b: from the prefill's arrival to the decode's end, 2 + 5 s. d: prefill only. c: decode.
    assert rows.select("cached_tokens", "output_tokens", "e2e_ns", "is_headline").rows() == [
        (4, 9, 7 * S, True),
        (4, 9, 7 * S, True),
        (4, 1, S, True),
        (None, 9, 5 * S, True),
    ]
    assert rows["arrived_at_ns"].to_list() == [100 * S, 101 * S, 105 * S, 111 * S]
    assert (result.totals.requests, result.totals.cached_tokens) == (4, 12)
    assert [source.role for source in result.sources] == ["headline", "joined"]
    assert not {"id_conflicts", "join_conflicts", "requests_logged_twice"} & set(codes(result))
    assert rows["flags"].to_list() == [[]] * 4


def test_two_pairs_of_instances_are_two_sources(tmp_path: Path) -> None:
    pairs = [
        [log_row(f"{pod}{n}", 100 + n + later, **known) for n in range(3)]
        for pod in "xy"
        for later, known in ((1, {"output_tokens": 8}), (0, {"cached_tokens": 2}))
    ]
    result = instances(tmp_path, *pairs)
    assert [len(source.files) for source in result.sources] == [2, 2]
    totals = result.totals
    assert (totals.requests, totals.cached_tokens, totals.output_tokens) == (6, 12, 48)


def test_the_end_is_unknown_where_only_the_first_instance_saw_one(tmp_path: Path) -> None:
    prefill = [log_row(i, 100, e2e_ns=S, cached_tokens=1) for i in "ab"]
    decode = [log_row(i, 102, status=status) for i, status in (("a", "open"), ("b", "error"))]
    rows = instances(tmp_path, prefill, decode).frames["requests"]
    assert rows.select("e2e_ns", "status").rows() == [(None, "ok"), (None, "error")]


def test_two_halves_are_whole(tmp_path: Path) -> None:
    prefill = [log_row(i, 100, flags=["prefill_half_only"]) for i in "ab"]
    decode = [log_row("a", 101, flags=["decode_half_only", "retracted"])]
    rows = instances(tmp_path, prefill, decode).frames["requests"]
    assert rows["flags"].to_list() == [["retracted"], ["prefill_half_only"]]


def test_ids_that_a_client_counts_anew_are_other_requests(tmp_path: Path) -> None:
    def files(later_s: float, **known: object) -> Ingested:
        first = [log_row(str(n), 100 + n, prompt_tokens=10 + n) for n in range(4)]
        second = [log_row(str(n), 100 + n + later_s, **known) for n in range(4)]
        return instances(tmp_path, first, second)

    assert files(2).totals.requests == 4
    assert files(3600).totals.requests == 8  # an hour later
    assert files(20).totals.requests == 8  # the next run begins when the first has ended
    assert files(2, prompt_tokens=99).totals.requests == 8  # other prompts at the same time
    assert "requests_logged_twice" in codes(files(20))
    assert "requests_logged_twice" not in codes(files(3600))


def test_copied_rows_are_no_second_instance(tmp_path: Path) -> None:
    rows = [log_row(i, 100) for i in "abc"]
    result = instances(tmp_path, rows, [*rows, log_row("d", 101)])
    assert (len(result.sources), result.totals.requests) == (1, 4)
    assert "exact_copies" in codes(result)


# Several layers


def test_tiers_are_filled_from_the_layer_that_knows_them(tmp_path: Path) -> None:
    result = joined(
        tmp_path,
        [trace_row("a", cached_tokens=8)],
        [log_row("a", cached_device_tokens=3, cached_remote_tokens=5)],
    )
    assert result.totals.cached_tiers == {"device": 3, "host": None, "disk": None, "remote": 5}
    assert "join_conflicts" not in codes(result)


def test_no_zero_of_a_tier_where_other_requests_have_no_split(tmp_path: Path) -> None:
    # Of b's 8 tokens 3 lay in HBM; where the other 5 were is not known, so that host is no zero.
    rows = [
        log_row("a", cached_tokens=3, cached_device_tokens=3, cached_host_tokens=0),
        log_row("b", cached_tokens=8, cached_device_tokens=3),
    ]
    result = joined(tmp_path, [trace_row("a"), trace_row("b")], rows)
    assert result.totals.cached_tiers == {"device": 6, "host": None, "disk": None, "remote": None}
    assert result.totals.cached_tokens == 11
    result = joined(tmp_path, [trace_row("a")], rows[:1])
    assert result.totals.cached_tiers == {"device": 3, "host": 0, "disk": None, "remote": None}


def test_the_source_that_saw_a_request_come_dates_it(tmp_path: Path) -> None:
    ended = ["dated_by_end", "x"]
    result = utc(
        tmp_path,
        [trace_row(name, 100, flags=ended) for name in "abcd"],
        [
            log_row("a", 98.5),
            log_row("b", 98.5, flags=["dated_by_end"]),
            log_row("c", 101),  # not before its end: one of the clocks is wrong
            log_row("d", 100 - 3600),  # another zone
        ],
    )
    rows = result.frames["requests"].sort("arrived_at_ns", "request_key")
    assert rows["arrived_at_ns"].to_list() == [98_500_000_000, *[100_000_000_000] * 3]
    assert rows["flags"].to_list() == [["x"], ended, ended, ended]
    result = utc(tmp_path, [trace_row("a", 99)], [log_row("a", 100, flags=ended)])
    row = result.frames["requests"].row(0, named=True)
    assert (row["arrived_at_ns"], row["flags"]) == (99_000_000_000, ["x"])


def test_a_split_above_the_total_is_a_conflict_and_not_taken(tmp_path: Path) -> None:
    # a: 3 + 6 > 8 cached. b: cached 11 > 10 prompt. c: a part below the total is no conflict.
    result = joined(
        tmp_path,
        [trace_row("a", cached_tokens=8), trace_row("b"), trace_row("c", cached_device_tokens=4)],
        [
            log_row("a", cached_device_tokens=3, cached_remote_tokens=6),
            log_row("b", cached_tokens=11, output_tokens=2),
            log_row("c", cached_tokens=9),
        ],
    )
    rows = result.frames["requests"]
    assert rows["cached_device_tokens"].to_list() == [None, None, 4]
    assert rows["cached_remote_tokens"].to_list() == [None, None, None]
    assert rows["cached_tokens"].to_list() == [8, None, 9]
    assert rows["output_tokens"].to_list() == [None, 2, None]
    assert rows["flags"].to_list() == [["join_conflict"], ["join_conflict"], []]
    note = next(note for note in result.notes if note.code == "join_conflicts")
    assert "2 would have more cached than there is" in note.message


def test_a_layer_joins_through_the_ids_of_another_one(tmp_path: Path) -> None:
    # The trace and the router name the call; the engine and the KV layer say it with a suffix.
    # Grade B (the router) goes before L; the KV layer, read first, shares no id with the trace
    # until the engine has joined.
    paths = [
        write_rows(tmp_path / "1", "kv", [log_row("c-1a2b3c4d-0a0b0c0d", cached_host_tokens=2)]),
        write_rows(tmp_path / "2", "engine", [log_row("c-1a2b3c4d", queue_ns=5)]),
        write_rows(tmp_path / "3", "router", [log_row("c", cached_tokens=6)]),
        write_rows(tmp_path / "4", "trace", [trace_row("c")]),
    ]
    formats = [made_up(name) for name in ("kv", "engine", "router")]
    result = ingest(paths, *formats, made_up("trace", block_size=10))
    row = result.frames["requests"].row(0, named=True)
    assert len(result.frames["requests"]) == 1
    assert (row["cached_tokens"], row["cached_host_tokens"], row["queue_ns"]) == (6, 2, 5)
    roles = {source.format: source.role for source in result.sources}
    assert roles == {"trace": "headline", "router": "joined", "engine": "joined", "kv": "joined"}


def test_the_better_grade_fills_first(tmp_path: Path) -> None:
    paths = [
        write_rows(tmp_path / "1", "lengths", [log_row("c", llm="l", prompt_tokens=10)]),
        write_rows(tmp_path / "2", "hits", [log_row("c", llm="b", cached_tokens=6)]),
        write_rows(tmp_path / "3", "trace", [trace_row("c")]),
    ]
    result = ingest(paths, made_up("lengths"), made_up("hits"), made_up("trace", block_size=10))
    assert result.frames["requests"]["llm"].to_list() == ["b"]
