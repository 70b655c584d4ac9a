"""The known figures of the Mooncake conversation trace, through facts and queries."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kvtrace.duckdb_session import Param, Session
from kvtrace.query.catalog import load_catalog
from kvtrace.reuse.trace import build_trace
from kvtrace.schema.tables import TABLES
from tests.traces import domain, mooncake_requests, tables

pytestmark = pytest.mark.shared
CATALOG = load_catalog()
LLAMA_70B_BYTES_PER_TOKEN = 327_680.0


@pytest.fixture(scope="module")
def session(shared_dir: Path) -> Iterator[Session]:
    path = shared_dir / "traces" / "mooncake_conversation.jsonl.zst"
    made = tables(mooncake_requests(path), block_size_tokens=512)
    with Session() as opened:
        for name, table in TABLES.items():
            opened.create_table(name, made.get(name, table.empty()))
        yield opened


def test_reuse_summary(session: Session) -> None:
    row = CATALOG.run(session, "reuse/summary").frame.row(0, named=True)
    assert row["requests"] == 12_031
    assert (row["reusable_blocks"], row["block_refs"]) == (105_710, 288_500)
    assert (row["reusable_tokens"], row["prompt_tokens"]) == (54_098_411, 144_793_823)
    assert (row["reusable_full_blocks"], row["full_block_refs"]) == (105_592, 276_491)
    assert row["reusable_ratio_requests_mean"] == pytest.approx(0.40938, abs=5e-6)
    assert row["reusable_ratio_requests_mean_blocks"] == pytest.approx(0.38426, abs=5e-6)
    assert row["requests_with_reuse_ratio"] == pytest.approx(0.99992, abs=5e-6)


def test_capacity_curve(session: Session) -> None:
    params: dict[str, Param] = {
        "capacities": [1_000, 10_000, 30_000, 50_000, 100_000],
        "block_size_tokens": 512,
    }
    frame = CATALOG.run(session, "reuse/capacity_curve", params).frame
    blocks = [0.0445, 0.2116, 0.3257, 0.3546, 0.3637]
    tokens = [0.0454, 0.2158, 0.3322, 0.3615, 0.3708]
    assert frame["hit_ratio_blocks"].to_list() == pytest.approx(blocks, abs=0.002)
    assert frame["hit_ratio_tokens"].to_list() == pytest.approx(tokens, abs=0.002)


def test_default_curve_ends_at_the_unlimited_cache(session: Session) -> None:
    frame = CATALOG.run(session, "reuse/capacity_curve", {"block_size_tokens": 512}).frame
    assert frame.row(-1, named=True)["capacity_blocks"] == 182_790
    assert frame.row(-1, named=True)["hit_blocks"] == 105_710
    assert frame.row(-1, named=True)["hit_tokens"] == 54_098_411


def test_kv_bytes(session: Session) -> None:
    params: dict[str, Param] = {
        "kv_bytes_per_token": LLAMA_70B_BYTES_PER_TOKEN,
        "block_size_tokens": 512,
    }
    row = CATALOG.run(session, "kv/summary", params).frame.row(0, named=True)
    assert row["kv_bytes_requested"] == pytest.approx(47.45e12, rel=2e-4)
    assert row["kv_bytes_block_rounded"] == pytest.approx(48.40e12, rel=2e-4)


def test_clock_steps_are_found(shared_dir: Path) -> None:
    requests = mooncake_requests(shared_dir / "traces" / "mooncake_conversation.jsonl.zst")
    made = tables(requests, block_size_tokens=512)
    trace = build_trace(made["requests"], made["blocks"], domain(0, 512))
    # 1 180 instants 3 s apart, most of them 1 ms early or late; the smallest step is 2.997 s.
    assert trace.clock_resolution_ns == 2_997_000_000
    assert trace.distinct_blocks == 182_790
    assert int(trace.output_tokens.sum()) == 4_122_048


def test_no_quality_query_finds_anything(session: Session) -> None:
    for name in CATALOG.names():
        if name.startswith("quality/"):
            takes = {param.name for param in CATALOG.describe(name).params}
            params: dict[str, Param] = (
                {"block_size_tokens": 512} if "block_size_tokens" in takes else {}
            )
            assert CATALOG.run(session, name, params).frame.is_empty(), name
