"""The inputs that replays depend on, and a design replayed on a small trace."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvtrace.api import uncertainty
from kvtrace.api.replays import Replays, WindowRuns, replay_options
from kvtrace.api.uncertainty import (
    affordable,
    conversations_of,
    is_affordable,
    points_in_budget,
    replay_design,
)
from kvtrace.api.uncertainty_question import Asked, open_inputs, question_of
from kvtrace.audit.uncertainty.activity import activities
from kvtrace.audit.uncertainty.design import Response
from kvtrace.audit.uncertainty.replayed_inputs import (
    alone_s,
    candidate_unknowns,
    stated_at,
    with_errors,
)
from kvtrace.audit.uncertainty.settling import settled_by
from kvtrace.audit.uncertainty.unknowns import Unknown
from kvtrace.cost.deployment import Deployment, build_deployment
from kvtrace.cost.evidence import moves_constant
from kvtrace.cost.fleet import Fleet, default_fleet
from kvtrace.cost.hardware_file.calibration import CALIBRATED
from kvtrace.exec.progress import SilentProgress
from kvtrace.replay.options.ground import Ground
from kvtrace.replay.options.presets import build_scenarios
from kvtrace.replay.scenario import Scenario
from kvtrace.replay.window import WindowedTrace
from tests.unit.audit_fakes import make_trace

POOL = "pool_dram_rdma_direct"


@pytest.fixture(scope="module")
def deployment() -> Deployment:
    return build_deployment("Meta-Llama-3.1-8B", "H100-SXM5", tp=1)


@pytest.fixture(scope="module")
def fleet(deployment: Deployment) -> Fleet:
    return default_fleet(deployment, 2)


def pool(deployment: Deployment, fleet: Fleet) -> Scenario:
    return next(one for one in build_scenarios(deployment, fleet) if one.option_id == POOL)


def test_fitted_constants_are_in_the_held_out_errors_and_not_moved_beside_them(
    deployment: Deployment, fleet: Fleet
) -> None:
    found = {one.id: one for one in candidate_unknowns(deployment, fleet, (POOL, "dram_idle"))}
    errors = {"model_error.prefill", "model_error.decode", "model_error.moves"}
    assert errors <= set(found)
    assert all(found[name].distribution == "lognormal" for name in errors)
    assert "moves.load_efficiency" not in found
    assert not any(name.startswith("efficiency.") for name in found)
    # Assumed: a factor of 25 and one of 256.
    assert found["moves.pool_lookup_s"].distribution == "log_uniform"
    assert found["moves.chunk_bytes"].distribution == "log_uniform"
    assert "fleet.dram_idle_bytes_per_instance" in found
    assert not any(name.endswith("ports_per_node") for name in found)


def test_a_calibrated_constant_is_moved_over_its_own_interval_instead(
    deployment: Deployment, fleet: Fleet
) -> None:
    known = deployment.hardware.handover_s
    fitted = replace(known, source=f"{CALIBRATED}: of this log", low=0.0004, value=0.0005)
    own = replace(deployment, hardware=replace(deployment.hardware, handover_s=fitted))
    found = {one.id: one for one in candidate_unknowns(own, fleet, (POOL,))}
    assert "model_error.moves" not in found
    assert found["moves.handover_s"].low == 0.0004
    assert "model_error.prefill" in found


def test_errors_stretch_the_seconds_of_their_kind_alone(
    deployment: Deployment, fleet: Fleet
) -> None:
    plain = pool(deployment, fleet)
    slow = with_errors(plain, {"model_error.prefill": 2.0, "model_error.moves": 3.0})
    assert slow.prefill.prefill_s(1000, 0) == 2 * plain.prefill.prefill_s(1000, 0)
    assert slow.decode.step_s(4, 1000) == plain.decode.step_s(4, 1000)
    lookup = plain.tiers[0].lookup_s
    assert alone_s(slow, 1e9) - lookup == pytest.approx(3 * (alone_s(plain, 1e9) - lookup))
    assert plain.step is not None
    assert slow.step is not None
    work = plain.step.work_s(1000, 500)
    assert slow.step.work_s(1000, 500) == 2 * work
    alone = plain.step.added_s(1000, work, steps=1, is_start=True, batch=0)
    twice = slow.step.added_s(1000, 2 * work, steps=1, is_start=True, batch=0)
    assert twice == pytest.approx(2 * alone)


def test_an_error_of_one_changes_nothing(deployment: Deployment, fleet: Fleet) -> None:
    plain = pool(deployment, fleet)
    same = with_errors(plain, {})
    assert same.links == plain.links
    assert same.tiers == plain.tiers
    assert same.prefill.prefill_s(777, 111) == plain.prefill.prefill_s(777, 111)


def test_a_constant_of_the_port_moves_the_ports_of_the_pool_with_it(
    deployment: Deployment, fleet: Fleet
) -> None:
    port = deployment.hardware.rdma.port.max_bytes_per_s
    half, sized = stated_at(deployment, fleet, {port.id: port.value / 2})
    assert half.hardware.rdma.port.max_bytes_per_s.value == port.value / 2
    ratio = sized.pool_nic_bytes_per_s.value / fleet.pool_nic_bytes_per_s.value
    chunk = deployment.hardware.chunk_bytes.value
    slow, fast = (d.hardware.rdma.port.bytes_per_s(chunk) for d in (half, deployment))
    assert ratio == pytest.approx(slow / fast)
    idle = fleet.dram_idle_bytes_per_instance
    assert stated_at(deployment, fleet, {idle.id: 5e9})[1].dram_idle_bytes_per_instance.value == 5e9


def test_what_settles_an_input_can_be_pasted(deployment: Deployment, fleet: Fleet) -> None:
    def line(constant_id: str) -> str:
        unknowns = candidate_unknowns(deployment, fleet, (POOL, "pool_dram_tcp"))
        return next(one.line for one in unknowns if one.id == constant_id)

    assert line("moves.pool_lookup_s") == 'moves.pool_lookup = "1000us"'
    assert line("moves.chunk_bytes") == 'moves.chunk = "2048KiB"'
    assert line("fleet.dram_idle_bytes_per_instance").startswith('instances.dram_free = "')
    assert line("links.rdma_400g.max_bytes_per_s") == 'rdma.rate = "45GB/s"'
    assert line("model_error.prefill").startswith("kvtrace cost calibrate")
    assert settled_by(replace(moves_constant("chunk_bytes"), id="links.x.op_s")) == ("", "")


def response(margin: float, freed: float, extra: float, ratio: float | None) -> Response:
    return Response((margin, 1.0), freed, extra, ratio)


def test_an_input_is_active_by_its_largest_effect() -> None:
    one = Unknown(
        id="x",
        title="an input",
        unit="s",
        low=0.0,
        value=1.0,
        high=2.0,
        distribution="triangular",
        kind="assumed",
        source="a test",
    )
    middle = response(0.0, 100.0, 50.0, None)
    quiet = (response(0.001, 100.5, 50.0, None), response(0.0, 99.0, 50.0, None))
    loud = (response(0.0, 100.0, 50.0, None), response(-0.03, 100.0, 50.0, None))
    first, second = activities([one, one], [quiet, loud], middle)
    # 1 of 100 s is 1 %; a margin is a logarithm, so that 0.03 is 3 %.
    assert [first.share, second.share] == pytest.approx([0.01, 0.03])
    assert not first.is_active
    assert second.is_active
    assert str(first) == "an input (x): its ends change no figure by more than 1.0 %"


def test_a_design_replays_the_middle_the_ends_and_the_points_of_what_matters(
    deployment: Deployment, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uncertainty, "MOST_POINTS", 8)
    trace = make_trace(requests=60, span_s=30.0)
    with WindowRuns(WindowedTrace(trace, 0), SilentProgress(), workers=1) as run:
        replays = replay_options(
            run, Ground(deployment=deployment, fleet=fleet), SilentProgress(), is_full=False
        )
        asked = Asked(replays, None, deployment, fleet, None)
        design = replay_design(asked, run, 3, SilentProgress())
    assert design is not None
    assert design.option_id.startswith("pool_dram_")
    assert design.claim is not None
    assert design.claim.option.instances == 1
    assert len(design.points) == len(design.values) == 8
    names = [one.id for one in design.unknowns]
    assert "model_error.prefill" in names
    assert len(design.ends) == len(names)
    low, high = design.ends[names.index("model_error.prefill")]
    assert low != design.middle != high
    steps = sum(len(one.probes) for one in design.brackets.values())
    # 8 drawn points, the middle, both ends of every candidate, five replays each: a rival that
    # costs something is the only one of the claim, which asks both on one instance; and today, the
    # rival and the pool on two.
    assert design.rival_id == "bigger_gpu_kv_routing"
    candidates = candidate_unknowns(deployment, fleet, (design.option_id, design.rival_id))
    points = 9 + steps + 2 * (len(names) + sum("change no figure" in one for one in design.kept))
    assert design.replays % points == 0
    assert design.replays // points == 5
    assert len(design.kept) + len(names) == len(candidates)
    assert design.shifts is not None
    assert design.shifts.unit == "time_blocks"


def test_what_the_budget_has_no_room_for_stays_and_history_counts_a_tenth(
    deployment: Deployment, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = make_trace(requests=60, span_s=30.0)
    with WindowRuns(WindowedTrace(trace, 0), SilentProgress(), workers=1) as run:
        replays = replay_options(
            run, Ground(deployment=deployment, fleet=fleet), SilentProgress(), is_full=False
        )
    asked = Asked(replays, None, deployment, fleet, None)
    question = question_of(asked)
    assert question is not None
    candidates, _ = open_inputs(question)
    # Room for the middle, eight points, and both ends of three inputs.
    monkeypatch.setattr(uncertainty, "BUDGET_REQUESTS", len(question.keys) * 60 * (1 + 8 + 2 * 3))
    chosen, unaffordable = affordable(question, candidates, WindowedTrace(trace, 0))
    assert chosen == candidates[:3]
    assert all("no room in the budget" in one for one in unaffordable)
    assert not is_affordable(asked, WindowedTrace(trace, 0))
    # 40 of 60 requests are history: 24 count, so that the same budget has room for 37 points.
    assert points_in_budget(question, WindowedTrace(trace, 40)) == 37
    assert is_affordable(asked, WindowedTrace(trace, 40))


def test_a_design_beyond_the_budget_says_so_and_keeps_the_middle(
    deployment: Deployment, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uncertainty, "BUDGET_REQUESTS", 1_000)
    with WindowRuns(WindowedTrace(make_trace(requests=60), 0), SilentProgress(), workers=1) as run:
        replays = replay_options(
            run, Ground(deployment=deployment, fleet=fleet), SilentProgress(), is_full=False
        )
        asked = Asked(replays, None, deployment, fleet, None)
        design = replay_design(asked, run, 3, SilentProgress())
    assert design is not None
    assert design.points == ()
    assert "beyond the budget of 1,000 requests" in design.why_few


def test_without_replays_there_is_no_design(deployment: Deployment, fleet: Fleet) -> None:
    windowed = WindowedTrace(make_trace(requests=10), 0)
    asked = Asked(Replays(), None, deployment, fleet, None)
    with WindowRuns(windowed, SilentProgress(), workers=1) as run:
        assert replay_design(asked, run, 3, SilentProgress()) is None


def test_no_trace_has_no_conversations() -> None:
    assert conversations_of(None, None) is None  # type: ignore[arg-type]
