"""Mooncake excerpts of the shared material, with their right values."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvtrace.ingest.formats.mooncake_store import FORMATS
from kvtrace.ingest.registry import all_formats
from tests.formats.reading import decoded, read_bytes, sniffed

MOONCAKE = FORMATS[0]
MASTER = "mooncake-master-three-generations.log"
CLIENT = "mooncake-te-and-client.log"
pytestmark = pytest.mark.shared


@pytest.fixture
def excerpts(shared_dir: Path) -> Path:
    return shared_dir / "log_excerpts"


def test_three_generations_of_the_master(excerpts: Path) -> None:
    reading = read_bytes(MOONCAKE, decoded(excerpts / MASTER))
    assert reading.rejected == []
    hits = [m for s in reading.samples for m in s.metrics if m.metric == "pool_hit_ratio"]
    assert [(m.numerator, m.denominator, m.hit_unit) for m in hits] == [
        (25, 30, "objects"),
        (1200, 1300, "objects"),  # 120 of 130 a second over 10 s
    ]
    assert hits[0].value == pytest.approx(0.833, abs=5e-4)
    assert [m.window for m in hits] == ["cumulative", "interval"]
    assert reading.metric("pool_usage_ratio")[2] == 0.969
    assert reading.metric("pool_capacity_bytes")[2] == 128 * 2**30
    assert reading.metric("pool_evicted_objects") == [0, 7, 0]


def test_transfer_engine_and_client(excerpts: Path) -> None:
    reading = read_bytes(MOONCAKE, decoded(excerpts / CLIENT))
    assert reading.rejected == []
    # 2048 MB/s over 5 s are 10 240 MB
    assert reading.metric("transfer_bytes_per_s") == [2048 * 2**20]
    assert reading.metric("transfer_tasks") == [640]
    assert reading.metric("transfer_slow_ratio") == [0.05]
    assert reading.metric("pool_read_bytes") == [10 * 2**30]
    assert reading.metric("pool_written_bytes") == [2.5 * 2**30]


@pytest.mark.parametrize("name", [MASTER, CLIENT])
def test_excerpts_are_recognised(excerpts: Path, name: str) -> None:
    assert sniffed(all_formats(), decoded(excerpts / name)) == "mooncake_store"
