"""Calibration on times of which the constants are known, because they were made with them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kvtrace.cost import Deployment, build_deployment
from kvtrace.cost.calibration import (
    Calibration,
    Fitted,
    MoveTimes,
    RequestTimes,
    calibrate_moves,
    calibrate_replayed,
    calibrate_requests,
)
from kvtrace.cost.calibration.direct import DirectModel
from kvtrace.cost.calibration.exposure import decoding_between, spread_between, timeline_of
from kvtrace.cost.calibration.observations import Floats, clock_step_s
from kvtrace.cost.calibration.parameters import with_values

MODEL = build_deployment("Llama-3.1-8B", "H100-SXM5", tp=1, weight_dtype="bf16")
GEMM = "efficiency.sm90.gemm_bf16"
FIXED = "efficiency.prefill_fixed_s"
READ = "efficiency.hbm_read"
COUNT = 48


def spaced(gap: float) -> Floats:
    """(requests,) 0, gap, 2 gap, …"""
    return np.arange(COUNT, dtype=np.float64) * gap


def nothing(count: int) -> Floats:
    return np.full(count, np.nan)


def alone(deployment: Deployment, *, prompts: Floats | None = None) -> RequestTimes:
    """Requests 60 s apart, so that none meets another; times as the deployment takes them."""
    if prompts is None:
        prompts = np.linspace(1_000, 16_000, COUNT)[np.arange(COUNT) * 37 % COUNT]
    output = np.full(COUNT, 101.0)
    prefill = np.array([deployment.prefill.prefill_s(one, 0.0) for one in prompts.tolist()])
    tpot = np.array([deployment.decode.step_s(1.0, one + 50.5) for one in prompts.tolist()])
    return RequestTimes(
        arrived_s=spaced(60.0),
        prompt_tokens=prompts,
        cached_tokens=np.zeros(COUNT),
        output_tokens=output,
        queue_s=np.zeros(COUNT),
        prefill_s=prefill,
        ttft_s=prefill,
        tpot_s=tpot,
        e2e_s=prefill + 100 * tpot,
        is_ttft_of_prefill=np.zeros(COUNT, dtype=np.bool_),
    )


def fitted(calibration: Calibration, name: str) -> Fitted:
    return next(one for one in calibration.parameters if one.parameter.name == name)


def calibrate(times: RequestTimes, **changes: object) -> Calibration:
    fields: dict[str, object] = {"chunk_tokens": 1 << 20, **changes}
    return calibrate_requests(times, MODEL, **fields)  # type: ignore[arg-type]


def is_found(one: Fitted, planted: float) -> bool:
    """The planted value lies in the interval, and the fit within 2 % of it."""
    assert one.refusal is None
    assert one.low is not None
    assert one.high is not None
    return one.low <= planted <= one.high and abs(one.value / planted - 1) < 0.02


def noisy(times: RequestTimes, share: float = 0.02) -> RequestTimes:
    """The same, each time off by some: fixed factors with a mean of 1."""
    wave = 1 + share * np.sin(np.arange(COUNT) * 2.4)
    prefill, tpot = times.prefill_s * wave, times.tpot_s * wave[::-1]
    return replace(
        times, prefill_s=prefill, ttft_s=prefill, tpot_s=tpot, e2e_s=prefill + 100 * tpot
    )


# ---------------------------------------------------------------- planted constants


def test_planted_rates_and_overheads_are_found_within_their_intervals() -> None:
    planted = {GEMM: 0.5, FIXED: 0.05, READ: 0.6}
    times = noisy(alone(with_values(MODEL, planted)))
    found = calibrate(times, names=("prefill_rate", "prefill_fixed", "decode_bandwidth"))
    assert is_found(fitted(found, "prefill_rate"), 0.5)
    assert is_found(fitted(found, "prefill_fixed"), 0.05)
    assert is_found(fitted(found, "decode_bandwidth"), 0.6)


def test_the_later_half_tells_what_the_fit_is_worth() -> None:
    found = calibrate(noisy(alone(with_values(MODEL, {GEMM: 0.4, READ: 0.5}))))
    assert (found.fitted_rows, found.held_rows) == (24, 24)
    errors = {one.metric: one for one in found.errors}
    assert errors["prefill"].median_before > 0.3  # 0.769 of the peak against 0.4
    assert errors["prefill"].median_after < 0.02
    assert errors["decode"].median_after < 0.02
    assert {one.by for one in found.residuals} == {"prompt_tokens", "batch"}


def test_one_slow_request_in_ten_does_not_move_the_fit() -> None:
    times = alone(with_values(MODEL, {GEMM: 0.5}))
    slow = np.where(np.arange(COUNT) % 10 == 3, 5.0, 1.0)
    times = replace(times, prefill_s=times.prefill_s * slow, ttft_s=times.ttft_s * slow)
    found = calibrate(times, names=("prefill_rate",))
    assert fitted(found, "prefill_rate").value == pytest.approx(0.5, rel=0.03)


def test_nothing_is_fitted_where_the_model_predicts_as_well() -> None:
    found = calibrate(alone(MODEL))
    refusals = {one.refusal for one in found.parameters}
    assert len(refusals) == 1
    assert "predicts later requests" in str(refusals.pop())
    assert found.values() == {}


def test_the_same_input_gives_the_same_calibration() -> None:
    times = noisy(alone(with_values(MODEL, {GEMM: 0.5})))
    names = ("prefill_rate", "decode_bandwidth")
    assert calibrate(times, seed=3, names=names) == calibrate(times, seed=3, names=names)


def test_half_of_what_ran_beside_a_request_is_another_engines() -> None:
    # each request comes twice at once; of the other one, half counts where there are two engines
    times = alone(MODEL)
    both = times.taken(np.repeat(np.arange(COUNT), 2))
    one = DirectModel(MODEL, both, chunk_tokens=1 << 20).decoding
    two = DirectModel(MODEL, both, chunk_tokens=1 << 20, instances=2).decoding
    assert one.batch.tolist() == pytest.approx([2.0] * 2 * COUNT)
    assert two.batch.tolist() == pytest.approx([1.5] * 2 * COUNT)
    own = both.prompt_tokens + 101 / 2
    assert two.context_tokens.tolist() == pytest.approx((1.5 * own).tolist())


# ---------------------------------------------------------------- refusals


def refusal(times: RequestTimes, name: str = "prefill_rate", **changes: object) -> str:
    """Why a parameter is refused that somebody asks for; `None` where it is not."""
    return str(fitted(calibrate(times, names=(name,), **changes), name).refusal)


def test_a_ttft_that_is_queue_alone_tells_no_prefill() -> None:
    times = alone(MODEL)
    queue = times.ttft_s
    times = replace(times, queue_s=queue, prefill_s=nothing(COUNT), arrived_s=np.zeros(COUNT))
    assert "queue alone" in refusal(times)


def test_ttfts_that_overlap_may_hold_a_queue() -> None:
    times = replace(alone(MODEL), queue_s=nothing(COUNT), prefill_s=nothing(COUNT))
    crowded = replace(times, arrived_s=spaced(0.01))
    assert "may hold a queue" in refusal(crowded)


def test_without_a_queue_the_requests_that_meet_no_other_are_fitted() -> None:
    times = noisy(alone(with_values(MODEL, {GEMM: 0.5})))
    times = replace(times, queue_s=nothing(COUNT), prefill_s=nothing(COUNT))
    found = calibrate(times, names=("prefill_rate",))
    assert is_found(fitted(found, "prefill_rate"), 0.5)
    assert any("overlap with no other" in note for note in found.notes)


def test_prompts_of_one_length_do_not_tell_fixed_seconds_from_seconds_per_token() -> None:
    prompts = 4_000 + spaced(5.0)
    times = alone(with_values(MODEL, {GEMM: 0.5}), prompts=prompts)
    assert "one length" in refusal(times, "prefill_fixed")
    assert "one length" in refusal(times, "prefill_token")
    assert refusal(times, "prefill_rate") == "None"


def test_a_coarse_clock_tells_nothing() -> None:
    times = alone(MODEL)
    coarse = np.ceil(times.prefill_s)
    times = replace(times, prefill_s=coarse, ttft_s=coarse)
    assert "clock steps by 1 s" in refusal(times)


def test_unknown_hits_beside_a_prefix_cache_hide_what_was_computed() -> None:
    times = replace(alone(with_values(MODEL, {GEMM: 0.5})), cached_tokens=nothing(COUNT))
    assert "--assume-no-hits" in refusal(times, prefix_caching=True)
    assert refusal(times, prefix_caching=True, assumes_no_hits=True) == "None"
    assert refusal(times, prefix_caching=False) == "None"
    notes = calibrate(times, names=("prefill_rate",)).notes
    assert any("taken as none" in note for note in notes)


def test_decode_beside_full_hbm_may_hold_preemptions() -> None:
    assert "preemptions" in refusal(alone(MODEL), "decode_bandwidth", kv_capacity_tokens=500.0)


def test_constants_that_move_the_same_times_are_told_apart_by_nobody() -> None:
    times = noisy(alone(with_values(MODEL, {GEMM: 0.5})), 0.1)
    found = calibrate(times, names=("prefill_rate", "prefill_token"))
    assert "cannot tell it from prefill_rate" in str(fitted(found, "prefill_token").refusal)
    assert fitted(found, "prefill_rate").refusal is None


def test_no_times_are_no_calibration() -> None:
    blank = nothing(COUNT)
    times = replace(alone(MODEL), queue_s=blank, prefill_s=blank, ttft_s=blank, tpot_s=blank)
    times = replace(times, e2e_s=blank)
    assert refusal(times) == "no request has a TTFT or a prefill time"
    assert refusal(times, "decode_bandwidth") == "no request has a TPOT or an end"


# ---------------------------------------------------------------- replayed


def test_a_queue_tells_the_prefill_rate_when_it_is_replayed() -> None:
    # one server, ten arrivals a second: each waits for all before it, so that TTFT is mostly queue
    prompts = np.linspace(1_000, 16_000, COUNT)[np.arange(COUNT) * 37 % COUNT]
    arrived = spaced(0.1)

    def replay(deployment: Deployment) -> dict[str, Floats]:
        done, ttft = 0.0, []
        for at, prompt in zip(arrived.tolist(), prompts.tolist(), strict=True):
            done = max(done, at) + deployment.prefill.prefill_s(prompt, 0.0)
            ttft.append(done - at)
        tpot = [deployment.decode.step_s(1.0, one) for one in prompts.tolist()]
        return {"ttft": np.array(ttft), "tpot": np.array(tpot)}

    seen = replay(with_values(MODEL, {GEMM: 0.5, READ: 0.6}))
    found = calibrate_replayed(MODEL, replay, seen, arrived_s=arrived, prompt_tokens=prompts)
    assert fitted(found, "prefill_rate").value == pytest.approx(0.5, rel=0.01)
    assert fitted(found, "decode_bandwidth").value == pytest.approx(0.6, rel=0.05)


# ---------------------------------------------------------------- moves


def loads(*, gap_s: float, contention: float = 1.0) -> MoveTimes:
    """Loads of 8 MB to 800 MB at 20 GB/s and 2 ms; where they overlap, each slows the others."""
    size = np.geomspace(8e6, 8e8, COUNT)[np.arange(COUNT) * 37 % COUNT]
    seconds = 0.002 + size / 20e9
    started = spaced(gap_s)
    for _ in range(50):  # how long they take decides how many overlap, and the other way round
        end = started + seconds
        busy = spread_between(started, end, seconds, started, end) / seconds
        seconds = 0.002 + size / 20e9 * (1 + contention * (np.maximum(busy, 1.0) - 1))
    return MoveTimes("host>device", started, size, seconds, nothing(COUNT))


def test_rate_and_fixed_seconds_of_a_link_are_found() -> None:
    found = calibrate_moves(loads(gap_s=1.0), MODEL)
    hardware = MODEL.hardware
    rate, fixed = fitted(found, "link_rate"), fitted(found, "link_fixed")
    solo = hardware.load_bytes_per_s(1) / hardware.load_efficiency.value
    assert rate.value * solo == pytest.approx(20e9, rel=0.01)
    assert fixed.value == pytest.approx(0.002, abs=2e-5)  # but for the link's own microseconds
    assert "hardly overlap" in str(fitted(found, "contention").refusal)
    assert "as many ranks" in str(fitted(found, "load_contention").refusal)


def test_contention_is_told_where_moves_overlap() -> None:
    found = calibrate_moves(loads(gap_s=0.005, contention=0.5), MODEL)
    assert fitted(found, "contention").value == pytest.approx(0.5, rel=0.05)


def test_an_unknown_path_and_few_moves_are_said() -> None:
    moves = loads(gap_s=1.0)
    odd = calibrate_moves(replace(moves, path="disk>host"), MODEL)
    assert odd.notes == ("this path is not in the cost model",)
    few = MoveTimes("host>device", *(one[:10] for one in (moves.started_s, moves.moved_bytes,
                    moves.seconds, moves.ranks)))  # fmt: skip
    assert "fewer than 40 moves" in str(fitted(calibrate_moves(few, MODEL), "link_rate").refusal)


# ---------------------------------------------------------------- what is shared


def test_what_falls_into_a_window_is_shared_out_evenly() -> None:
    start, end = np.array([0.0, 5.0]), np.array([10.0, 15.0])
    found = spread_between(start, end, np.array([100.0, 10.0]), np.array([5.0]), np.array([10.0]))
    assert found.tolist() == pytest.approx([50.0 + 5.0])


def test_batch_and_context_are_means_over_the_window() -> None:
    # a decodes 10 s (100 to 110 tokens), b its last 5 s (200 to 205 tokens)
    times = replace(
        alone(MODEL).taken(np.array([0, 1])),
        arrived_s=np.array([0.0, 5.0]),
        prompt_tokens=np.array([100.0, 200.0]),
        output_tokens=np.array([11.0, 6.0]),
        prefill_s=np.array([1.0, 1.0]),
        ttft_s=np.array([1.0, 1.0]),
        tpot_s=np.array([1.0, 1.0]),
        queue_s=np.zeros(2),
    )
    line = timeline_of(times)
    found = decoding_between(line, times, line.first_s, line.end_s)
    assert found.batch.tolist() == pytest.approx([1.5, 2.0])
    # a: its own 100 + 11/2; b beside it for half of the time, 200 + 6/2
    assert found.context_tokens[0] == pytest.approx(105.5 + 203.0 / 2)


def test_the_step_of_a_clock_is_what_all_durations_are_multiples_of() -> None:
    assert clock_step_s(np.array([0.2, 0.5, np.nan])) == pytest.approx(0.1)
    assert clock_step_s(np.array([np.nan])) is None


def test_durations_all_alike_say_nothing_of_a_clock() -> None:
    # 1.09 s each: the step that leads from 0 to 7, 1.09 and 8.09 s is 0.01 s
    alike, began = np.array([1.09, 1.09]), np.array([0.0, 7.0])
    assert clock_step_s(alike) is None
    assert clock_step_s(alike, began, began + alike) == pytest.approx(0.01)
    assert clock_step_s(np.ones(2), began, began + 1.0) == pytest.approx(1.0)


def test_a_load_test_of_one_output_length_tells_its_decode() -> None:
    times = alone(with_values(MODEL, {READ: 0.6}), prompts=np.full(COUNT, 2_000.0))
    times = replace(times, arrived_s=times.arrived_s + np.arange(COUNT) ** 2 * 0.001)
    assert len(np.unique(times.tpot_s)) == 1
    found = calibrate(times, names=("decode_bandwidth",))
    assert is_found(fitted(found, "decode_bandwidth"), 0.6)


def turned(planted: float) -> RequestTimes:
    """An earlier half of a GPU at `planted` of its peak, a later one as the model has it."""
    early, late = alone(with_values(MODEL, {GEMM: planted})), alone(MODEL)
    prefill = np.where(np.arange(COUNT) < COUNT // 2, early.prefill_s, late.prefill_s)
    return replace(late, prefill_s=prefill, ttft_s=prefill, e2e_s=prefill + 100 * late.tpot_s)


def test_a_fit_that_makes_the_later_half_worse_is_refused() -> None:
    found = calibrate(turned(0.5))
    reason = str(fitted(found, "prefill_rate").refusal)
    assert "prefill of the later half worse: median error 0.0 % before" in reason
    assert found.values() == {}
    prefill = next(one for one in found.errors if one.metric == "prefill")
    assert prefill.median_after == prefill.median_before


def test_a_forced_fit_that_makes_the_later_half_worse_says_so() -> None:
    found = calibrate(turned(0.5), names=("prefill_rate",))
    assert fitted(found, "prefill_rate").refusal is None
    assert any("prefill of the later half worse" in note for note in found.notes)


def test_a_share_above_one_is_commented() -> None:
    found = calibrate(alone(with_values(MODEL, {GEMM: 1.1})), names=("prefill_rate",))
    assert fitted(found, "prefill_rate").value > 1
    assert any(note.startswith("prefill_rate of 1.1 is more than") for note in found.notes)
