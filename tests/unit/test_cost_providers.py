"""Prefill and decode seconds from another package: a small stand-in of it, and the real one."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

from kvtrace import api
from kvtrace.config import resolve_settings
from kvtrace.cost import Deployment, build_deployment
from kvtrace.cost.fleet import default_fleet
from kvtrace.cost.providers import aiconfigurator as provider
from kvtrace.errors import ModelError, UsageError
from kvtrace.replay.options.presets import build_scenarios

COMPILED: list[tuple[str, str, str, dict[str, object]]] = []


class _Handle:
    """Milliseconds: 1 per new token + 0.001 per pair of new and cached; decode 2 + batch."""

    @classmethod
    def compile(cls, model: str, system: str, framework: str, **options: object) -> _Handle:
        if framework == "trtllm":
            raise RuntimeError("perf database error: no tables at /somewhere/of/theirs")
        COMPILED.append((model, system, framework, options))
        return cls()

    def predict_prefill_latency(self, bs: int, isl: int, prefix: int = 0) -> float:
        new = isl - prefix
        return new + 0.001 * new * prefix

    def predict_decode_latency(self, bs: int, isl: int, osl: int = 2) -> float:
        return 2.0 + bs + 0.01 * isl

    def mixed_step_breakdown(
        self, ctx_tokens: int, gen_tokens: int, isl: int, osl: int, prefix: int = 0
    ) -> tuple[float, float, float, float]:
        shared = 0.75 * ctx_tokens + 2.0 * gen_tokens
        return shared + 1.0, shared, 0.5, 0.5


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    sdk, common = (
        ModuleType("aiconfigurator_core.sdk"),
        ModuleType("aiconfigurator_core.sdk.common"),
    )
    sdk.__dict__["EngineHandle"] = _Handle
    common.__dict__["DefaultHFModels"] = {
        "nvidia/Llama-3.1-70B-NVFP4", "meta-llama/Meta-Llama-3.1-70B", "Qwen/Qwen3-30B-A3B",
        "mistralai/Mixtral-8x7B-v0.1", "moonshotai/Kimi-K2.5",
    }  # fmt: skip
    monkeypatch.setitem(sys.modules, "aiconfigurator_core", ModuleType("aiconfigurator_core"))
    monkeypatch.setitem(sys.modules, "aiconfigurator_core.sdk", sdk)
    monkeypatch.setitem(sys.modules, "aiconfigurator_core.sdk.common", common)
    COMPILED.clear()
    provider._engine.cache_clear()
    yield
    provider._engine.cache_clear()


def _llama(**changed: object) -> Deployment:
    options = {"tp": 8, "provider": "aiconfigurator", **changed}
    return build_deployment("Llama-3.1-70B", "H100-SXM5", **options)  # type: ignore[arg-type]


def test_prefill_and_decode_are_the_sum_of_its_kernels(package: None) -> None:
    llama = _llama()
    # 100 new after 1 900: 100 + 0.001 x 190 000 ms
    assert llama.prefill.prefill_s(100.0, 1_900.0) == pytest.approx(0.290)
    assert llama.prefill.prefill_s(0.0, 1_900.0) == 0.0
    # four sequences of 500 tokens: 2 + 4 + 5 ms
    assert llama.decode.step_s(4, 2_000) == pytest.approx(0.011)
    assert llama.decode.step_s(0, 0) == 0.0
    assert COMPILED == [
        ("meta-llama/Meta-Llama-3.1-70B", "h100_sxm", "vllm",
         {"tp_size": 8, "pp_size": 1, "attention_dp_size": 1,
          "kvcache_quant_mode": "bfloat16", "fmha_quant_mode": "bfloat16"}),
    ]  # fmt: skip


def test_a_mixed_step_shares_all_but_attention(package: None) -> None:
    step = _llama().step
    # attention of 100 after 1 900: 290 - 75 ms; a lone request takes its prefill
    work_s = step.work_s(100.0, 1_900.0)
    assert work_s == pytest.approx(0.215)
    assert step.added_s(100, work_s, steps=1, is_start=True, batch=0) == pytest.approx(0.290)
    # beside eight sequences the 16 ms that those take anyway are not added
    assert step.added_s(100, work_s, steps=1, is_start=True, batch=8) == pytest.approx(0.290)
    assert step.added_s(100, work_s, steps=4, is_start=False, batch=8) == pytest.approx(0.290)
    assert step.added_s(0, work_s, steps=1, is_start=True, batch=8) == work_s
    assert step.work_s(0, 1_900) == 0.0


def test_a_replay_and_its_assumptions_name_the_tables(package: None) -> None:
    llama = _llama()
    scenario = build_scenarios(llama, default_fleet(llama, 1))[0]
    assert scenario.prefill.prefill_s(100, 1_900) == pytest.approx(0.290)
    shown = {one.id: one for one in llama.constants() if one.id.startswith("aiconfigurator.")}
    # 2 048 new tokens; 32 sequences of 2 048: 2 + 32 + 20.48 ms
    assert shown["aiconfigurator.prefill_s"].value == pytest.approx(2.048)
    assert shown["aiconfigurator.decode_step_s"].value == pytest.approx(0.05448)
    assert "kernels of vllm on h100_sxm" in shown["aiconfigurator.prefill_s"].source
    assert not [one for one in llama.constants() if one.id.startswith("efficiency.")]


def test_the_ledger_says_whose_seconds_it_shows(package: None) -> None:
    flags: dict[str, str | int] = {"llm": "Llama-3.1-70B", "hardware": "H100", "tp": 8}
    settings = resolve_settings(flags | {"cost_provider": "aiconfigurator:sglang"})
    outcome = api.ledger(tokens=2_000, cached=1_900, paths=("20GB/s",), settings=settings)
    document = json.loads(outcome.to_json())
    assert document["cost_provider"].endswith("kernels of sglang on h100_sxm, "
                                              "meta-llama/Meta-Llama-3.1-70B")  # fmt: skip
    # 2 000 - 290 ms
    assert document["request"]["recompute_s"]["value"] == pytest.approx(1.710)
    assert "kernels of sglang" in " ".join(outcome.lines(100))
    own = api.ledger(paths=("20GB/s",), settings=resolve_settings(flags))
    assert json.loads(own.to_json())["cost_provider"] == "kvtrace"


def test_experts_are_cut_over_the_ranks_and_formats_are_passed_on(package: None) -> None:
    build_deployment("Qwen3-30B-A3B", "H200", tp=4, weight_dtype="fp8", kv_dtype="fp8",
                     provider="aiconfigurator").prefill.prefill_s(1, 0)  # fmt: skip
    model, system, _, options = COMPILED[0]
    assert (model, system) == ("Qwen/Qwen3-30B-A3B", "h200_sxm")
    assert options["gemm_quant_mode"] == options["moe_quant_mode"] == "fp8"
    assert (options["kvcache_quant_mode"], options["moe_tp_size"]) == ("fp8", 4)
    build_deployment("Mixtral-8x7B", "H200", tp=2, provider="aiconfigurator").decode.step_s(1, 1)
    assert COMPILED[1][0] == "mistralai/Mixtral-8x7B-v0.1"
    spread = build_deployment("Qwen3-30B-A3B", "H200", tp=2, dp=4, provider="aiconfigurator")
    _ = spread.prefill
    words = ("tp_size", "attention_dp_size", "moe_tp_size", "moe_ep_size")
    assert [COMPILED[2][3][word] for word in words] == [2, 4, 1, 8]


@pytest.mark.parametrize(
    ("llm", "gpu", "changed", "code"),
    [
        ("Llama-3.1-70B", "MI300X", {}, "KVT-C102"),
        ("Kimi-K2", "H200", {"tp": 8}, "KVT-C103"),
        ("Llama-3.1-70B", "H100", {"kv_dtype": "nvfp4"}, "KVT-C104"),
        ("Llama-3.1-70B", "H100", {"weight_dtype": "mxfp4"}, "KVT-C104"),
        ("Llama-3.1-70B", "H100", {"provider": "aiconfigurator:trtllm"}, "KVT-C105"),
    ],
)
def test_what_its_tables_lack_is_said_with_a_way_out(
    package: None, llm: str, gpu: str, changed: dict[str, object], code: str
) -> None:
    options = {"tp": 8, "provider": "aiconfigurator", **changed}
    deployment = build_deployment(llm, gpu, **options)  # type: ignore[arg-type]
    with pytest.raises(ModelError) as caught:
        _ = deployment.prefill
    assert caught.value.code == code
    assert "--cost-provider kvtrace" in (caught.value.hint or "")
    assert "/somewhere" not in (caught.value.cause or "")


def test_without_the_package_the_hint_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiconfigurator_core", None)
    with pytest.raises(UsageError) as caught:
        _ = _llama().prefill
    assert caught.value.code == "KVT-C101"
    assert "`pip install 'kvtrace[aiconfigurator]'`" in (caught.value.hint or "")


def test_a_provider_that_nobody_knows_is_refused() -> None:
    with pytest.raises(UsageError, match="must be kvtrace, aiconfigurator"):
        _ = _llama(provider="aiconfigurator:tgi").prefill
    with pytest.raises(UsageError, match="cost_provider"):
        resolve_settings({"cost_provider": "aiconfigurator:tgi"})


@pytest.mark.skipif(
    importlib.util.find_spec("aiconfigurator_core") is None,
    reason="aiconfigurator-core is not installed: `pip install 'kvtrace[aiconfigurator]'`",
)
def test_the_package_itself_prices_a_prefill_near_our_own() -> None:
    own, theirs = _llama(provider="kvtrace"), _llama()
    for new, cached in ((2_000, 0), (8_192, 0), (2_000, 30_000)):
        ratio = theirs.prefill.prefill_s(new, cached) / own.prefill.prefill_s(new, cached)
        assert 0.5 < ratio < 1.5  # kernels alone, so that it is below one as a rule
    # a step's parts add up to the prefill of a lone request
    work_s = theirs.step.work_s(2_000, 0)
    alone_s = theirs.step.added_s(2_000, work_s, steps=1, is_start=True, batch=0)
    assert alone_s == pytest.approx(theirs.prefill.prefill_s(2_000, 0))


def test_an_llm_without_published_flops_is_priced_by_its_kernels(
    package: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    common = sys.modules["aiconfigurator_core.sdk.common"]
    monkeypatch.setitem(common.__dict__, "DefaultHFModels", {"deepseek-ai/DeepSeek-V4-Flash"})
    own = build_deployment("DeepSeek-V4-Flash", "H200", tp=8)
    theirs = build_deployment("DeepSeek-V4-Flash", "H200", tp=8, provider="aiconfigurator")
    assert not own.knows_times
    assert theirs.knows_times
    assert theirs.prefill.prefill_s(1_000, 0) == pytest.approx(1.0)
    assert any(one.id == "aiconfigurator.prefill_s" for one in theirs.constants())
