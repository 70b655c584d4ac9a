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


def test_capacity_marks_lie_on_the_curve(session: Session) -> None:
    params: dict[str, Param] = {
        "kv_bytes_per_token": LLAMA_70B_BYTES_PER_TOKEN,
        "block_size_tokens": 512,
        # 10 000 and 50 000 blocks of 512 × 327 680 bytes.
        "dram_bytes": 10_000 * 512 * LLAMA_70B_BYTES_PER_TOKEN,
        "pool_bytes": 50_000 * 512 * LLAMA_70B_BYTES_PER_TOKEN,
    }
    frame = CATALOG.run(session, "reuse/capacity_marks", params).frame
    assert frame["label"].to_list() == ["dram", "pool"]
    assert frame["hit_blocks"].to_list() == [61_046, 102_290]


def test_ttl_curve(session: Session) -> None:
    params: dict[str, Param] = {"ttls_s": [60.0, 300.0, 600.0, 3_600.0]}
    frame = CATALOG.run(session, "reuse/ttl_curve", params).frame
    assert frame["kept_blocks"].to_list() == [29_821, 83_010, 99_061, 105_710]
    assert frame["kept_tokens"].to_list()[-1] == 54_098_411


def test_few_blocks_carry_much_of_the_reuse(session: Session) -> None:
    frame = CATALOG.run(session, "reuse/hot_blocks").frame
    assert frame["top_blocks"].to_list() == [18, 183, 1_828, 18_279, 182_790]
    assert frame["top_reusable_blocks"].to_list() == [12_675, 16_106, 33_459, 79_435, 105_710]
    assert frame["gini"][0] == pytest.approx(0.8737, abs=5e-5)


def test_cold_start_and_restart(session: Session) -> None:
    frame = CATALOG.run(session, "reuse/cold_and_warm").frame
    rows = {row["part"]: row for row in frame.rows(named=True)}
    assert rows["all"]["first_seen_blocks"] == 182_790
    assert rows["second_half"]["reusable_blocks"] == 52_839
    assert rows["second_half_cold"]["reusable_blocks"] == 45_591


def test_reuse_does_not_climb_at_the_end(session: Session) -> None:
    row = CATALOG.run(session, "reuse/still_climbing").frame.row(0, named=True)
    assert row["slices"] == 24
    assert row["change_ratio"] == pytest.approx(0.0150, abs=5e-5)
    assert row["change_low_ratio"] < 0 < row["change_high_ratio"]
    assert row["trend"] == "level"


def test_lifespans_and_working_set_cover_every_block(session: Session) -> None:
    lives = CATALOG.run(session, "reuse/lifespans").frame
    assert (lives["distinct_blocks"].sum(), lives["block_refs"].sum()) == (182_790, 288_500)
    assert lives["used_once_blocks"].sum() == 138_646
    working = CATALOG.run(session, "reuse/working_set", {"block_size_tokens": 512}).frame
    assert working["first_seen_blocks"].sum() == 182_790
    assert working["alive_blocks"].max() == 15_460


def test_definitions_differ_for_stated_reasons(session: Session) -> None:
    params: dict[str, Param] = {"block_size_tokens": 512}
    frame = CATALOG.run(session, "reuse/definitions", params).frame
    ratios = dict(frame.select("definition", "ratio").rows())
    assert ratios["engine_tokens"] == pytest.approx(54_063_104 / 144_793_823)
    assert ratios["engine_tokens_window"] == pytest.approx(0.4034, abs=5e-5)
    assert ratios["reusable_tokens_warm"] == pytest.approx(0.3981, abs=5e-5)
    rows = CATALOG.run(session, "reuse/definitions_explained", params).frame.rows(named=True)
    causes = {row["definition"]: row["cause"] for row in rows}
    assert causes["reusable_requests_mean_tokens"] == "short_prompts"
    assert causes["reusable_full_blocks"] == "partial_blocks"
    assert "engine_tokens" not in causes  # 0.02 points: too little for one decimal


def test_most_blocks_are_written_and_never_read(session: Session) -> None:
    params: dict[str, Param] = {"kv_bytes_per_token": LLAMA_70B_BYTES_PER_TOKEN}
    row = CATALOG.run(session, "writes/summary", params).frame.row(0, named=True)
    assert (row["never_read_blocks"], row["written_blocks"]) == (138_646, 182_790)
    assert row["never_read_ratio_blocks"] == pytest.approx(0.758, abs=5e-4)
    assert row["written_bytes"] == pytest.approx(29.72e12, rel=2e-4)
    assert row["read_bytes"] == pytest.approx(17.73e12, rel=2e-4)


def test_second_use_keeps_most_hits_at_a_quarter_of_the_writes(session: Session) -> None:
    first, second = CATALOG.run(session, "writes/second_use").frame.rows(named=True)
    assert (first["hit_blocks"], second["hit_blocks"]) == (105_710, 61_566)
    assert (first["written_blocks"], second["written_blocks"]) == (182_790, 44_144)
    assert second["written_share_blocks"] == pytest.approx(0.24, abs=5e-3)


def test_endurance(session: Session) -> None:
    params: dict[str, Param] = {
        "kv_bytes_per_token": LLAMA_70B_BYTES_PER_TOKEN,
        "endurance_bytes": 7.3e15,
    }
    frame = CATALOG.run(session, "writes/endurance", params).frame
    row = frame.row(0, named=True)
    # 29.72 TB in 3 536.999 s are 726 TB a day: drives of 7.3 PB last 10 days of such peak load.
    assert row["cache"] == "unlimited"
    assert row["drive_bytes_per_day"] == pytest.approx(725.96e12, rel=1e-4)
    assert row["life_years"] == pytest.approx(0.02755, rel=1e-3)


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
