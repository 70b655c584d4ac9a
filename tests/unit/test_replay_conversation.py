"""The idealised replay of the Mooncake conversation trace against its known reuse."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvtrace.replay.engine import simulate
from kvtrace.schema.arrays import RequestTrace
from tests.unit.replay_cases import KV_BYTES, UNLIMITED, Ask, make_scenario, make_trace

BLOCK = 512
pytestmark = pytest.mark.shared


@pytest.fixture(scope="module")
def conversation(shared_dir: Path) -> RequestTrace:
    from backports import zstd

    path = shared_dir / "traces" / "mooncake_conversation.jsonl.zst"
    if not path.is_file():
        pytest.skip(f"no {path.name} in the shared material")
    with zstd.open(path, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines if line.strip()]
    asks = [Ask(row["timestamp"] / 1000, row["hash_ids"], row["input_length"]) for row in rows]
    return make_trace(asks, block_size=BLOCK)


@pytest.mark.parametrize(
    ("blocks", "hit_ratio_tokens", "tolerance"),
    [(1_000, 0.0454, 0.002), (10_000, 0.2158, 0.002), (50_000, 0.3615, 0.002)],
)
def test_an_lru_cache_of_one_instance_hits_as_known(
    conversation: RequestTrace, blocks: int, hit_ratio_tokens: float, tolerance: float
) -> None:
    scenario = make_scenario(idealised=True, hbm_capacity_bytes=KV_BYTES * BLOCK * blocks)
    hits = simulate(conversation, scenario).timeline.hit_tokens["hbm"].sum()
    ratio = int(hits) / int(conversation.prompt_tokens.sum())
    assert ratio == pytest.approx(hit_ratio_tokens, abs=tolerance)


def test_an_unlimited_cache_hits_all_reuse_to_the_token(conversation: RequestTrace) -> None:
    scenario = make_scenario(idealised=True, hbm_capacity_bytes=UNLIMITED)
    hits = simulate(conversation, scenario).timeline.hit_tokens["hbm"].sum()
    assert (int(hits), int(conversation.prompt_tokens.sum())) == (54_098_411, 144_793_823)
