"""Layers of one service through the command line, and what a log that misses requests may say."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvtrace.synth.generate import SynthRequest, generate
from kvtrace.synth.profile import sample_profile
from tests.e2e.conftest import Run

WORKER = (
    "INFO 11-06 09:00:01 [logger.py:41] Received request chatcmpl-a: params: SamplingParams(n=1, "
    "max_tokens=64), lora_request: None.",
    "2025-11-06T09:00:02.000001Z  INFO _core::llm::block_manager::vllm::connector::leader::slot: "
    "request set to finish: cached_gpu_tokens: 32; cached_host_tokens: 16; cached_disk_tokens: 0 "
    "request_id=chatcmpl-a",
    "INFO 11-06 09:00:03 [logger.py:41] Received request chatcmpl-b: params: SamplingParams(n=1, "
    "max_tokens=64), lora_request: None.",
    "2025-11-06T09:00:04.000001Z  INFO _core::llm::block_manager::vllm::connector::leader::slot: "
    "request set to finish: cached_gpu_tokens: 0; cached_host_tokens: 0; cached_disk_tokens: 48 "
    "request_id=chatcmpl-b",
    "INFO 11-06 09:00:05 [logger.py:41] Received request chatcmpl-c: params: SamplingParams(n=1, "
    "max_tokens=64), lora_request: None.",
    "INFO 11-06 09:00:06 [async_llm.py:120] Aborted request chatcmpl-c.",
)
Keep = Callable[[SynthRequest], bool]


def documents(kvtrace: Run, *arguments: str | Path) -> dict[str, Any]:
    done = kvtrace(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def test_engine_and_kv_layer_in_one_log_are_one_row_a_request(kvtrace: Run, tmp_path: Path) -> None:
    # a and b have a tier split, 48 tokens each; c was aborted before the KV layer saw it finish.
    log = tmp_path / "worker.log"
    log.write_text("".join(f"{line}\n" for line in WORKER), encoding="utf-8")
    document = documents(kvtrace, "ingest", log, "-o", tmp_path / "out")
    totals = document["totals"]
    assert totals["requests"] == 3
    assert totals["requests_by_status"] == {"cancelled": 1, "ok": 2}
    assert (totals["cached_tokens"], totals["cached_known_requests"]) == (96, 2)
    assert totals["cached_tiers"] == {"device": 32, "host": 16, "disk": 48, "remote": None}
    roles = {source["format"]: source["role"] for source in document["sources"]}
    assert roles == {"dynamo_text": "headline", "vllm_text": "joined"}
    assert "rows_of_another_layer" in {note["code"] for note in totals["notes"]}


def test_two_layers_of_one_program_in_two_files_are_one_row_a_request(
    kvtrace: Run, tmp_path: Path
) -> None:
    # Dynamo's frontend writes the completion, its worker the tiers: 200 - 48 = 152 prefilled.
    (tmp_path / "frontend.jsonl").write_text(
        '{"time":"2026-03-07T14:20:01.900000Z","level":"INFO","message":"request completed",'
        '"request_id":"a","input_tokens":200,"output_tokens":9,"elapsed_ms":"800.0"}\n',
        encoding="utf-8",
    )
    (tmp_path / "worker.log").write_text(
        "2026-03-07T14:20:01.850000Z  INFO vllm: request complete isl: 200 - cache hits: device: 16"
        ', host: 32, disk: 0 - prefilled: 152 request_id="a"\n',
        encoding="utf-8",
    )
    document = documents(kvtrace, "ingest", tmp_path, "-o", tmp_path / "out")
    totals = document["totals"]
    assert (totals["requests"], totals["prompt_tokens"], totals["output_tokens"]) == (1, 200, 9)
    assert totals["cached_tiers"] == {"device": 16, "host": 32, "disk": 0, "remote": None}
    assert [source["role"] for source in document["sources"]] == ["joined", "headline"]
    assert "id_conflicts" not in {note["code"] for note in totals["notes"]}


def test_a_prefill_and_a_decode_instance_log_each_request_once(
    kvtrace: Run, tmp_path: Path
) -> None:
    # Ten requests come to the prefill instance, and two seconds later to the decode instance.
    for name, later, tokens in (("decode", 2, 64), ("prefill", 0, 1)):
        (tmp_path / f"{name}.log").write_text(
            "".join(
                f"INFO 11-06 09:00:{n + later:02d} [logger.py:41] Received request cmpl-pd{n}: "
                f"params: SamplingParams(n=1, max_tokens={tokens}), lora_request: None.\n"
                for n in range(10)
            ),
            encoding="utf-8",
        )
    document = documents(kvtrace, "ingest", tmp_path, "-o", tmp_path / "out")
    assert document["totals"]["requests"] == 10
    roles = [(source["files"], source["role"]) for source in document["sources"]]
    assert roles == [([1], "headline"), ([0], "joined")]  # the prefill instance came first


def test_finish_lines_and_time_stats_in_two_files_are_one_row_a_request(
    kvtrace: Run, tmp_path: Path
) -> None:
    (tmp_path / "a-scheduler.log").write_text(
        "".join(
            f"[2025-12-02 10:00:1{n}] Req Time Stats(rid=r-{n}, input len=40, output len=5, "
            "type=unified): queue_duration=100.00ms, forward_duration=900.00ms, start_time=1.0\n"
            for n in range(4)
        ),
        encoding="utf-8",
    )
    (tmp_path / "b-server.log").write_text(
        "".join(
            f"[2025-12-02 10:00:1{n}] Finish: obj=GenerateReqInput(rid='r-{n}'), out={{'meta_info':"
            f" {{'id': 'r-{n}', 'prompt_tokens': 40, 'completion_tokens': 5, 'cached_tokens': 32, "
            "'e2e_latency': 1.5}}\n"
            for n in range(4)
        ),
        encoding="utf-8",
    )
    totals = documents(kvtrace, "ingest", tmp_path, "-o", tmp_path / "out")["totals"]
    assert (totals["requests"], totals["cached_tokens"], totals["output_tokens"]) == (4, 128, 20)
    assert "requests_logged_twice" not in {note["code"] for note in totals["notes"]}


def write_trace(path: Path, keep: Keep) -> Path:
    """The kept requests of the synthetic service, as a router that numbers blocks writes them."""
    names: dict[int, int] = {}
    with path.open("w", encoding="utf-8") as file:
        for one in generate(sample_profile(7)).requests:
            ids = [names.setdefault(block, len(names)) for block in one.block_ids]
            if keep(one):
                row = {
                    "timestamp": one.arrived_at_ns // 1_000_000,
                    "input_length": one.prompt_tokens,
                    "output_length": one.output_tokens,
                    "hash_ids": ids,
                }
                file.write(json.dumps(row) + "\n")
    return path


@pytest.fixture(scope="module")
def audit(kvtrace: Run, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Keep], Any]:
    """The audit of the requests that are kept."""

    def analyse(keep: Keep) -> Any:
        folder = tmp_path_factory.mktemp("sampled")
        trace = write_trace(folder / "trace.jsonl", keep)
        settings = ("--llm", "Meta-Llama-3.1-70B", "--hardware", "H100-SXM5", "--instances", "64")
        return documents(kvtrace, "analyze", trace, *settings, "-o", folder / "out")

    return analyse


def codes(audit: Any) -> set[str]:
    return {note["code"] for note in audit["data"]["notes"]}


def test_a_sampled_log_never_says_that_a_pool_does_not_pay(
    audit: Callable[[Keep], Any], tmp_path: Path
) -> None:
    whole = audit(lambda _: True)
    assert not {"sampling_bias", "session_sampled"} & codes(whole)
    assert whole["reuse"]["lower_bound_reason"] is None

    draws = random.Random(1)
    half = audit(lambda _: draws.random() < 0.7)
    assert "sampling_bias" in codes(half)
    assert half["reuse"]["reusable_ratio_tokens"] < whole["reuse"]["reusable_ratio_tokens"]
    assert "lower bound" in half["reuse"]["lower_bound_reason"]
    assert half["findings"][0]["id"] == "log_is_sampled"
    assert "At least" in half["findings"][0]["message"]
    assert half["verdict"]["outcome"] != "does_not_pay"
    assert "sampling off" in half["verdict"]["next_measurement"]["flag"]


def test_a_log_sampled_by_session_keeps_its_ratio(audit: Callable[[Keep], Any]) -> None:
    part = audit(lambda one: random.Random(f"3 {one.session}").random() < 0.6)
    assert "session_sampled" in codes(part)
    assert "sampling_bias" not in codes(part)
    assert part["reuse"]["lower_bound_reason"] is None
    assert part["verdict"]["outcome"] != "does_not_pay"
