"""Scenarios made ready on a dataset's requests, and their replays, in one process or several."""

from __future__ import annotations

from collections.abc import Generator, Hashable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from kvtrace.api.loads import Loaded, apply_load, by_conversation, logged_e2e_s
from kvtrace.api.observed import with_observed
from kvtrace.api.replay_tables import Replayed
from kvtrace.api.setup import Setup, choose_deployment, choose_fleet
from kvtrace.config import Setting, Settings
from kvtrace.exec.progress import Progress
from kvtrace.replay.scenario import Scenario
from kvtrace.scenarios.build import build_scenario, fleet_with, hardware_of
from kvtrace.scenarios.load import Load
from kvtrace.scenarios.plan import Plan, read_plan
from kvtrace.scenarios.running import Arrivals, Task, run_tasks
from kvtrace.scenarios.sweeps import Case
from kvtrace.schema.arrays import RequestTrace
from kvtrace.store.dataset import Dataset


@dataclass(frozen=True, slots=True)
class Ready:
    """One scenario that can be replayed, with the load that it is replayed on."""

    case: Case
    plan: Plan
    setup: Setup
    scenario: Scenario
    load: Load
    room_tokens: float
    """Longer requests find no room in an instance."""


@dataclass(frozen=True, slots=True)
class Bench:
    """What all replays of one command share."""

    dataset: Dataset
    settings: Settings
    whole: RequestTrace

    @property
    def seed(self) -> int:
        """Of everything random."""
        return self.settings.integer("seed") or 0


def make_ready(bench: Bench, cases: Sequence[Case], load: Load) -> list[Ready]:
    """The scenarios of the cases on the deployment that each states; `load` is of the command.

    Raises:
        UsageError: a scenario that cannot be used.
        ModelError: the LLM does not fit.
    """
    plans = [read_plan(case.document) for case in cases]
    return [_ready(bench, case, plan, load) for case, plan in zip(cases, plans, strict=True)]


def _ready(bench: Bench, case: Case, plan: Plan, load: Load) -> Ready:
    settings, setup = _setup(bench, plan)
    scenario = build_scenario(
        plan, setup.deployment, setup.fleet, block_tokens=bench.whole.block_size_tokens
    )
    if "seed" not in plan.fields:
        scenario = replace(scenario, seed=settings.integer("seed") or 0)
    room = scenario.hbm_capacity_bytes / scenario.kv_bytes_per_token
    asked = plan.load.changed(load)
    if scenario.keeps_generated:
        asked = replace(asked, by_conversation=True)
    return Ready(case, plan, setup, scenario, asked, room)


def _setup(bench: Bench, plan: Plan) -> tuple[Settings, Setup]:
    """Deployment and fleet: what the scenario states, then settings, logs and defaults."""
    origin = plan.document.origin
    stated = {name: Setting(name, value, origin) for name, value in plan.serving.items()}
    settings = bench.settings.replaced(stated)
    manifest = bench.dataset.manifest
    deployment, chosen = choose_deployment(settings, manifest)
    if plan.hardware is not None:
        named = settings.text("hardware") or deployment.hardware.name
        hardware = hardware_of(plan, named)
        deployment = replace(deployment, hardware=hardware)
        chosen = chosen.replaced({"hardware": Setting("hardware", hardware.name, origin)})
    if plan.layout:
        # What an engine printed of its capacity was printed of another layout.
        deployment = replace(
            deployment,
            measured_kv_tokens=None,
            pp=plan.layout.get("pp", deployment.pp),
            dp=plan.layout.get("dp", deployment.dp),
            ep=plan.layout.get("ep", deployment.ep),
        )
    setup = with_observed(choose_fleet(chosen, deployment, bench.whole, manifest), bench.dataset)
    fleet = fleet_with(plan, setup.fleet)
    return settings, replace(setup, fleet=fleet)


def load_all(bench: Bench, ready: Sequence[Ready]) -> dict[Load, Loaded]:
    """The requests of each load; the same ones for all scenarios, whatever their HBM.

    Raises:
        UsageError: nothing is left.
    """
    room = min((one.room_tokens for one in ready), default=0.0)
    is_full = bench.settings.text("depth") == "full"
    loads: dict[Load, Loaded] = {}
    for one in ready:
        if one.load not in loads:
            is_followed = one.load.follows_sessions
            whole = by_conversation(bench.whole, bench.dataset) if is_followed else bench.whole
            e2e_s = logged_e2e_s(whole, bench.dataset) if one.load.closed_loop else None
            loads[one.load] = apply_load(
                whole, one.load, max_tokens=room, is_full=is_full, seed=bench.seed, e2e_s=e2e_s
            )
    return loads


def replay_all(
    ready: Sequence[Ready],
    loads: Mapping[Load, Loaded],
    watch: Progress,
    *,
    workers: int | None,
) -> Generator[tuple[int, Replayed]]:
    """(place in `ready`, its replay), in the order in which they end.

    What is replayed does not depend on the workers; only this order does. Close the generator where
    it may be left early.
    """
    arrivals: dict[Hashable, Arrivals] = {load: loaded.arrivals for load, loaded in loads.items()}
    tasks = [Task(place, one.load, one.scenario) for place, one in enumerate(ready)]
    with closing(run_tasks(arrivals, tasks, workers=workers)) as outcomes:
        for place, ran in outcomes:
            one = ready[place]
            loaded = loads[one.load]
            watch.advance(rows=len(ran.result.timeline.ttft_s))
            yield (
                place,
                Replayed(
                    scenario=one.case.document.name,
                    changes=one.case.changes,
                    setup=one.setup,
                    load=one.load,
                    windowed=loaded.arrivals.windowed,
                    refused_requests=loaded.refused_requests,
                    result=ran.result,
                    links=ran.links,
                    width_s=ran.width_s,
                    wall_s=ran.wall_s,
                    arrived_s=ran.arrived_s,
                ),
            )
