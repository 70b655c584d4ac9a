"""Sampled logs are recognised by their evidence; whole ones are not accused."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from kvtrace.ingest.pipeline import Ingested
from kvtrace.ingest.sampling.detect import LogTables, Sampling, detect_sampling
from kvtrace.reuse.facts import build_reuse
from kvtrace.schema.tables import BLOCKS, KEYS, REQUESTS, SAMPLES
from kvtrace.synth.generate import SynthRequest, generate
from kvtrace.synth.profile import sample_profile
from kvtrace.units import NS_PER_MS, NS_PER_S
from tests.unit.ingest_formats import ingest, made_up, write_rows

Row = dict[str, Any]
Keep = Callable[[SynthRequest], bool]


@cache
def served() -> tuple[SynthRequest, ...]:
    """A synthetic service of about 1 800 requests: chats and agents with shared roots."""
    return generate(sample_profile(7)).requests


def trace(
    keep: Keep = lambda _: True, *, sessions: bool = False, numbered: bool = True
) -> list[Row]:
    """Rows of the kept requests; block ids count up by first appearance among *all* requests."""
    names: dict[int, int] = {}
    rows: list[Row] = []
    for one in served():
        ids = [names.setdefault(block, len(names)) for block in one.block_ids]
        if not keep(one):
            continue
        row: Row = {
            "request_id": one.request_id,
            "arrived_at_ns": one.arrived_at_ns,
            "prompt_tokens": one.prompt_tokens,
            "output_tokens": one.output_tokens,
            "block_keys": ids if numbered else [2**63 + (7919 * block) % 2**40 for block in ids],
        }
        if sessions:
            row |= {"session_id": str(one.session), "turn": one.turn}
        rows.append(row)
    return rows


def some(share: float, seed: int = 1) -> Keep:
    """Requests drawn one by one."""
    draws = random.Random(seed)
    return lambda _: draws.random() < share


def whole_sessions(share: float, seed: int = 3) -> Keep:
    """Sessions drawn, with all their requests."""
    return lambda one: random.Random(f"{seed} {one.session}").random() < share


def read(folder: Path, rows: Iterable[Row]) -> Ingested:
    return ingest([write_rows(folder / "t", "t", rows)], made_up("t", block_size=64))


def detect(result: Ingested, **more: Any) -> Sampling:
    tables: dict[str, Any] = {
        "requests": result.frames["requests"].filter("is_headline"),
        "samples": result.frames["samples"],
        "blocks": result.frames["blocks"],
        "keys": result.frames["keys"],
        "domains": result.domains,
    }
    return detect_sampling(LogTables(**(tables | more)))


def reuse_of(result: Ingested) -> float:
    facts = build_reuse(result.frames["requests"], result.frames["blocks"], result.domains)
    return int(facts.filter("is_reusable")["token_count"].sum()) / (
        result.totals.prompt_tokens or 1
    )


# What sampling does to reuse


def test_missing_requests_take_reuse_away_and_missing_sessions_do_not(tmp_path: Path) -> None:
    # The shape of what was measured on a public trace: 0.374 reads 0.27 at one request in two and
    # 0.05 at one in a hundred, and stays at 0.37 to 0.39 where whole sessions are kept.
    true = reuse_of(read(tmp_path, trace()))
    half = reuse_of(read(tmp_path, trace(some(0.5))))
    hundredth = reuse_of(read(tmp_path, trace(some(0.01))))
    sessions = reuse_of(read(tmp_path, trace(whole_sessions(0.5))))
    assert true > half > hundredth
    assert half < 0.95 * true
    assert hundredth < 0.5 * true
    assert abs(sessions - true) < 0.03


# Evidence of blocks


@pytest.mark.parametrize("start", [0, 400, 1000])
def test_a_log_that_begins_in_the_middle_is_not_sampled(tmp_path: Path, start: int) -> None:
    assert detect(read(tmp_path, trace()[start : start + 700])).kind == "none"


@pytest.mark.parametrize(("share", "least", "most"), [(0.5, 0.4, 0.7), (0.1, 0.05, 0.25)])
def test_numbers_of_missing_requests_give_sampling_away(
    tmp_path: Path, share: float, least: float, most: float
) -> None:
    found = detect(read(tmp_path, trace(some(share))))
    assert found.kind == "requests"
    assert found.is_biased
    assert found.kept_share is not None
    assert least < found.kept_share < most
    assert [note.code for note in found.notes()] == ["sampling_bias"]
    assert found.notes()[0].severity == "warning"


def test_lost_reuse_makes_up_for_what_sampling_took(tmp_path: Path) -> None:
    """Blocks that a missing request had computed are reuse: both shares add up to the true one."""
    true = reuse_of(read(tmp_path, trace()))
    result = read(tmp_path, trace(some(0.5)))
    found = detect(result)
    assert found.lost_reuse_share is not None
    assert abs(reuse_of(result) + found.lost_reuse_share - true) < 0.05


def test_missing_sessions_are_said_and_not_called_biased(tmp_path: Path) -> None:
    found = detect(read(tmp_path, trace(whole_sessions(0.5))))
    assert found.kind == "sessions"
    assert not found.is_biased
    assert [note.code for note in found.notes()] == ["session_sampled"]


def test_hashes_are_no_numbers(tmp_path: Path) -> None:
    assert detect(read(tmp_path, trace(some(0.5), numbered=False))).kind == "none"


def test_shuffled_numbers_are_no_evidence(tmp_path: Path) -> None:
    rows = trace()
    for row in rows:
        row["block_keys"] = [(block * 7919) % 100_003 for block in row["block_keys"]]
    assert detect(read(tmp_path, rows)).kind == "none"


def test_hits_that_no_logged_request_explains(tmp_path: Path) -> None:
    # The engine's cache held what all requests brought; the log has every tenth request.
    full = read(tmp_path, trace(numbered=False))
    facts = build_reuse(full.frames["requests"], full.frames["blocks"], full.domains)
    hits = facts.filter("is_reusable").group_by("request_key").agg(pl.col("token_count").sum())
    keyed = full.frames["requests"].select("request_key").join(hits, on="request_key", how="left")
    cached = keyed.sort("request_key")["token_count"].fill_null(0).to_list()
    rows = [
        {**row, "cached_tokens": n} for row, n in zip(trace(numbered=False), cached, strict=True)
    ]
    assert detect(read(tmp_path, rows)).kind == "none"
    found = detect(read(tmp_path, rows[::5]))
    assert found.kind == "requests"
    assert "belong to no earlier request" in found.evidence[0]


# Evidence of sessions


@pytest.mark.parametrize(("share", "kind"), [(1.0, "none"), (0.5, "requests"), (0.2, "requests")])
def test_turns_that_are_missing(tmp_path: Path, share: float, kind: str) -> None:
    found = detect(read(tmp_path, trace(some(share), sessions=True, numbered=False)))
    assert found.kind == kind
    if share < 1:
        assert found.kept_share == pytest.approx(share, abs=0.1)


def test_whole_sessions_miss_no_turn(tmp_path: Path) -> None:
    rows = trace(whole_sessions(0.3), sessions=True, numbered=False)
    assert detect(read(tmp_path, rows)).kind == "none"


def test_turns_that_count_messages_go_in_steps_of_two(tmp_path: Path) -> None:
    rows = trace(sessions=True, numbered=False)
    assert detect(read(tmp_path, [{**row, "turn": 2 * row["turn"]} for row in rows])).kind == "none"


def conversations(count: int, turns: int) -> list[Row]:
    """Interleaved conversations, one turn a minute, each naming the request before it."""
    return [
        {
            "request_id": f"{chat}.{turn}",
            "parent_id": f"{chat}.{turn - 1}" if turn else None,
            "arrived_at_ns": (60 * (chat + turn) + chat % 7) * NS_PER_S,
            "prompt_tokens": 10,
        }
        for chat in range(count)
        for turn in range(turns)
    ]


def test_parents_that_are_missing(tmp_path: Path) -> None:
    rows = conversations(100, 6)
    assert detect(read(tmp_path, rows)).kind == "none"
    draws = random.Random(4)
    found = detect(read(tmp_path, [row for row in rows if draws.random() < 0.5]))
    assert found.kind == "requests"
    assert found.kept_share == pytest.approx(0.5, abs=0.1)


def test_parents_before_the_log_are_not_missing(tmp_path: Path) -> None:
    # 300 conversations overlap its beginning; all of them began before it.
    rows = conversations(300, 20)
    start = 60 * 150 * NS_PER_S
    assert detect(read(tmp_path, [r for r in rows if r["arrived_at_ns"] >= start])).kind == "none"


def test_parents_of_which_none_is_there_are_other_names(tmp_path: Path) -> None:
    rows = [{**row, "parent_id": f"trajectory {row['parent_id']}"} for row in conversations(50, 4)]
    assert detect(read(tmp_path, rows)).kind == "none"


# Counters of the engine


def counters(
    values: Sequence[float], *, metric: str = "finished_requests", engine: str | None = None
) -> pl.DataFrame:
    """One value a minute, from the epoch on."""
    rows = [
        {
            "sample_key": number,
            "source_id": 1,
            "observed_at_ns": 60 * (number + 1) * NS_PER_S,
            "clock": "utc",
            "engine": engine,
            "metric": metric,
            "value": float(value),
            "unit": "requests",
            "window": "interval",
            "window_ns": 60 * NS_PER_S,
        }
        for number, value in enumerate(values)
    ]
    return pl.DataFrame(rows, schema=SAMPLES.polars_schema())


def every(seconds: float, count: int, **fields: Any) -> list[Row]:
    return [
        {"request_id": str(n), "arrived_at_ns": round(n * seconds * NS_PER_S), **fields}
        for n in range(count)
    ]


@pytest.mark.parametrize(("a_minute", "kind"), [(30, "none"), (33, "none"), (60, "requests")])
def test_engine_counted_more_requests_than_there_are(
    tmp_path: Path, a_minute: int, kind: str
) -> None:
    # 601 rows in 20 minutes are 30 a minute.
    result = read(tmp_path, every(2, 601))
    found = detect(result, samples=counters([a_minute] * 20))
    assert found.kind == kind
    if kind != "none":
        assert found.kept_share == pytest.approx(0.5, abs=0.01)


def test_tokens_that_the_engine_counted(tmp_path: Path) -> None:
    result = read(tmp_path, every(2, 601, prompt_tokens=100))
    samples = counters([9000] * 20, metric="prompt_tokens")
    assert detect(result, samples=samples).kept_share == pytest.approx(1 / 3, abs=0.01)


def test_counters_of_several_engines_are_added_and_their_sum_is_not(tmp_path: Path) -> None:
    result = read(tmp_path, every(2, 601))
    engines = [counters([30] * 20, engine=f"Engine 00{n}") for n in range(2)]
    assert detect(result, samples=pl.concat(engines)).kept_share == pytest.approx(0.5, abs=0.01)
    total = counters([30] * 20, engine="2 Engines Aggregated")
    halves = [counters([15] * 20, engine=f"Engine 00{n}") for n in range(2)]
    assert detect(result, samples=pl.concat([total, *halves])).kind == "none"


def test_counters_of_a_short_time_or_another_clock_say_nothing(tmp_path: Path) -> None:
    result = read(tmp_path, every(2, 601))
    assert detect(result, samples=counters([90] * 5)).kind == "none"
    other = counters([90] * 20).with_columns(pl.lit("relative").alias("clock"))
    assert detect(result, samples=other).kind == "none"


def test_a_part_with_whole_sessions_is_sampled_by_session(tmp_path: Path) -> None:
    rows = trace(whole_sessions(0.5), sessions=True, numbered=False)
    span_minutes = 70
    samples = counters([len(served()) / span_minutes] * span_minutes)
    found = detect(read(tmp_path, rows), samples=samples)
    assert found.kind == "sessions"
    assert found.kept_share == pytest.approx(len(rows) / len(served()), abs=0.1)


# Slow-only logs


def timed(times_ms: Iterable[float]) -> list[Row]:
    return [
        {"request_id": str(n), "e2e_ns": round(ms * NS_PER_MS)} for n, ms in enumerate(times_ms)
    ]


def spread_ms(count: int) -> list[float]:
    """Log-normal, median 2 s."""
    draws = random.Random(5)
    return [2000 * draws.lognormvariate(0, 0.8) for _ in range(count)]


@pytest.mark.parametrize("edge", [1000, 2000, 5000])
def test_a_sharp_edge_at_a_round_time_is_slow_only(tmp_path: Path, edge: int) -> None:
    found = detect(read(tmp_path, timed(ms for ms in spread_ms(5000) if ms >= edge)))
    assert found.kind == "slow_only"
    assert f"{edge:,} ms" in found.evidence[0]


@pytest.mark.parametrize(
    "times",
    [
        spread_ms(5000),
        [1003 + n % 7 for n in range(500)],  # equal requests
        [1000 * (1 + n % 9) for n in range(900)],  # a clock of whole seconds
        [ms for ms in spread_ms(5000) if ms >= 1234],  # no round edge
        [1001.0, *(3000 + ms for ms in spread_ms(500))],  # one fast request
        [1000 + n for n in range(99)],  # too few
    ],
)
def test_other_fastest_requests_are_no_edge(tmp_path: Path, times: list[float]) -> None:
    assert detect(read(tmp_path, timed(times))).kind == "none"


def test_a_stated_threshold_is_slow_only(tmp_path: Path) -> None:
    result = read(tmp_path, timed([1.0, 2.0]))
    found = detect(result, facts={"slow_log_threshold_ms": 500})
    assert found.kind == "slow_only"
    assert "latencies are those of slow requests" in found.notes()[0].message


# What logs and readers state


@pytest.mark.parametrize(
    ("facts", "codes", "kind", "kept"),
    [
        ({"sampling_rate": 0.1}, (), "requests", 0.1),
        ({"sampling_rate": 1.0}, (), "none", None),
        ({"sampling_rate": "all"}, (), "none", None),
        ({"session_sampling_rate": 0.1}, (), "sessions", 0.1),
        ({}, ("ray_deduplicates",), "lost_lines", None),
        ({}, ("kv_events_lost",), "lost_lines", None),
        ({"trace_rows_dropped": 1}, ("trace_rows_dropped",), "none", None),
        ({"trace_rows_dropped": 50}, ("trace_rows_dropped",), "lost_lines", None),
        ({"session_sampling_rate": 0.1}, ("ray_deduplicates",), "lost_lines", 0.1),
        ({}, ("naive_clock",), "none", None),
    ],
)
def test_what_is_stated(
    tmp_path: Path, facts: dict[str, Any], codes: tuple[str, ...], kind: str, kept: float | None
) -> None:
    result = read(tmp_path, every(1, 200))
    found = detect(result, facts=facts, note_codes=frozenset(codes))
    assert (found.kind, found.kept_share) == (kind, kept)


def test_empty_tables_say_nothing() -> None:
    tables = LogTables(
        requests=REQUESTS.empty(),
        samples=SAMPLES.empty(),
        blocks=BLOCKS.empty(),
        keys=KEYS.empty(),
    )
    assert detect_sampling(tables) == Sampling("none")
    assert Sampling("none").notes() == []
