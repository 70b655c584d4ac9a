"""The whole way on the public Mooncake conversation trace, with values known beforehand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Run

pytestmark = pytest.mark.shared
LLM = "Meta-Llama-3.1-70B"


@pytest.fixture(scope="module")
def output(kvtrace: Run, shared_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Output folder of one analysis."""
    folder = tmp_path_factory.mktemp("conversation")
    trace = shared_dir / "traces" / "mooncake_conversation.jsonl.zst"
    done = kvtrace("analyze", trace, "--llm", LLM, "--hardware", "H100-SXM5", "-o", folder)
    assert done.returncode == 0, done.stderr
    assert 12 <= len(done.stdout.splitlines()) <= 20
    return folder


@pytest.fixture(scope="module")
def audit(output: Path) -> dict[str, Any]:
    """Its audit.json."""
    record: dict[str, Any] = json.loads((output / "audit.json").read_text())
    return record


def test_totals(audit: dict[str, Any]) -> None:
    data = audit["data"]
    assert data["requests"] == 12_031
    assert data["prompt_tokens"] == 144_793_823
    assert data["output_tokens"] == 4_122_048
    assert data["block_refs"] == 288_500
    assert data["distinct_blocks"] == 182_790
    assert data["block_size_tokens"] == 512
    assert data["evidence_grade"] == "A"
    assert data["cached_tokens"] is None


def test_reuse_by_every_denominator(audit: dict[str, Any]) -> None:
    reuse = audit["reuse"]
    assert reuse["reusable_ratio_blocks"] == pytest.approx(105_710 / 288_500, abs=1e-12)
    assert reuse["reusable_ratio_tokens"] == pytest.approx(54_098_411 / 144_793_823, abs=1e-12)
    assert reuse["reusable_ratio_requests_mean"] == pytest.approx(0.40938, abs=5e-6)
    assert reuse["reusable_ratio_full_blocks"] == pytest.approx(105_592 / 276_491, abs=1e-12)
    assert reuse["requests_with_reuse_ratio"] == pytest.approx(0.99992, abs=5e-6)


@pytest.mark.parametrize(
    ("capacity", "blocks", "tokens"),
    [
        (1_000, 0.0445, 0.0454),
        (10_000, 0.2116, 0.2158),
        (30_000, 0.3257, 0.3322),
        (50_000, 0.3546, 0.3615),
        (100_000, 0.3637, 0.3708),
    ],
)
def test_lru_curve(kvtrace: Run, output: Path, capacity: int, blocks: float, tokens: float) -> None:
    done = kvtrace(
        "query", output, "reuse/capacity_curve", "-p", f"capacities={capacity}", "--json"
    )
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["rows"]
    assert row["hit_ratio_blocks"] == pytest.approx(blocks, abs=0.002)
    assert row["hit_ratio_tokens"] == pytest.approx(tokens, abs=0.002)


def test_kv_bytes(audit: dict[str, Any]) -> None:
    kv = audit["kv"]
    assert kv["bytes_per_token"] == 327_680
    assert kv["bytes_requested"] == 144_793_823 * 327_680
    assert kv["bytes_requested_block_rounded"] == 288_500 * 512 * 327_680


def test_options_are_all_there(audit: dict[str, Any]) -> None:
    ids = [option["id"] for option in audit["options"]]
    assert {"hbm_only", "kv_routing", "dram_idle", "dram_idle_kv_routing"} <= set(ids)
    assert {"pool_dram_tcp", "pool_dram_rdma_bounce", "pool_dram_rdma_direct"} <= set(ids)


def test_routing_serves_most_of_what_a_pool_does(audit: dict[str, Any]) -> None:
    """A pool is worth what routing by the caches leaves: without it, it seems worth three times."""
    hits = {option["id"]: option["hit_ratio_tokens"] for option in audit["options"]}
    pool = hits["pool_dram_rdma_direct"]
    assert hits["kv_routing"] > 2 * hits["hbm_only"]
    assert hits["dram_idle_kv_routing"] > 0.8 * pool > 2.4 * hits["dram_idle"]
    assert audit["verdict"]["outcome"] != "pays"


def test_second_run_reuses_the_dataset_and_gives_the_same_bytes(
    kvtrace: Run, shared_dir: Path, output: Path, tmp_path: Path
) -> None:
    trace = shared_dir / "traces" / "mooncake_conversation.jsonl.zst"
    first = (output / "audit.json").read_bytes(), (output / "report.html").read_bytes()
    again = kvtrace("analyze", trace, "--llm", LLM, "--hardware", "H100-SXM5", "-o", output)
    assert again.returncode == 0, again.stderr
    assert "reus" in again.stderr
    assert ((output / "audit.json").read_bytes(), (output / "report.html").read_bytes()) == first
    other = kvtrace("analyze", trace, "--llm", LLM, "--hardware", "H100-SXM5", "-o", tmp_path)
    assert other.returncode == 0, other.stderr
    assert (tmp_path / "audit.json").read_bytes() == first[0]
    assert (tmp_path / "report.html").read_bytes() == first[1]


def test_azure_lengths_leave_reuse_unknown(kvtrace: Run, shared_dir: Path, tmp_path: Path) -> None:
    trace = shared_dir / "traces" / "azure2023_code.csv.gz"
    done = kvtrace("analyze", trace, "-o", tmp_path, "--json")
    assert done.returncode == 0, done.stderr
    audit = json.loads(done.stdout)
    assert audit["data"]["requests"] == 8_819
    assert audit["data"]["prompt_tokens"] == 18_059_974
    assert audit["data"]["output_tokens"] == 245_896
    assert audit["reuse"]["reusable_ratio_tokens"] is None
    assert audit["reuse"]["unknown_reason"]
    assert audit["verdict"]["outcome"] in {"cannot_tell", "does_not_pay"}


def test_vllm_timings_say_queue_not_length(kvtrace: Run, shared_dir: Path, tmp_path: Path) -> None:
    trace = shared_dir / "traces" / "vllm_requests_rtx4090_llama31_8b.jsonl.gz"
    done = kvtrace("analyze", trace, "-o", tmp_path, "--llm", "Meta-Llama-3.1-8B", "--json")
    assert done.returncode == 0, done.stderr
    audit = json.loads(done.stdout)
    finding = next(item for item in audit["findings"] if item["id"] == "queueing_dominates")
    assert "queue" in finding["message"].lower()
    assert "queue" in (tmp_path / "report.html").read_text().lower()
