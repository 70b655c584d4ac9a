"""What a row says of its run: hit shares, working sets, and closed loops."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvtrace.cost.validation import predict
from kvtrace.cost.validation.bench import build_bench
from kvtrace.cost.validation.workloads import (
    HitShares,
    Loop,
    loop_wait_s,
    read_hits,
    read_loop,
    stated_hits,
    working_set_tokens,
)
from tests.unit.cost_validation.cases import point

SERVED = {"kind": "ab_ratio", "unit": "ratio", "model": "Meta-Llama-3.1-70B", "gpu": "H100-SXM5",
          "tp": 8, "new_tokens": 256, "cached_tokens": 10_000,
          "path": "DRAM>PCIe5>HBM"}  # fmt: skip


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("hit 40 to 80 %, throughput doubled", HitShares(0.4, 0.8)),
        ("hit rate 0.922 with the pool", HitShares(0.0, 0.922)),
        ("hit rate: 56.3%", HitShares(0.0, 0.563)),
        ("hits from 0.1 to 0.5", HitShares(0.1, 0.5)),
        ("hit 3 tiers", None),
        ("whitepaper", None),
    ],
)
def test_stated_hits(words: str, expected: HitShares | None) -> None:
    found = stated_hits(words)
    if expected is None:
        assert found is None
        return
    assert found is not None
    assert (found.off, found.on) == pytest.approx((expected.off, expected.on))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("hbm+cpu (1-4m token working set)", 2e6),  # the geometric mean of 1 and 4 million
        ("900k tokens working set", 9e5),
        ("a working set", None),
    ],
)
def test_working_sets(words: str, expected: float | None) -> None:
    assert working_set_tokens(words) == (None if expected is None else pytest.approx(expected))


def test_caches_hit_the_share_of_a_working_set_that_they_hold(tmp_path: Path) -> None:
    # (8 x (0.9 x 80 - 3) GiB - 141.1 GB) / 327 680 B = 1.378 million tokens in HBM of 5.0
    note = "5M token working set"
    bench = build_bench(point(tmp_path, **SERVED, metric="ttft_ratio", note=note))
    hits = read_hits(bench)
    assert hits is not None
    hbm = (8 * (0.9 * 80 - 3) * 2**30 - 141.1e9) / 327_680
    assert hits.off == pytest.approx(hbm / 5e6)
    # half of 2.199 TB of host memory: 3.36 million tokens
    assert hits.on == pytest.approx(0.5 * 2.199e12 / 327_680 / 5e6)


def test_a_loop_of_two_waits_as_mean_value_analysis_says() -> None:
    # S 1 s, Z 3 s: R1 = 1, Q1 = 1 / 4; R2 = 1.25, so a wait of 0.25
    assert loop_wait_s(1.0, 3.0, 1) == 0.0
    assert loop_wait_s(1.0, 3.0, 2) == pytest.approx(0.25)
    # without thinking everybody queues: R3 = 3
    assert loop_wait_s(1.0, 0.0, 3) == pytest.approx(2.0)


def test_requests_without_a_slot_wait_for_those_that_have_one() -> None:
    loop = Loop(clients=5, slots=2, decode_s=0.5, think_s=3.0)
    # three ahead, each 1 s of prefill and 0.5 s of decode, and 0.25 s among the two
    assert loop.wait_s(1.0) == pytest.approx(4.75)


def test_a_single_request_and_a_batch_worked_off_are_no_loop(tmp_path: Path) -> None:
    def loop(clients: int, note: str = "", *, is_system: bool = False) -> Loop | None:
        cells = {**SERVED, "metric": "ttft_ratio", "concurrency": clients, "note": note}
        return read_loop(build_bench(point(tmp_path, **cells)), is_system=is_system)

    assert loop(1) is None
    assert loop(10_000) is None
    found, stood_in = loop(8, "osl 100"), loop(1, is_system=True)
    assert found is not None
    assert stood_in is not None
    assert (found.clients, found.slots) == (8, 8)
    assert stood_in.clients == 32
    # one of eight shares of a hundred steps
    assert found.decode_s == pytest.approx(found.think_s / 8)


def test_the_part_of_a_working_set_in_hbm_is_hit_without_the_tier(tmp_path: Path) -> None:
    cells = {**SERVED, "metric": "throughput_on_over_off"}
    alone, shared = (
        predict(point(tmp_path, **cells, note=note)).predicted
        for note in ("", "3M token working set")
    )
    assert alone is not None
    assert shared is not None
    assert 1 < shared < alone


def test_a_stated_hit_rate_bounds_what_is_saved(tmp_path: Path) -> None:
    cells = {"kind": "ab_ratio", "metric": "prefill_gpu_time_on_over_off", "unit": "ratio"}
    found = predict(point(tmp_path, **cells, path="DRAM", note="hit 40 to 80 %"))
    assert found.predicted is not None
    # a third of the misses, and the loads
    assert 1 / 3 < found.predicted < 0.5
    assert "8192 prompt tokens, hits as stated" in found.assumes
