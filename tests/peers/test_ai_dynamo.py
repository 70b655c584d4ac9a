"""ai-dynamo's replay (its mocked engines) routed round robin: the same share of prompts reused.

Both replay the same arrivals with as many blocks of HBM. They price steps differently, so other
requests run, and are pinned, at any time: the shares are near each other, not equal.
`PEERS` may name a folder that holds its environment (`dyn`, as in scripts/bench/peers.sh).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from kvtrace.cost.deployment import build_deployment
from kvtrace.cost.fleet import default_fleet
from kvtrace.replay.engine import simulate
from kvtrace.replay.options.presets import build_scenarios
from kvtrace.replay.scenario import Scenario
from kvtrace.schema.arrays import RequestTrace
from kvtrace.units import NS_PER_S
from tests.peers.conftest import BLOCK, Row, shared_rows
from tests.unit.replay_cases import Ask, make_trace

pytestmark = pytest.mark.peers

PACKAGES = ("ai-dynamo==1.6.1", "ai-dynamo-runtime==1.6.1")
"""Without what they depend on, most of which is for serving; the replay needs:"""
NEEDS = (
    "pydantic>=2.10.6,<=2.13.5",
    *("uvloop", "aiohttp", "msgspec", "prometheus-client", "pyzmq", "tqdm"),
    *("typing-extensions", "zstandard", "transformers", "numpy"),
)
POINTS = 0.3
RUN = """
import json, sys
from dynamo.replay import run_trace_replay
path, size, workers, blocks = sys.argv[1], *map(int, sys.argv[2:])
engine = {"block_size": size, "num_gpu_blocks": blocks, "kv_cache_bytes_per_token": 327680}
report = run_trace_replay(
    path, trace_block_size=size, num_workers=workers, extra_engine_args={"engine": engine}
)
names = ("completed_requests", "prefix_cache_reused_ratio")
print(json.dumps([report.summary[name] for name in names]))
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python that has the peer."""
    made = Path(os.environ.get("PEERS", "")) / "dyn" / "bin" / "python"
    if "PEERS" in os.environ and made.exists():
        return made
    place = tmp_path_factory.mktemp("peer") / "env"
    subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
    install = [str(place / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    for what in (["--no-deps", *PACKAGES], NEEDS):
        done = subprocess.run([*install, *what], capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"ai-dynamo cannot be installed: {done.stderr.strip()[-300:]}")
    return place / "bin" / "python"


@pytest.fixture(scope="module")
def rows(shared_dir: Path) -> list[Row]:
    return shared_rows(shared_dir)


@pytest.fixture(scope="module")
def conversation(rows: list[Row]) -> RequestTrace:
    asks: list[Ask] = []
    for row in rows:
        at, ids, prompt, output = (
            row[key] for key in ("timestamp", "hash_ids", "input_length", "output_length")
        )
        assert isinstance(ids, list)
        assert isinstance(at, int)
        assert isinstance(prompt, int)
        assert isinstance(output, int)
        asks.append(Ask(at / 1000, ids, prompt, output))
    return make_trace(asks, block_size=BLOCK, resolution_ns=3 * NS_PER_S)


@pytest.fixture(scope="module")
def path(rows: list[Row], tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("trace") / "conversation.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file


def hbm_only(workers: int, blocks: int) -> Scenario:
    deployment = build_deployment("Llama-3.1-70B", "H100-SXM5", tp=8)
    option = next(
        one
        for one in build_scenarios(deployment, default_fleet(deployment, workers))
        if one.option_id == "hbm_only"
    )
    size = deployment.kv_bytes_per_token * BLOCK
    return replace(option, routing="round_robin", hbm_capacity_bytes=size * blocks)


@pytest.mark.parametrize(("workers", "blocks"), [(8, 2_048), (8, 4_096), (1, 20_000)])
def test_round_robin_reuses_the_same_share_of_the_prompts(
    python: Path, conversation: RequestTrace, path: Path, *, workers: int, blocks: int
) -> None:
    command = [str(python), "-c", RUN, str(path), str(BLOCK), str(workers), str(blocks)]
    quiet = {**os.environ, "DYN_LOG": "error", "RUST_LOG": "error"}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=quiet)
    completed, theirs = json.loads(done.stdout.splitlines()[-1])
    assert completed == conversation.requests

    found = simulate(conversation, hbm_only(workers, blocks)).timeline.hit_tokens["hbm"]
    ours = int(found.sum()) / int(conversation.prompt_tokens.sum())
    assert 100 * ours == pytest.approx(100 * theirs, abs=POINTS)
