"""Rules that need many rows: withheld P99, bounded samples, the same rows on any threads."""

from __future__ import annotations

import polars as pl
import pytest

from kvtrace.duckdb_session import Session
from kvtrace.query.catalog import load_catalog
from kvtrace.schema.tables import SAMPLES
from tests.traces import Traced, Value, create_tables, requests_frame, tables

CATALOG = load_catalog()


def session_with(threads: int = 1, **frames: pl.DataFrame) -> Session:
    session = Session(threads=threads)
    create_tables(session, frames)
    return session


def latencies(known: int) -> pl.DataFrame:
    """Requests with a TTFT of 1 .. known ms, and one without."""
    rows: list[dict[str, Value]] = [
        {"prompt_tokens": 100, "ttft_ns": (i + 1) * 1_000_000, "ttft_from": "arrival"}
        for i in range(known)
    ]
    return requests_frame([*rows, {"prompt_tokens": 100}])


@pytest.mark.parametrize("query", ["latency/summary", "latency/by_prompt_bucket"])
def test_p99_needs_a_thousand_known_rows(query: str) -> None:
    with session_with(requests=latencies(999)) as session:
        assert CATALOG.run(session, query).frame["ttft_p99_ms"].to_list() == [None]
    with session_with(requests=latencies(1000)) as session:
        # Rank 0.99 × 999 = 989.01 over 1 .. 1000 ms: 990 + 0.01.
        found = CATALOG.run(session, query).frame["ttft_p99_ms"].to_list()
        assert found == [pytest.approx(990.01)]


def test_kv_p99_needs_a_thousand_requests() -> None:
    params = {"kv_bytes_per_token": 2.0}
    with session_with(requests=requests_frame([{"prompt_tokens": 5}] * 1000)) as session:
        found = CATALOG.run(session, "kv/summary", params).frame
        assert found["kv_bytes_p99"].to_list() == [10.0]


def samples(series: int, each: int) -> pl.DataFrame:
    """Samples 0, 1, 2 … of so many engines, one every 10 ns."""
    rows = [
        {
            "sample_key": step * series + engine,
            "source_id": 0,
            "observed_at_ns": step * 10,
            "clock": "relative",
            "engine": f"{engine:04d}",
            "metric": "kv_usage_ratio",
            "value": float(step),
            "unit": "ratio",
        }
        for step in range(each)
        for engine in range(series)
    ]
    return pl.DataFrame(rows, schema=SAMPLES.polars_schema())


def test_up_to_two_thousand_samples_stand_alone() -> None:
    with session_with(samples=samples(2, 1000)) as session:
        assert len(CATALOG.run(session, "samples/over_time").frame) == 2000


def test_more_samples_become_means_of_slices() -> None:
    # 2 engines × 3 000 samples over 29 990 ns: 1 000 slices of 29 990 // 1 000 + 1 = 30 ns, each
    # the mean of 3 samples: 1, 4, 7 …
    with session_with(samples=samples(2, 3000)) as session:
        frame = CATALOG.run(session, "samples/over_time").frame
    assert len(frame) == 2000
    one = frame.filter(pl.col("engine") == "0001")
    assert one["value"].to_list() == [3.0 * i + 1 for i in range(1000)]
    assert one["observed_at_ns"].to_list() == [30 * i for i in range(1000)]


def test_very_many_series_stay_bounded() -> None:
    with session_with(samples=samples(2500, 2)) as session:
        assert len(CATALOG.run(session, "samples/over_time").frame) == 2000


def test_rows_do_not_depend_on_threads_or_row_order() -> None:
    requests = [
        Traced(
            [i % 7, 100 + i % 13, 1000 + i],
            columns={
                "arrived_at_ns": i * 1_000_003,
                "ttft_ns": i * 7_919 % 104_729,
                "ttft_from": "arrival",
                "queue_ns": i * 31 % 997,
                "cached_tokens": i % 3,
            },
        )
        for i in range(5000)
    ]
    made = tables(requests)
    shuffled = {
        name: frame.sample(fraction=1, shuffle=True, seed=3) for name, frame in made.items()
    }
    params = {"kv_bytes_per_token": 3.3, "block_size_tokens": 4}
    with session_with(threads=1, **made) as one, session_with(threads=4, **shuffled) as other:
        for name in CATALOG.names():
            mine = {
                k.name: params[k.name] for k in CATALOG.describe(name).params if k.name in params
            }
            first = CATALOG.run(one, name, mine).frame
            assert first.equals(CATALOG.run(other, name, mine).frame), name
