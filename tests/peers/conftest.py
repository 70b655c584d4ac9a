"""Other tools, each in an environment of its own, and the traces that both sides walk."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from kvtrace.reuse.policies.blocks import BlockTrace, block_trace
from kvtrace.schema.arrays import RequestTrace
from tests import zstd

BLOCK = 512
Row = dict[str, int | list[int]]


@dataclass(frozen=True)
class Shared:
    """One trace: as kvtrace walks it, and as a file in Mooncake's format."""

    trace: BlockTrace
    path: Path


@pytest.fixture(scope="session")
def install(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Installs one pinned package into a new environment; the folder of its programs."""

    def made(requirement: str) -> Path:
        place = tmp_path_factory.mktemp("peer") / "env"
        subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
        programs = place / "bin"
        subprocess.run(
            [str(programs / "python"), "-m", "pip", "install", "--quiet", requirement],
            check=True,
            capture_output=True,
        )
        return programs

    return made


def drawn_rows(seed: int) -> list[Row]:
    """Conversations that go on, prompts that come again, and a head that all share."""
    draw = np.random.default_rng(seed)
    rows: list[Row] = []
    fresh = 1
    for at in range(3_000):
        ids = [0]
        if rows and draw.random() < 0.6:
            near = int(draw.integers(max(0, len(rows) - 400), len(rows)))
            earlier = rows[near]["hash_ids"]
            assert isinstance(earlier, list)
            ids = earlier[: int(draw.integers(1, len(earlier) + 1))]
        new = int(draw.integers(0, 9))
        ids = [*ids, *range(fresh, fresh + new)]
        fresh += new
        rows.append({"timestamp": at, "input_length": BLOCK * len(ids), "hash_ids": ids})
    return rows


def shared_rows(shared: Path) -> list[Row]:
    """The rows of the Mooncake conversation trace."""
    packed = (shared / "traces/mooncake_conversation.jsonl.zst").read_bytes()
    return [json.loads(line) for line in zstd.decompress(packed).splitlines()]


@pytest.fixture(scope="session", params=["drawn", "conversation"])
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Shared:
    """A drawn trace, and the Mooncake conversation trace where it is at hand."""
    if request.param == "drawn":
        rows = drawn_rows(5)
    else:
        rows = shared_rows(request.getfixturevalue("shared_dir"))
    path = tmp_path_factory.mktemp("trace") / f"{request.param}.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return Shared(_walked(rows), path)


def _walked(rows: list[Row]) -> BlockTrace:
    chains = [np.asarray(row["hash_ids"], dtype=np.int64) for row in rows]
    sizes = np.asarray([len(chain) for chain in chains], dtype=np.int64)
    names = np.concatenate(chains)
    _, first, inverse = np.unique(names, return_index=True, return_inverse=True)
    dense = np.argsort(np.argsort(first))[inverse].astype(np.int64)
    count = len(rows)
    return block_trace(
        RequestTrace(
            request_key=np.arange(count),
            arrived_at_ns=np.zeros(count, dtype=np.int64),
            prompt_tokens=np.asarray([row["input_length"] for row in rows], dtype=np.int64),
            output_tokens=np.zeros(count, dtype=np.int64),
            session=np.full(count, -1, dtype=np.int64),
            run_offset=np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(sizes))),
            run_start=dense,
            run_blocks=np.ones(len(dense), dtype=np.int64),
            block_size_tokens=BLOCK,
            distinct_blocks=len(first),
            has_clock=False,
            output_known=False,
            clock_resolution_ns=1,
        )
    )
