"""libcachesim over single keys: where the semantics agree, hit for hit.

It knows no prefixes, so both sides take each block reference as a request of its own.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kvtrace.reuse.policies.blocks import flat_trace
from kvtrace.reuse.policies.bounds import find_intervals, find_optimum
from kvtrace.reuse.policies.run import PolicyName, serve
from tests.peers.conftest import Shared

pytestmark = pytest.mark.peers

REFS = 150_000
SHARES = (0.001, 0.01, 0.05, 0.2, 0.5)
SAME: dict[PolicyName, str] = {
    "lru": "LRU",
    "leaf_lru": "LRU",
    "fifo": "FIFO",
    "flat_fifo": "FIFO",
    "lfu": "LFU",
    "arc": "ARC",
    "s3_fifo": "S3FIFO",
}
RUN = """
import json, sys
import libcachesim as lcs
task = json.load(sys.stdin)
keys, never = task["keys"], 2**62
following, last = [never] * len(keys), {}
for i in range(len(keys) - 1, -1, -1):
    following[i] = last.get(keys[i], never)
    last[keys[i]] = i
found = {}
for name in task["names"]:
    found[name] = []
    for capacity in task["capacities"]:
        cache, request, hits = getattr(lcs, name)(capacity), lcs.Request(), 0
        for i, key in enumerate(keys):
            request.obj_id, request.obj_size = key + 1, 1
            request.next_access_vtime, request.clock_time = following[i], i
            hits += bool(cache.get(request))
        found[name].append(hits)
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def python(install: Callable[[str], Path]) -> Path:
    return install("libcachesim==0.3.5") / "python"


def test_policies_over_single_keys_are_equal(python: Path, both: Shared) -> None:
    keys = both.trace.block[:REFS]
    flat = flat_trace(keys)
    # Its S3-FIFO takes no key in where the small queue has room for one only: 20 blocks and more.
    capacities = sorted({max(20, int(flat.distinct_blocks * share)) for share in SHARES})
    task = {
        "keys": keys.tolist(),
        "capacities": capacities,
        "names": sorted({*SAME.values(), "Belady"}),
    }
    done = subprocess.run(
        [str(python), "-c", RUN], input=json.dumps(task), check=True, capture_output=True, text=True
    )
    theirs = json.loads(done.stdout.splitlines()[-1])
    for policy, name in SAME.items():
        served = serve(flat, policy, capacities)
        assert [int(one.hit_blocks.sum()) for one in served] == theirs[name], policy
    # Its Belady has to take every key in, which costs at most one place.
    found = find_intervals(flat)
    for capacity, hits in zip(capacities, theirs["Belady"], strict=True):
        least = find_optimum(found, capacity - 1, "blocks").high.blocks
        assert least <= hits <= find_optimum(found, capacity, "blocks").high.blocks
