"""Uncertainty of the verdict: closed forms, the surrogate's own error, and what the record says."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import msgspec
import numpy as np
import pytest
from scipy.special import ndtri
from scipy.stats import qmc

from kvtrace.audit import jsonio
from kvtrace.audit.build import build_audit
from kvtrace.audit.money.bills import Bills
from kvtrace.audit.money.gpu_worth import gpu_worth
from kvtrace.audit.slo.check import check_slo
from kvtrace.audit.slo.ends import Claim, RunKey
from kvtrace.audit.uncertainty import sampling
from kvtrace.audit.uncertainty.design import (
    Bracket,
    ReplayedDesign,
    Response,
    SessionShifts,
    coordinates_of,
    sobol_shares,
    values_at,
)
from kvtrace.audit.uncertainty.margins import kept_margin, missed_margin
from kvtrace.audit.uncertainty.predictor import predict_figure
from kvtrace.audit.uncertainty.prices import PriceModel
from kvtrace.audit.uncertainty.quantiles import estimate, quantile
from kvtrace.audit.uncertainty.record import Uncertainty
from kvtrace.audit.uncertainty.resampled import Draws, reuse_spread
from kvtrace.audit.uncertainty.sampled import sampled_uncertainty
from kvtrace.audit.uncertainty.sampling import Model, draw_samples
from kvtrace.audit.uncertainty.sessions import (
    draw,
    drawn_requests,
    resampled_sums,
    resampling_units,
)
from kvtrace.audit.uncertainty.surrogate import fit_surrogate, left_out_error
from kvtrace.audit.uncertainty.swings import swing, switch_point
from kvtrace.audit.uncertainty.unknowns import Unknown, unknown_of
from kvtrace.audit.uncertainty.worth import worth_of_knowing, worth_of_knowing_all
from kvtrace.audit.verdict.cases import Chance
from kvtrace.cost.fleet import Fleet
from kvtrace.cost.fleet.fleet import GpuContract
from kvtrace.cost.residuals import held_out_error
from kvtrace.schema.arrays import FloatArray
from tests.unit.audit_fakes import make_fleet, make_input, make_result, make_trace

POOL = "pool_dram_rdma_direct"


@pytest.fixture(autouse=True)
def _few_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """512 samples instead of 2 048: pricing each takes its time."""
    monkeypatch.setattr(sampling, "POINTS", 64)


def unknown(low: float, value: float, high: float, **changes: Any) -> Unknown:
    base: dict[str, Any] = {
        "id": "x",
        "title": "an input",
        "unit": "USD",
        "distribution": "triangular",
        "kind": "assumed",
        "source": "a test",
    }
    return Unknown(low=low, value=value, high=high, **(base | changes))


# --- distributions -----------------------------------------------------------------------------


def test_a_triangular_input_has_its_mode_where_the_area_below_it_says() -> None:
    # Of 0, 2, 10: a fifth of the area lies below 2. Above: 10 - sqrt((1 - u) 10 · 8); u = 0.55: 4.
    one = unknown(0.0, 2.0, 10.0)
    assert one.at(np.array([0.0, 0.2, 0.55, 1.0])) == pytest.approx([0.0, 2.0, 4.0, 10.0])


def test_a_range_of_more_than_a_decade_is_log_uniform() -> None:
    # 0.0002 to 0.005 s is a factor of 25; half of the samples lie below 1 ms, the geometric mean.
    fleet = make_fleet()
    wide = replace(fleet.release_days, value=0.001, low=0.0002, high=0.005)
    one = unknown_of(wide)
    assert one is not None
    assert one.distribution == "log_uniform"
    assert one.at(np.array([0.5]))[0] == pytest.approx(0.001)
    assert one.coordinate(np.array([0.0002, 0.001, 0.005])) == pytest.approx([-1.0, 0.0, 1.0])
    assert unknown_of(replace(wide, low=0.001, high=0.001)) is None


def test_the_ends_of_a_lognormal_error_are_its_5th_and_95th_percentile() -> None:
    one = unknown(0.8, 1.0, 1.25, distribution="lognormal")
    assert one.at(np.array([0.05, 0.5, 0.95])) == pytest.approx([0.8, 1.0, 1.25])


def test_the_model_error_follows_from_the_held_out_quantiles() -> None:
    # Median 14.5 %: ln 1.145 / 0.6745 = 0.2007; P90 33.4 %: ln 1.334 / 1.6449 = 0.1752.
    error = held_out_error("prefill", is_moe=False)
    assert error.sigma == pytest.approx(0.2007, abs=1e-4)
    # exp(1.6449 · 0.2007) = 1.391, and its inverse.
    assert error.factor.high == pytest.approx(1.391, abs=1e-3)
    assert error.factor.low == pytest.approx(0.7188, abs=1e-3)
    # Experts: ln 1.605 / 1.6449 = 0.2876 is more than ln 1.201 / 0.6745 = 0.2716.
    assert held_out_error("prefill", is_moe=True).sigma == pytest.approx(0.2876, abs=1e-4)


# --- one at a time -----------------------------------------------------------------------------


def test_a_linear_model_swings_by_its_coefficient_times_the_range() -> None:
    # -300 x over 1 to 5: 700 at 1, -500 at 5; the root of 1000 - 300 x is 10/3.
    found = swing(unknown(1.0, 2.0, 5.0), lambda x: 1000.0 - 300.0 * x)
    assert (found.at_low, found.at_high, found.width) == (700.0, -500.0, 1200.0)
    assert found.switch == pytest.approx(10 / 3, rel=1e-11)


def test_a_step_flips_where_it_stands() -> None:
    def whole(x: float) -> float:
        return 500.0 if x < 3.7 else -500.0

    assert switch_point(unknown(0.0, 1.0, 10.0), whole) == pytest.approx(3.7, rel=1e-11)


def test_of_two_changes_of_sign_the_nearer_one_is_told() -> None:
    # (x - 2)(x - 9): below zero between; from 8 the root 9 is nearer, from 3 the root 2.
    def net(x: float) -> float:
        return (x - 2.0) * (x - 9.0)

    assert switch_point(unknown(0.0, 8.0, 10.0), net) == pytest.approx(9.0)
    assert switch_point(unknown(0.0, 3.0, 10.0), net) == pytest.approx(2.0)


def test_a_sign_that_holds_over_the_range_has_no_switch_point() -> None:
    assert switch_point(unknown(0.0, 1.0, 3.0), lambda x: 1000.0 - 300.0 * x) is None


# --- value of information ----------------------------------------------------------------------


def normals(dimensions: int) -> FloatArray:
    return np.asarray(ndtri(np.clip(sobol_shares(dimensions, 4096, 3, 0), 1e-9, 1 - 1e-9)))


def test_knowing_a_normal_net_value_is_worth_its_closed_form() -> None:
    # Mean -100, deviation 300: 300 φ(1/3) - 100 Φ(-1/3) = 113.17 - 36.94 = 76.2.
    net = 300.0 * normals(1)[:, 0] - 100.0
    assert worth_of_knowing(net, net) == pytest.approx(76.2, rel=0.01)
    assert worth_of_knowing_all(net) == pytest.approx(76.2, rel=0.01)


def test_only_the_part_that_an_input_tells_is_worth_something() -> None:
    # net = x + y - 100, deviations 300 and 400: knowing x alone is worth 76.2 again, all of it
    # 500 φ(0.2) - 100 Φ(-0.2) = 195.5 - 42.1 = 153.5, a constant nothing.
    x, y = (normals(2) * [300.0, 400.0]).T
    net = x + y - 100.0
    assert worth_of_knowing(x, net) == pytest.approx(76.2, rel=0.05)
    assert worth_of_knowing_all(net) == pytest.approx(153.5, rel=0.05)
    assert worth_of_knowing(np.ones_like(net), net) == 0.0


# --- the surrogate -----------------------------------------------------------------------------


def points(count: int, inputs: int) -> FloatArray:
    sequence = qmc.Sobol(inputs, scramble=True, rng=np.random.default_rng(5))
    return np.asarray(2.0 * sequence.random(count) - 1.0)


def test_the_leave_one_out_error_equals_leaving_each_point_out() -> None:
    where = points(16, 2)
    values = np.exp(where[:, 0]) + where[:, 1] ** 3
    found = fit_surrogate(where, values)
    assert found is not None
    assert found.terms == "squares"
    for left in range(16):
        others = np.arange(16) != left
        basis = np.hstack([np.ones((16, 1)), where, where**2])
        weights, *_ = np.linalg.lstsq(basis[others], values[others], rcond=None)
        assert found.left_out[left] == pytest.approx(basis[left] @ weights, rel=1e-9)


def test_a_quadratic_is_met_and_too_few_points_are_refused() -> None:
    where = points(16, 2)
    values = 3.0 + where[:, 0] - 2.0 * where[:, 1] ** 2
    found = fit_surrogate(where, values)
    assert found is not None
    assert found.terms == "squares"
    assert found.at(np.array([[0.5, 0.5]]))[0] == pytest.approx(3.0)
    assert left_out_error(found.left_out, values, 3.0) < 1e-9
    # Beyond the points nothing is extrapolated.
    edge = found.at(where.max(axis=0)[None, :])
    assert found.at(np.array([[9.0, 9.0]])) == pytest.approx(edge)
    assert fit_surrogate(where[:4], values[:4]) is None


def design(of: Callable[[FloatArray], tuple[float, ...]], **changes: Any) -> ReplayedDesign:
    """32 drawn points, the middle and the ends of two inputs, answered by `of` (coordinates)."""
    inputs = (unknown(-1.0, 0.0, 1.0, id="a"), unknown(-1.0, 0.0, 1.0, id="b"))
    values = values_at(inputs, sobol_shares(2, 32, 1, 0))

    def answer(row: FloatArray) -> Response:
        return Response(of(row), float(row[0]) + 2.0, 1000.0, 0.5)

    ends = tuple((answer(np.eye(2)[place] * -1.0), answer(np.eye(2)[place])) for place in range(2))
    fields: dict[str, Any] = {
        "option_id": POOL,
        "rival_id": "hbm_only",
        "claim": Claim(RunKey(POOL, 7, "always"), (RunKey("hbm_only", 7, "always"),)),
        "instances": 1,
        "unknowns": inputs,
        "values": values,
        "middle": answer(np.zeros(2)),
        "points": tuple(answer(row) for row in values),
        "ends": ends,
    }
    return ReplayedDesign(**(fields | changes))


def test_a_kinked_figure_refuses_its_surrogate_and_a_smooth_one_does_not() -> None:
    smooth = design(lambda row: (float(row[0]), 1.0))
    assert predict_figure(smooth, lambda r: r.margins[0] + 5.0, 5.0).is_surrogate
    kinked = predict_figure(smooth, lambda r: 10.0 * (r.margins[0] > 0.3), 5.0)
    assert not kinked.is_surrogate
    assert kinked.error is not None
    assert kinked.error > 0.1


def prices_of(fleet: Fleet) -> PriceModel:
    return PriceModel(POOL, Bills(fleet), gpu_worth(fleet))


def model(answers: ReplayedDesign) -> Model:
    return Model(prices_of(make_fleet()), answers, 90_000.0)


@cache
def half(seed: int) -> Uncertainty:
    """The margin is a - 0.5: the claim holds for a <= 0.5."""
    answers = design(lambda row: (float(row[0]) - 0.5, 1.0))
    return sampled_uncertainty(model(answers), rival="HBM only", seed=seed)


def test_a_claim_that_depends_on_one_input_holds_as_often_as_that_input_is_small() -> None:
    # Triangular -1, 0, 1: 1 - 0.5² / 2 = 0.875 lies below 0.5. An instance is worth $17,520 a month
    # at $3.00, all prices of the pool leave some of it.
    found = half(4)
    assert found.p_pays == pytest.approx(0.875, abs=0.01)
    assert found.p_pays_error is not None
    assert found.p_pays_error < 0.01
    (net,) = (one for one in found.spreads if one.id == "value_minus_cost_usd_per_month")
    assert net.method == "surrogate"
    assert net.left_out_error == 0.0
    inputs = {one.id: one for one in found.inputs}
    assert inputs["a"].switch_value == pytest.approx(0.5, abs=1e-6)
    assert inputs["b"].switch_value is None
    assert inputs["b"].net_at_low == inputs["b"].net_at_high == found.net_middle
    worth = {one.id: one.worth_usd_per_month or 0.0 for one in found.inputs}
    assert max(worth, key=lambda name: worth[name]) == "a"


def test_a_switch_point_of_the_fit_lies_where_replays_found_it() -> None:
    # The margin is a - 0.5: replays at 0.5 and below keep the claim, at 0.5625 it is lost.
    probes = tuple((at, Response((at - 0.5, 1.0), 2.0, 1000.0, 0.5)) for at in (0.5, 0.5625))
    brackets = {"a": Bracket(0.5, 0.5625, probes)}
    answers = design(lambda row: (float(row[0]) - 0.5, 1.0), brackets=brackets)
    assert len(answers.replayed) == len(answers.coordinates) == 32 + 1 + 4 + 2
    found = sampled_uncertainty(model(answers), rival="HBM only", seed=4)
    known = next(one for one in found.inputs if one.id == "a")
    assert known.switch_between == [0.5, 0.5625]
    assert known.switch_value == pytest.approx(0.5, abs=1e-6)


def test_a_refused_surrogate_leaves_the_replayed_points_and_a_wider_error() -> None:
    # The margin jumps: a cubic of it misplaces points, and one of them is worth more than a tenth.
    def jumps(row: FloatArray) -> tuple[float, ...]:
        return (-1.0 if math.sin(9.0 * row[0]) + math.sin(7.0 * row[1]) < 0 else 1.0, 1.0)

    answers = design(jumps)
    held = np.mean([point.is_claim_held for point in answers.points])
    found = sampled_uncertainty(model(answers), rival="HBM only", seed=4)
    net = found.spreads[0]
    assert net.method == "direct"
    assert net.left_out_error is not None
    assert net.left_out_error > 0.1
    assert "refused" in net.says
    assert found.p_pays == pytest.approx(held, abs=0.02)
    # 32 points: sqrt(p (1 - p) / 36) at most 0.083, and no less than a tenth of that.
    assert found.p_pays_error is not None
    assert 0.05 < found.p_pays_error < 0.2
    flips = [one for one in found.inputs if one.switch_between is not None]
    assert all(one.switch_value is None for one in flips)


def test_a_seed_gives_the_same_bytes_and_another_one_stays_within_the_error() -> None:
    first, again, other = half(4), half.__wrapped__(4), half(5)
    assert msgspec.json.encode(first) == msgspec.json.encode(again)
    for mine, theirs in zip(first.spreads, other.spreads, strict=True):
        for name in ("p10", "p90"):
            error = math.hypot(getattr(mine, f"{name}_error"), getattr(theirs, f"{name}_error"))
            assert abs(getattr(mine, name) - getattr(theirs, name)) <= 4 * error + 1e-9
    assert first.spreads[0].p10 != other.spreads[0].p10


def test_session_shifts_widen_the_chance_and_are_one_of_the_inputs() -> None:
    # At the middle the margin is -0.1; a quarter of the draws add 0.2 and lose the claim.
    shifts = SessionShifts(
        margins=np.repeat([[0.0, 0.0], [0.2, 0.0]], [75, 25], axis=0),
        freed=np.ones(100),
        extra=np.ones(100),
        unit="sessions",
        units=500,
    )
    answers = design(lambda row: (-0.1, 1.0), shifts=shifts)
    found = sampled_uncertainty(model(answers), rival="HBM only", seed=4)
    assert found.p_pays == pytest.approx(0.75, abs=0.01)
    sessions = next(one for one in found.inputs if one.id == "sessions")
    assert sessions.net_at_high < 0 < sessions.net_at_low
    assert (found.resampled, found.resampled_units) == ("sessions", 500)


def test_without_a_smaller_fleet_only_prices_are_sampled() -> None:
    answers = design(lambda row: (), claim=None, instances=0)
    found = sampled_uncertainty(model(answers), rival="HBM only", seed=4)
    assert found.p_pays == 0.0
    assert found.spreads[0].method == "exact"
    assert found.spreads[0].p90 is not None
    assert found.spreads[0].p90 < 0


def test_samples_of_prices_lie_in_their_ranges() -> None:
    samples = draw_samples(model(design(lambda row: (-1.0, 1.0))), 4)
    for one in prices_of(make_fleet()).unknowns:
        drawn = samples.inputs[one.id]
        assert one.low <= drawn.min() < drawn.max() <= one.high
        assert abs(np.mean(drawn) - (one.low + one.value + one.high) / 3) < 0.05 * (
            one.high - one.low
        )


def test_the_error_of_a_quantile_is_the_spread_over_scrambles() -> None:
    # Eight rows whose medians are 0 to 7: deviation sqrt(6) over sqrt(8).
    rows = np.arange(8.0)[:, None] + np.linspace(-0.1, 0.1, 3)
    found = estimate(rows, quantile(0.5), point=None, seed=1)
    assert found.error == pytest.approx(math.sqrt(6.0 / 8.0))


# --- money -------------------------------------------------------------------------------------


def test_net_is_that_of_the_carrying_number_and_moves_with_a_price() -> None:
    # $3.00 an hour, 8 GPUs, 730 h: $17,520 an instance; a dollar more is $5,840.
    prices = prices_of(make_fleet())
    cost = -prices.net(0.0, {})
    assert prices.net(1.0, {}) == pytest.approx(17_520.0 - cost)
    assert prices.net(1.0, {"prices.gpu_usd_per_hour": 4.0}) == pytest.approx(23_360.0 - cost)
    # A tenth of an engineer less at $240,000 a year is $2,000 a month less.
    paid = prices.fleet.prices
    share, rate = (paid[name].value for name in ("operations_fte_share", "fte_usd_per_year"))
    without = {"prices.operations_fte_share": 0.0}
    assert prices.net(1.0, without) == pytest.approx(17_520.0 - cost + share * rate / 12)
    assert all(one.line.startswith("prices.") for one in prices.unknowns)


def test_a_reserved_gpu_gives_nothing_back_whatever_its_price() -> None:
    fleet = make_fleet()
    reserved = replace(
        fleet,
        contract=GpuContract(
            kind=fleet.contract.kind.given("reserved", kind="given", source="fleet.toml")
        ),
    )
    prices = prices_of(reserved)
    assert prices.net(3.0, {}) == prices.net(0.0, {}) < 0
    assert "prices.gpu_usd_per_hour" not in {one.id for one in prices.unknowns}


# --- sessions ----------------------------------------------------------------------------------


def test_turns_of_a_session_are_drawn_together() -> None:
    trace = replace(make_trace(requests=120), session=np.arange(120, dtype=np.int64) // 4)
    units = resampling_units(trace, None)
    assert (units.unit, units.count) == ("sessions", 30)
    (row,) = draw(units, seed=1, replicates=1)
    assert row.sum() == 30
    times = np.bincount(drawn_requests(units, row), minlength=120).reshape(30, 4)
    assert (times == row[:, None]).all()
    values = np.arange(120.0)
    drawn = values[drawn_requests(units, row)].sum()
    assert resampled_sums(values, units, row[None, :])[0] == pytest.approx(drawn)


def test_conversations_stand_for_sessions_and_time_blocks_for_neither() -> None:
    trace = make_trace(requests=400)
    chains = np.arange(400, dtype=np.int64) // 2
    assert resampling_units(trace, chains).unit == "conversations"
    # A request of no conversation is a unit of its own.
    alone = np.where(np.arange(400) < 100, -1, chains)
    assert resampling_units(trace, alone).count == 100 + 150
    blocks = resampling_units(trace, np.zeros(400, dtype=np.int64))
    assert (blocks.unit, blocks.count) == ("time_blocks", 20)
    assert (np.diff(blocks.of_request) >= 0).all()


def test_the_reusable_share_spreads_with_the_sessions() -> None:
    # 200 sessions of two turns of 100 tokens; the second turn reuses 80 in every other session:
    # 0.4 of its tokens on average, 0.2 of all. The share of such sessions among 200 has a standard
    # deviation of 0.5 / sqrt(200): P10 lies 1.2816 · 0.4 · 0.0354 = 0.0181 below.
    sessions = np.arange(400, dtype=np.int64) // 2
    trace = replace(
        make_trace(requests=400), session=sessions, prompt_tokens=np.full(400, 100, np.int64)
    )
    reusable = np.where((np.arange(400) % 2 == 1) & (sessions % 2 == 0), 80, 0).astype(np.int64)
    found = reuse_spread(Draws(resampling_units(trace, None), 3), reusable, trace.prompt_tokens)
    assert found is not None
    assert found.middle == pytest.approx(0.2)
    assert found.p10 == pytest.approx(0.2 - 0.0181, abs=0.004)
    assert found.p90 == pytest.approx(0.2 + 0.0181, abs=0.004)
    assert "sessions drawn again, whole: 400 draws of 200" in found.says
    nothing = np.zeros(400, dtype=np.int64)
    assert reuse_spread(Draws(resampling_units(trace, None), 3), nothing, nothing) is None


# --- margins -----------------------------------------------------------------------------------


@pytest.mark.parametrize("times", [0.5, 1.0, 1.02, 1.021, 1.09, 1.1, 1.11, 3.0])
def test_a_margin_is_on_the_side_that_the_check_is_on(times: float) -> None:
    trace = make_trace(requests=1000)
    today = make_result("hbm_only", hits={"hbm": 0}, requests=1000)
    late = replace(today, timeline=replace(today.timeline, ttft_s=today.timeline.ttft_s * times))
    check = check_slo(trace, late, today)
    assert (kept_margin(check) <= 1e-9) == check.is_kept
    assert (missed_margin(check) >= -1e-9) == check.is_clearly_missed
    overloaded = check_slo(trace, replace(late, is_overloaded=True), today)
    assert kept_margin(overloaded) > 0
    assert missed_margin(overloaded) > 0


# --- the record --------------------------------------------------------------------------------


def test_without_a_design_prices_alone_swing_and_the_rest_is_said_to_stay() -> None:
    record = build_audit(make_input())
    found = record.uncertainty
    assert found is not None
    number = record.verdict.carrying_numbers[2]
    assert found.net_middle == pytest.approx(number.value)
    assert found.p_pays is None
    assert found.spreads[0].method == "ends"
    # Cheaper DRAM by its range: GB x (high - low) / 48 months, more by what is charged on it.
    dram = next(one for one in found.inputs if one.id == "prices.dram_usd_per_gb")
    assert dram.net_at_low > found.net_middle > dram.net_at_high
    assert "--depth full" in found.notes[0]
    assert jsonio.load(jsonio.dump(record)) == record


def test_a_design_of_another_option_is_not_taken_for_this_one() -> None:
    answers = design(lambda row: (-1.0, 1.0), option_id="pool_dram_tcp")
    found = build_audit(make_input(design=answers)).uncertainty
    assert found is not None
    assert found.p_pays is None


def test_a_pool_that_often_loses_money_pays_only_if() -> None:
    # The claim holds for a <= -0.5 alone: 12.5 % of the samples.
    sure = build_audit(make_input(design=design(lambda row: (-1.0, 1.0))))
    assert sure.verdict.outcome == "pays"
    assert sure.uncertainty is not None
    assert sure.uncertainty.p_pays == pytest.approx(1.0, abs=0.05)
    rare = build_audit(make_input(design=design(lambda row: (float(row[0]) + 0.5, 1.0))))
    assert rare.verdict.outcome == "pays_only_if"
    assert "what is open turns out well: the pool pays in 12 % of 512" in rare.verdict.headline


def test_a_chance_between_both_answers_is_open() -> None:
    assert Chance(pays=0.5, samples=10).is_open
    assert not Chance(pays=0.95, samples=10).is_open
    assert not Chance(pays=0.02, samples=10).is_open


def test_coordinates_of_no_input_have_no_column() -> None:
    assert coordinates_of((), np.zeros((3, 0))).shape == (3, 0)
