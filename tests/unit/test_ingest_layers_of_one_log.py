"""Sources that wrote into one log, and calls against their children; sources built by hand."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
import pytest

from kvtrace.ingest.columns import FILE_KEY_STEP, RowCollector
from kvtrace.ingest.contract import ReadContext, RequestRow, Tally
from kvtrace.ingest.hashing import KeyedHasher
from kvtrace.ingest.joining.join import join_sources
from kvtrace.ingest.joining.request_ids import call_id, without_suffix
from kvtrace.ingest.request_columns import CALL_ID, COPY_DIGEST, STRIPPED_ID
from kvtrace.ingest.sources import FileRead, Source
from kvtrace.schema.manifest import Clock, FileEntry, Grade
from tests.unit.ingest_formats import SALT, made_up

HASHER = KeyedHasher(SALT)
Row = dict[str, object]


def entry(file_id: int) -> FileEntry:
    return FileEntry(
        file_id=file_id,
        path=f"{file_id}.log",
        format="made up",
        format_reason="",
        evidence_grade=None,
        compression="none",
        byte_size=1,
        content_digest="",
        rows_in=0,
        kept=0,
        rejected=0,
        blank=0,
        used=0,
        ignored=0,
    )


def source(
    number: int,
    name: str,
    grade: Grade,
    rows: Sequence[Row],
    *,
    file_id: int = 0,
    clock: Clock = "utc",
) -> Source:
    """A source whose rows stand in one file; offsets are far from those of other sources."""
    collector = RowCollector(file_id, HASHER)
    for place, fields in enumerate(rows):
        collector.add(
            RequestRow(offset=1000 * number + place, line=place + 1, **fields),  # type: ignore[arg-type]
            None,
        )
    context = ReadContext(path=f"{file_id}.log", tally=Tally(), modified_at_ns=0, clock=clock)
    read = FileRead(entry(file_id), made_up(name), context, collector.finish(clock))
    assert read.rows is not None
    ids = [row.get("request_id") for row in rows]
    calls = [call_id(one) if isinstance(one, str) else None for one in ids]
    keys = [None if one is None else HASHER.text_key("request", one) for one in calls]
    frame = read.rows.requests.with_columns(
        pl.lit(number, dtype=pl.Int32).alias("source_id"),
        pl.Series(CALL_ID, keys, dtype=pl.UInt64),
    )
    return Source(
        source_id=number,
        format=made_up(name),
        files=[read],
        requests=frame,
        grade=grade,
        clock=clock,
        clock_resolution_ns=None,
        own_requests=len(frame),
    )


def codes(*sources: Source) -> set[str]:
    return {code for one in sources for code, _ in one.notes}


# One log


def test_requests_that_the_better_layer_did_not_see_are_rows_too() -> None:
    # vLLM logs all three requests, LMCache looked two of them up.
    kv = source(0, "lmcache", "B", [{"request_id": f"r{n}", "cached_tokens": n} for n in (1, 2)])
    engine = source(
        1,
        "vllm",
        "L",
        [
            {"request_id": f"r{n}", "prompt_tokens": 10 * n, "status": status}
            for n, status in ((1, "ok"), (2, "ok"), (3, "cancelled"))
        ],
    )
    join_sources(kv, [kv, engine])
    rows = kv.requests.select("prompt_tokens", "cached_tokens", "status", "source_id")
    assert rows.rows() == [(10, 1, "ok", 0), (20, 2, "ok", 0), (30, None, "cancelled", 1)]
    assert engine.requests.is_empty()
    assert engine.role == "joined"
    assert "rows_of_another_layer" in codes(kv)
    assert "unmatched_requests" not in codes(engine)


def test_a_third_layer_fills_the_rows_of_the_second() -> None:
    kv = source(0, "lmcache", "B", [{"request_id": "r1", "cached_tokens": 1}])
    engine = source(1, "vllm", "L", [{"request_id": f"r{n}", "turn": n} for n in (1, 2)])
    router = source(2, "router", "L", [{"request_id": "r2", "queue_ns": 5}], file_id=1)
    join_sources(kv, [kv, engine, router])
    assert kv.requests["queue_ns"].to_list() == [None, 5]


def test_rows_of_another_file_stand_beside() -> None:
    kv = source(0, "lmcache", "B", [{"request_id": "r1", "cached_tokens": 1}])
    engine = source(1, "vllm", "L", [{"request_id": f"r{n}"} for n in (1, 2)], file_id=1)
    join_sources(kv, [kv, engine])
    assert len(kv.requests) == 1
    assert "unmatched_requests" in codes(engine)


def test_layers_that_name_requests_in_two_ways_are_not_added() -> None:
    # One id in common of four: the other three may be the same requests under other names.
    front = source(0, "front", "B", [{"request_id": f"f{n}", "cached_tokens": 1} for n in range(4)])
    engine = source(1, "vllm", "L", [{"request_id": one} for one in ("f0", "e1", "e2", "e3")])
    join_sources(front, [front, engine])
    assert len(front.requests) == 4
    assert len(engine.requests) == 3


def test_rows_without_an_id_stand_beside() -> None:
    kv = source(0, "lmcache", "B", [{"request_id": "r1", "cached_tokens": 1}])
    engine = source(1, "vllm", "L", [{"request_id": "r1"}, {"prompt_tokens": 5}])
    join_sources(kv, [kv, engine])
    assert len(kv.requests) == 1
    assert engine.requests["prompt_tokens"].to_list() == [5]


def test_rows_whose_id_cannot_be_told_apart_are_not_appended() -> None:
    kv = source(
        0,
        "lmcache",
        "B",
        [
            {"request_id": "r1", "cached_tokens": 1, "arrived_at_ns": 0},
            {"request_id": "r2", "cached_tokens": 1, "arrived_at_ns": 0},
        ],
    )
    engine = source(
        1, "vllm", "L", [{"request_id": one, "arrived_at_ns": 0} for one in ("r1", "r2", "r2")]
    )
    join_sources(kv, [kv, engine])
    assert len(kv.requests) == 2
    assert len(engine.requests) == 2
    assert "ambiguous_request_ids" in codes(engine)


@pytest.mark.parametrize(("hours", "rows"), [(0, 2), (8, 1)])
def test_rows_on_a_clock_of_another_zone_are_not_mixed_in(hours: int, rows: int) -> None:
    # One layer prints UTC, the other local time without a zone.
    at = 10**18
    kv = source(
        0, "kvbm", "B", [{"request_id": "r1", "cached_tokens": 1, "arrived_at_ns": at + 10**9}]
    )
    local = at + hours * 3600 * 10**9
    engine = source(
        1,
        "vllm",
        "L",
        [{"request_id": f"r{n}", "arrived_at_ns": local + n} for n in (1, 2)],
        clock="naive",
    )
    join_sources(kv, [kv, engine])
    assert len(kv.requests) == rows


def test_rows_appended_before_the_clock_is_taken_keep_their_place() -> None:
    # The headline's clock is mere order; a dated router knows both requests.
    kv = source(0, "lmcache", "B", [{"request_id": "r2", "cached_tokens": 1}], clock="order")
    engine = source(1, "vllm", "L", [{"request_id": f"r{n}"} for n in (2, 1)], clock="order")
    router = source(
        2,
        "router",
        "L",
        [{"request_id": "r1", "arrived_at_ns": 7}, {"request_id": "r2", "arrived_at_ns": 9}],
        file_id=1,
    )
    join_sources(kv, [kv, engine, router])
    assert kv.requests["arrived_at_ns"].to_list() == [9, 7]
    assert kv.clock == "utc"


# Calls and children


def test_children_take_from_their_call_what_they_have_in_common() -> None:
    children: list[Row] = [{"request_id": f"cmpl-x-{n}", "prompt_tokens": 5} for n in range(2)]
    engine = source(0, "engine", "B", [{**row, "cached_tokens": 1} for row in children])
    call: Row = {"request_id": "cmpl-x", "prompt_tokens": 10, "tenant": "t", "output_tokens": 9}
    gateway = source(1, "gateway", "L", [call], file_id=1)
    join_sources(engine, [engine, gateway])
    assert engine.requests["prompt_tokens"].to_list() == [5, 5]
    assert engine.requests["output_tokens"].to_list() == [None, None]
    assert engine.requests["tenant_key"].null_count() == 0
    assert gateway.requests.is_empty()
    assert "join_conflicts" not in codes(engine)
    assert "joined_calls" in codes(engine)


@pytest.mark.parametrize("names", [("0_x", "1_x"), ("x-0-1a2b3c4d", "x-1-0a0b0c0d")])
def test_a_call_gets_the_outputs_of_its_children_added_up(names: tuple[str, str]) -> None:
    gateway = source(0, "gateway", "B", [{"request_id": "x", "cached_tokens": 1}])
    rows = [
        {"request_id": one, "output_tokens": 3, "prompt_tokens": 7, "ttft_ns": 5} for one in names
    ]
    engine = source(1, "engine", "L", rows, file_id=1)
    join_sources(gateway, [gateway, engine])
    row = gateway.requests.row(0, named=True)
    assert (row["output_tokens"], row["prompt_tokens"], row["ttft_ns"]) == (6, None, None)
    assert engine.requests.is_empty()


def test_an_unknown_output_of_a_child_leaves_the_sum_unknown() -> None:
    gateway = source(0, "gateway", "B", [{"request_id": "x", "cached_tokens": 1}])
    rows: list[Row] = [{"request_id": "0_x", "output_tokens": 3}, {"request_id": "1_x"}]
    join_sources(gateway, [gateway, source(1, "engine", "L", rows, file_id=1)])
    assert gateway.requests["output_tokens"].to_list() == [None]


def test_a_call_with_one_child_is_that_request() -> None:
    gateway = source(0, "gateway", "B", [{"request_id": "cmpl-x", "cached_tokens": 1}])
    engine = source(1, "engine", "L", [{"request_id": "cmpl-x-0", "prompt_tokens": 7}], file_id=1)
    join_sources(gateway, [gateway, engine])
    assert gateway.requests["prompt_tokens"].to_list() == [7]


def test_a_name_that_ends_in_a_number_is_no_child_where_nobody_names_the_call() -> None:
    ours = source(0, "a", "B", [{"request_id": f"req-{n}", "cached_tokens": 1} for n in (1, 2)])
    theirs = source(1, "b", "L", [{"request_id": f"req-{n}"} for n in (3, 4)], file_id=1)
    join_sources(ours, [ours, theirs])
    assert len(theirs.requests) == 2


@pytest.mark.parametrize(
    ("name", "suffix", "call"),
    [
        ("chatcmpl-x", None, None),
        ("chatcmpl-x-1a2b3c4d", "chatcmpl-x", "chatcmpl-x"),
        ("cmpl-x-0", None, "cmpl-x"),
        ("cmpl-x-12-1a2b3c4d", "cmpl-x-12", "cmpl-x"),
        ("1_chatcmpl-x-1a2b3c4d", "1_chatcmpl-x", "chatcmpl-x"),
        ("0_cmpl-x-3", None, "cmpl-x"),
        ("12345", None, None),
        ("-0a0b0c0d", None, None),
        ("0_", None, None),
        ("12345_x", None, None),
        ("x-١", None, None),
    ],
)
def test_names_of_children(name: str, suffix: str | None, call: str | None) -> None:
    assert without_suffix(name) == suffix
    expected = call if call != suffix else None
    assert call_id(name) == expected


def test_helper_columns_are_those_of_the_collector() -> None:
    frame = source(0, "a", "B", [{"request_id": "x-1a2b3c4d"}]).requests
    assert {COPY_DIGEST, STRIPPED_ID} <= set(frame.columns)
    assert frame["request_key"].to_list() == [0 * FILE_KEY_STEP]
