"""Steps that prompts and a decode batch share."""

from __future__ import annotations

import pytest

from kvtrace.cost.deployment import Deployment, build_deployment
from kvtrace.cost.step import StepModel


@pytest.fixture(scope="module")
def deployment() -> Deployment:
    return build_deployment("Llama-3.1-70B", "H100-SXM5", tp=8)


@pytest.fixture(scope="module")
def step(deployment: Deployment) -> StepModel:
    step = deployment.step
    assert isinstance(step, StepModel)
    return step


@pytest.mark.parametrize(("new", "cached"), [(320, 0), (4096, 0), (8192, 30_000)])
def test_a_lone_prompt_takes_its_prefill(
    deployment: Deployment, step: StepModel, new: int, cached: int
) -> None:
    seconds = step.step_s(new, step.work_s(new, cached))
    assert seconds == pytest.approx(deployment.prefill.prefill_s(new, cached), rel=1e-12)


def test_prompts_of_one_step_pay_the_overhead_once(deployment: Deployment, step: StepModel) -> None:
    # eight prompts of 512: GEMMs, host and overhead of 4 096 tokens, attention of 8 · 512² / 2
    prefill = step.prefill
    together = step.step_s(8 * 512, 8 * step.work_s(512, 0))
    assert together == prefill.tokens_s(4096) + 8 * prefill.attention_s(512, 0)
    less_attention = prefill.attention_s(4096, 0) - 8 * prefill.attention_s(512, 0)
    assert together == pytest.approx(prefill.prefill_s(4096, 0) - less_attention)
    assert together < 0.5 * 8 * prefill.prefill_s(512, 0)


def test_one_token_after_a_long_hit_rides_a_decode_step(
    deployment: Deployment, step: StepModel
) -> None:
    alone = step.step_s(1, step.work_s(1, 8191))
    assert alone == pytest.approx(deployment.decode.step_s(1, 8192), rel=0.03)
    assert deployment.prefill.prefill_s(1, 8191) > 2.5 * alone
    beside = step.step_s(1, step.work_s(1, 8191), batch=32, context_tokens=128_000)
    decoding = deployment.decode.step_s(32, 128_000)
    assert decoding < beside < 1.05 * decoding


def test_the_price_of_short_prompts_meets_the_prefill_where_memory_stops_to_bind(
    deployment: Deployment, step: StepModel
) -> None:
    balance = step.prefill.balance_tokens
    # 989e12 · 0.722 FLOP/s against 3.35e12 · 0.755 B/s and 2 B a weight
    assert balance == pytest.approx(989e12 * 0.722 / (3.35e12 * 0.755), rel=1e-3)
    below, above = (step.step_s(balance * factor, 0.0) for factor in (1 - 1e-9, 1 + 1e-9))
    assert below == pytest.approx(above, rel=1e-6)
    half = step.step_s(balance / 2, 0.0)
    assert half == pytest.approx((step.decode.weights_s(1) + above) / 2, rel=1e-6)


def test_a_mixed_step_reads_the_weights_once(deployment: Deployment, step: StepModel) -> None:
    # beside 64 decoders 4 096 tokens of prefill cost 64 tokens of compute and their KV more
    work_s = step.work_s(4096, 0)
    mixed = step.step_s(4096, work_s, batch=64, context_tokens=256_000)
    kv_s = step.decode.kv_s(64, 256_000)
    riding = 64 * (step.prefill.gemm_token_s + step.prefill.token_s)
    assert mixed == pytest.approx(step.step_s(4096, work_s) + kv_s + riding)


def test_a_prompt_that_goes_on_pays_no_overhead_again(
    deployment: Deployment, step: StepModel
) -> None:
    # 20 000 tokens: two full steps, then 3 616 tokens
    first = step.step_s(16_384, step.work_s(16_384, 0), steps=2)
    rest_s = step.work_s(20_000, 0) - step.work_s(16_384, 0)
    rest = step.step_s(3_616, rest_s, is_start=False)
    assert first + rest == pytest.approx(deployment.prefill.prefill_s(20_000, 0))
    # and a last token costs a step that reads the weights
    assert step.step_s(1, 0.0, is_start=False) == step.decode.weights_s(1)


def test_no_token_takes_no_step(step: StepModel) -> None:
    assert step.step_s(0, 0.0) == 0.0
    assert step.step_s(0, 0.0, batch=4, context_tokens=10) == step.decode.step_s(4, 10)
