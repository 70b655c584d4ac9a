"""The figures of docs/pooling.md on the Mooncake conversation trace."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvtrace.reuse.pooling import PoolPlan, build_pool_hits
from kvtrace.reuse.trace import build_trace
from tests.traces import domain, mooncake_requests, tables

pytestmark = pytest.mark.shared
PROMPT_TOKENS = 144_793_823


def test_hit_ratios_of_four_instances_and_a_pool_of_the_same_bytes(shared_dir: Path) -> None:
    path = shared_dir / "traces" / "mooncake_conversation.jsonl.zst"
    made = tables(mooncake_requests(path), block_size_tokens=512)
    trace = build_trace(made["requests"], made["blocks"], domain(block_size_tokens=512))
    plan = PoolPlan(0, (4,), ("round_robin", "session_sticky", "kv_centric"), (50_000,), ())
    frame = build_pool_hits(trace, plan)
    private = frame.filter(hbm_blocks=12_500).sort("routing")
    assert private["routing"].to_list() == ["kv_centric", "round_robin", "session_sticky"]
    ratios = [hits / PROMPT_TOKENS for hits in private["hbm_hit_tokens"]]
    assert ratios == pytest.approx([0.3584, 0.1759, 0.3434], abs=5e-5)
    pooled = frame.filter(pool_blocks=50_000)["pool_hit_tokens"]
    assert [hits / PROMPT_TOKENS for hits in pooled] == pytest.approx([0.3615] * 3, abs=5e-5)
    unlimited = frame.filter(pool_blocks=4 * 182_790)["pool_hit_tokens"].unique().to_list()
    assert unlimited == [54_098_411]
