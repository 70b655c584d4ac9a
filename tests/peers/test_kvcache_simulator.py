"""kvcache-simulator (FIFO, LRU, OPTIMAL) at every budget that it takes, token for token.

It measures the second half of the requests, and leaves out budgets that the first half does not
fill. Its FIFO knows no prefix (`flat_fifo` here); its LRU and OPTIMAL evict leaves. Where a request
is longer than the cache, its LRU can push out the block that it put in just before and then stops;
ours keeps it, so there ours may serve more.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kvtrace.reuse.policies.bounds import find_intervals, find_optimum
from kvtrace.reuse.policies.run import serve
from kvtrace.schema.arrays import IntArray
from tests.peers.conftest import BLOCK, Shared

pytestmark = pytest.mark.peers


@pytest.fixture(scope="module")
def simulator(install: Callable[[str], Path]) -> Path:
    return install("kvcache-simulator==0.1.3") / "kvcache-simulator"


def test_fifo_lru_and_optimal_are_equal_at_every_budget_that_holds_a_request(
    simulator: Path, both: Shared
) -> None:
    command = [str(simulator), "run", "--trace", str(both.path), "--model", "llama-3.1-70b"]
    command += ["--block-size", str(BLOCK), "--no-progress", "--format", "json"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    theirs = json.loads(done.stdout)
    half = theirs["metadata"]["warmupRequests"]
    capacities = [point["cacheBlocks"] for point in theirs["points"]]
    assert len(capacities) >= 5

    def tokens(hit_blocks: IntArray) -> int:
        return int(both.trace.tokens_of(hit_blocks)[half:].sum())

    found = find_intervals(both.trace)
    ours = {
        "fifo": [tokens(one.hit_blocks) for one in serve(both.trace, "flat_fifo", capacities)],
        "lru": [tokens(one.hit_blocks) for one in serve(both.trace, "lru", capacities)],
        "optimal": [tokens(find_optimum(found, c, "blocks").low) for c in capacities],
    }
    longest = int((both.trace.offset[1:] - both.trace.offset[:-1]).max())
    for policy, hits in ours.items():
        told = [point["results"][policy]["hitTokens"] for point in theirs["points"]]
        for capacity, mine, other in zip(capacities, hits, told, strict=True):
            if policy == "lru" and capacity < longest:
                assert mine >= other
            else:
                assert mine == other, (policy, capacity)
