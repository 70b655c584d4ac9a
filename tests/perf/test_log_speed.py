"""Ratios of reading large engine logs, each against a reference in the same run.

Only with `--perf`: the references are other programs on the same bytes, so a busy machine slows
both, but not by the same measure. Bounds are twice what was measured.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[2] / "scripts" / "bench" / "logs.py"
pytestmark = [pytest.mark.perf, pytest.mark.slow]


def measured(case: str, megabytes: int) -> dict[str, float]:
    command = [sys.executable, str(BENCH), "--mb", str(megabytes), "--only", case]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[0])
    return found


@pytest.mark.parametrize(
    ("case", "most_loops"),
    [
        ("vllm mixed", 60.0),
        ("vllm ids", 70.0),
        ("vllm details", 70.0),
        ("vllm params", 36.0),
        ("sglang mixed", 50.0),
    ],
)
def test_reading_a_log_costs_few_bare_loops(case: str, most_loops: float) -> None:
    assert measured(case, 100)["cpu_times_bare_split_loop_after_start"] < most_loops


def test_memory_does_not_grow_with_the_log() -> None:
    """Rows are some 200 bytes each; nothing else is held for a request."""
    small, large = measured("vllm ids", 50), measured("vllm ids", 150)
    assert large["peak_mb"] - small["peak_mb"] < 100
