"""What serves the traffic: stated, else from the logs, else a default that stays marked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvtrace.api.setup import check_names, choose_deployment, choose_fleet
from kvtrace.config import Settings, Value, resolve_settings
from kvtrace.errors import UsageError
from kvtrace.replay.options.presets import build_scenarios
from kvtrace.schema.manifest import Manifest, SourceEntry, Totals


@pytest.fixture(autouse=True)
def no_user_config(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No settings of whoever runs the tests."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("nobody")))


def told(**facts: str | int | float) -> Manifest:
    source = SourceEntry(
        source_id=0,
        format="vllm_text",
        evidence_grade="C",
        role="headline",
        files=[0],
        requests=1,
        samples=0,
        transfers=0,
        clock="naive",
        engine_facts=facts,
    )
    totals = Totals(
        requests=1,
        requests_by_status={"ok": 1},
        prompt_tokens=None,
        output_tokens=None,
        cached_tokens=None,
        cached_known_requests=0,
        cache_write_tokens=None,
        cached_tiers={},
        block_refs=None,
        distinct_blocks=None,
        block_size_tokens=None,
        samples=0,
        transfers=0,
        rejected=0,
    )
    return Manifest(
        schema_version=1,
        kvtrace_version="0",
        settings={},
        inputs_fingerprint="",
        files=[],
        sources=[source],
        domains=[],
        totals=totals,
        tables={},
        digest="",
    )


def settings(**flags: Value) -> Settings:
    return resolve_settings(flags, environment={})


LOGGED: dict[str, str | int | float] = {
    "llm": "meta-llama/Llama-3.1-8B-Instruct",
    "gpu": "NVIDIA L40S",
    "tensor_parallel": 2,
    "engines": 3,
    "dtype": "bfloat16",
    "kv_cache_dtype": "fp8_e4m3",
    "kv_capacity_tokens": 200_000,
}


def test_logs_say_what_nobody_stated() -> None:
    deployment, chosen = choose_deployment(settings(), told(**LOGGED))
    assert deployment.llm.name == "Meta-Llama-3.1-8B"
    assert deployment.hardware.gpu.name == "L40S"
    assert (deployment.tp, deployment.weight_dtype, deployment.kv_dtype) == (2, "bf16", "fp8")
    # measured: 200 000 tokens x 65 536 B (32 layers x 8 heads x 128 x 2 x 1 byte)
    assert deployment.hbm_cache_bytes == 200_000 * 65_536
    assert {chosen[name].origin for name in ("llm", "hardware", "tp", "kv_dtype")} == {"logs"}
    setup = choose_fleet(chosen, deployment, None, told(**LOGGED))
    assert setup.fleet.instances == 3


def test_the_scheduler_is_that_of_the_start_up_log() -> None:
    printed = told(**LOGGED, prefill_chunk_tokens=2048, running_requests=64, pipeline_parallel=2)
    deployment, _ = choose_deployment(settings(), printed)
    assert (deployment.prefill_chunk_tokens, deployment.measured_running_requests) == (2048, 64)
    assert deployment.pp == 2
    fleet = choose_fleet(settings(instances=1), deployment, None, printed).fleet
    scenario = build_scenarios(deployment, fleet)[1]
    assert (scenario.prefill_chunk_tokens, scenario.running_requests) == (2048, 64)
    assert scenario.stages == 2
    kinds = {one.id: one.kind for one in deployment.constants()}
    assert kinds["instance.prefill_chunk_tokens"] == "measured"
    default, _ = choose_deployment(settings(), told(**LOGGED))
    assert (default.prefill_chunk_tokens, default.measured_running_requests) == (8192, None)


def test_what_is_stated_wins_and_drops_what_the_log_says_of_another_llm() -> None:
    deployment, chosen = choose_deployment(
        settings(llm="Meta-Llama-3.1-70B", hardware="H100-SXM5", tp=8), told(**LOGGED)
    )
    assert deployment.llm.name == "Meta-Llama-3.1-70B"
    assert deployment.kv_dtype == "bf16"
    assert deployment.measured_kv_tokens is None
    assert chosen["llm"].origin == "flag"


def test_stating_what_the_log_says_keeps_the_rest_of_the_log() -> None:
    deployment, chosen = choose_deployment(settings(llm="Llama-3.1-8B"), told(**LOGGED))
    assert chosen["tp"].origin == "logs"
    assert deployment.measured_kv_tokens == 200_000


def test_stating_what_the_engine_printed_keeps_its_measured_room() -> None:
    same, _ = choose_deployment(settings(tp=2, kv_dtype="fp8", hardware="L40S"), told(**LOGGED))
    assert same.measured_kv_tokens == 200_000
    for other in ({"tp": 4}, {"kv_dtype": "bf16"}, {"hardware": "H100-SXM5"}):
        changed, _ = choose_deployment(settings(**other), told(**LOGGED))
        assert changed.measured_kv_tokens is None, other


def test_nothing_known_falls_back_to_marked_defaults() -> None:
    deployment, chosen = choose_deployment(settings(), told())
    assert (deployment.llm.name, deployment.hardware.gpu.name) == (
        "Meta-Llama-3.1-70B",
        "H100-SXM5",
    )
    assert deployment.tp == 8
    setup = choose_fleet(chosen, deployment, None, told())
    assert {one.name for one in setup.settings if not one.is_confirmed} == {
        "llm",
        "hardware",
        "tp",
        "instances",
        "weight_dtype",
        "kv_dtype",
    }


def test_an_llm_that_is_not_known_here_leaves_the_default_marked() -> None:
    _, chosen = choose_deployment(settings(), told(llm="acme/own-model-9T"))
    assert chosen["llm"].is_default


def test_unknown_names_are_refused_before_any_log_is_read() -> None:
    check_names(settings(llm="Meta-Llama-3.1-8B", hardware="L40S"))
    with pytest.raises(UsageError):
        check_names(settings(llm="lama"))
    with pytest.raises(UsageError):
        check_names(settings(hardware="H1000"))


def test_kv_is_in_what_the_checkpoint_asks_for_unless_a_log_or_a_setting_says_otherwise(
    tmp_path: Path,
) -> None:
    config = {
        "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "vocab_size": 128256,
        "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336,
        "quantization_config": {"kv_cache_quant_algo": "FP8"},
    }  # fmt: skip
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    silent, chosen = choose_deployment(settings(llm=str(path)), told())
    assert silent.kv_dtype == "fp8"
    assert chosen["kv_dtype"].is_default
    stated, _ = choose_deployment(settings(llm=str(path), kv_dtype="fp16"), told())
    assert stated.kv_dtype == "fp16"


def test_a_stated_slo_is_a_clients_and_knows_the_time_in_front_of_the_engine(
    tmp_path: Path,
) -> None:
    file = tmp_path / "fleet.toml"
    file.write_text('[slo]\nttft = "500 ms"\n')
    deployment, chosen = choose_deployment(settings(fleet=str(file), instances=1), told())
    slo = choose_fleet(chosen, deployment, None, told()).fleet.slo
    assert slo.ttft_s == 0.5
    assert slo.front_s == deployment.front_s(0) > 0
    assert slo.front_s + 1_000 * slo.front_s_per_token == pytest.approx(deployment.front_s(1_000))
