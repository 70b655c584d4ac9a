"""The plain options, which scenario files, sweeps and routes start from; and the arbiter.

All share the LLM, the instances and the HBM left for KV; they differ in the tiers below HBM and in
the path to them. Requests go to the least loaded instance; those named `kv_routing` buy nothing
either, but send them where queue, move and recompute together take least. A pool has HBM and the
pool, no local DRAM tier: what it adds is then not mixed with what idle DRAM gives for nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from kvtrace.cost.deployment import Deployment
from kvtrace.cost.fleet import Fleet
from kvtrace.replay.options.catalogue import build_option
from kvtrace.replay.options.ground import Ground
from kvtrace.replay.options.recipes import Recipe, find_recipe
from kvtrace.replay.scenario import LoadDecision, Scenario

PLAIN_OPTIONS: Final = (
    "recompute",
    "hbm_only",
    "kv_routing",
    "dram_idle",
    "dram_idle_kv_routing",
    "pool_dram_tcp",
    "pool_dram_rdma_bounce",
    "pool_dram_rdma_direct",
)


def with_arbiter(scenario: Scenario) -> Scenario:
    """The same option with an arbiter: it loads only what is priced below recomputing it.

    Its id stays: `load_decision` tells the two apart.
    """
    return replace(scenario, load_decision="arbiter", title=f"{scenario.title}, arbiter")


def build_scenarios(
    deployment: Deployment,
    fleet: Fleet,
    *,
    load_decision: LoadDecision = "always",
) -> tuple[Scenario, ...]:
    """The plain options, on one instance those with nothing to route, too.

    Raises:
        ModelError: the LLM does not fit, or its FLOPs are not known.
    """
    ground = Ground(deployment=deployment, fleet=fleet)
    return tuple(
        build_option(recipe, ground, load_decision=load_decision).scenario
        for recipe in map(_recipe, PLAIN_OPTIONS)
    )


def _recipe(option_id: str) -> Recipe:
    found = find_recipe(option_id)
    if found is None:
        raise KeyError(option_id)
    return found
