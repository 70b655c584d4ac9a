"""Ratios of replays, each against a reference in the same run: another engine, or one replay.

Only with `--perf`; see `scripts/bench/replay.py`. Bounds are wide: half of what was measured.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
BENCH = REPO / "scripts" / "bench" / "replay.py"
pytestmark = [pytest.mark.perf, pytest.mark.slow, pytest.mark.shared]


@pytest.fixture(scope="module")
def trace(shared_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from backports import zstd

    path = shared_dir / "traces" / "mooncake_conversation.jsonl.zst"
    if not path.is_file():
        pytest.skip(f"no {path.name} in the shared material")
    out = tmp_path_factory.mktemp("perf") / "conversation.jsonl"
    out.write_bytes(zstd.decompress(path.read_bytes()))
    return out


def measured(trace: Path, case: str, *flags: str) -> dict[str, dict[str, float]]:
    command = [sys.executable, str(BENCH), str(trace), "--case", case, "--repeats", "1", *flags]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, dict[str, float]] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_a_replay_is_faster_and_smaller_than_the_peers(trace: Path) -> None:
    """PEER_PYTHON is that of an environment with ai-dynamo."""
    peer = os.environ.get("PEER_PYTHON")
    if peer is None:
        pytest.skip("PEER_PYTHON names no environment with ai-dynamo")
    ratios = measured(trace, "hbm", "--peer", peer)["ratios"]
    assert ratios["times_engine_seconds"] > 2.5
    assert ratios["times_cpu_seconds"] > 1
    assert ratios["times_peak_mb"] > 2


def test_a_long_replay_grows_as_its_requests_do(trace: Path) -> None:
    found = measured(trace, "million")
    assert found["many"]["requests"] > 1_200_000
    assert found["exponent"] < 1.25  # type: ignore[operator]
    assert found["bytes_a_request"] < 3_000  # type: ignore[operator]
