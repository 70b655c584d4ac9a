"""What one reused token is worth: GPU-seconds, USD, and how often a trace fits into a month."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvtrace.audit.sizing.value import reuse_value, windows_per_month
from kvtrace.audit.sizing.worth import ReuseValue
from kvtrace.audit.uncertainty.ranges import Range
from kvtrace.cost.fleet import Fleet
from tests.unit.audit_fakes import make_deployment, make_fleet, make_trace


def test_a_token_is_worth_the_prefill_that_it_spares() -> None:
    # Every request but the first reuses 7 000 of 10 000 tokens: the spared prefill of one of them,
    # on eight GPUs, over 7 000. USD: $3.00 an hour, of a fleet that is busy for 70 %.
    deployment, fleet = make_deployment(), make_fleet()
    found = reuse_value(make_trace(), deployment, fleet)
    assert found is not None
    prefill = deployment.prefill
    spared_s = prefill.prefill_s(10_000.0, 0.0) - prefill.prefill_s(3_000.0, 7_000.0)
    gpu_s = spared_s * 8 / 7_000
    assert found.tokens == 7_000 * 1_999
    assert found.gpu_s_per_token.value == pytest.approx(gpu_s, rel=1e-9)
    assert found.usd_per_token is not None
    assert found.usd_per_token.value == pytest.approx(gpu_s * 3.0 / 3600 / 0.7, rel=1e-9)
    assert found.gpu_s_per_token.low < gpu_s < found.gpu_s_per_token.high


def test_a_gb_holds_as_many_tokens_as_fit() -> None:
    # 200 000 bytes a token: 5 000 tokens in 10^9 bytes, at $2e-6 each: one cent a hit.
    worth = ReuseValue(Range.exact(1e-3), Range.exact(2e-6), 1)
    usd = worth.usd_per_gb(200_000.0)
    assert usd is not None
    assert usd.value == pytest.approx(0.01)
    assert worth.gpu_s_per_gb(200_000.0).value == pytest.approx(5.0)


def test_where_no_reuse_is_known_whole_prompts_stand_for_hits() -> None:
    # All but the last of 10 000 tokens: what it spares, on eight GPUs, over 9 999.
    deployment, fleet = make_deployment(), make_fleet()
    trace = make_trace()
    for bare in (make_trace(shared_blocks=0), replace(trace, distinct_blocks=0)):
        found = reuse_value(bare, deployment, fleet)
        assert found is not None
        assert not found.is_of_reuse
        prefill = deployment.prefill
        spared_s = prefill.prefill_s(10_000.0, 0.0) - prefill.prefill_s(1.0, 9_999.0)
        assert found.gpu_s_per_token.value == pytest.approx(spared_s * 8 / 9_999, rel=1e-9)
    assert reuse_value(None, deployment, fleet) is None
    assert (
        reuse_value(replace(trace, prompt_tokens=trace.prompt_tokens * 0), deployment, fleet)
        is None
    )


def usd_per_token(fleet: Fleet) -> float | None:
    found = reuse_value(make_trace(), make_deployment(), fleet)
    assert found is not None
    return None if found.usd_per_token is None else found.usd_per_token.value


def test_a_dearer_gpu_makes_a_token_worth_more() -> None:
    fleet = make_fleet()
    dear = replace(fleet, gpu_usd_per_hour=fleet.gpu_usd_per_hour.given(6.0, source="test"))
    low, high = usd_per_token(fleet), usd_per_token(dear)
    assert low is not None
    assert high == pytest.approx(2 * low)


def test_reserved_gpus_save_nothing_so_that_a_token_has_no_price() -> None:
    fleet = make_fleet()
    kind = replace(fleet.contract.kind, value="reserved")
    assert usd_per_token(replace(fleet, contract=replace(fleet.contract, kind=kind))) is None


@pytest.mark.parametrize(
    ("span_s", "windows"), [(None, None), (60.0, None), (3_650.0, 720.0), (2_628_000.0, 1.0)]
)
def test_a_month_is_730_hours_of_windows_that_are_long_enough(
    span_s: float | None, windows: float | None
) -> None:
    assert windows_per_month(span_s) == windows
