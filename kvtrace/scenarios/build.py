"""From a plan, a deployment and a fleet to a scenario that can be replayed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, cast

from kvtrace.cost.deployment import Deployment
from kvtrace.cost.fleet import Fleet, fleet_of
from kvtrace.cost.hardware import HardwareProfile
from kvtrace.cost.hardware_file.read import profile_of
from kvtrace.cost.profiles import load_hardware
from kvtrace.errors import UsageError
from kvtrace.replay.engines import with_engine
from kvtrace.replay.options.presets import build_scenarios
from kvtrace.replay.scenario import LinkSpec, Scenario, TierScope, TierSpec
from kvtrace.scenarios.effects import check_effects, check_usable
from kvtrace.scenarios.plan import Plan, TierPlan, find_tier
from kvtrace.scenarios.routes import OPTION_OF_PATH, Route, find_route, route_of
from kvtrace.scenarios.topology import Wired, wire

_PATH_OF_OPTION: Final = {option: path for path, option in OPTION_OF_PATH.items()}


@dataclass(frozen=True, slots=True)
class _Serving:
    """What serves the requests of a scenario."""

    deployment: Deployment
    fleet: Fleet
    wired: Wired | None
    block_tokens: int


def hardware_of(plan: Plan, named: str) -> HardwareProfile:
    """The hardware with what `[hardware]` of the plan states; `named` where it names no GPU.

    Raises:
        UsageError: an unknown key, GPU, or unclear unit.
    """
    if plan.hardware is None:
        return load_hardware(named)
    base = dict(plan.hardware)
    if "gpu" not in base and named.endswith(".toml"):
        raise plan.reader.fault(
            "hardware", f"`{named}` is a file: name `gpu` here, or leave it out"
        )
    try:
        return profile_of({"gpu": named, **base}, Path(plan.document.origin))
    except UsageError as error:
        raise plan.reader.relay("hardware", error) from error


def fleet_with(plan: Plan, base: Fleet) -> Fleet:
    """The fleet with what `[fleet]` of the plan states.

    Raises:
        UsageError: an unknown key or value.
    """
    stated = plan.fleet
    if stated is None:
        return base
    try:
        return fleet_of(stated, base, Path(plan.document.origin))
    except UsageError as error:
        raise plan.reader.relay("fleet", error) from error


def build_scenario(
    plan: Plan, deployment: Deployment, fleet: Fleet, *, block_tokens: int
) -> Scenario:
    """The scenario of a plan on a deployment; capacities in blocks are of `block_tokens`.

    Under data parallelism each group of ranks is an instance, with its part of the HBM.

    Raises:
        UsageError: a path, tier or link that is not known.
        ModelError: the LLM does not fit, or its FLOPs are not known.
    """
    wired = None if plan.topology is None else wire(plan.topology, deployment, fleet)
    serving = _Serving(deployment, fleet, wired, block_tokens)
    base = next(s for s in build_scenarios(deployment, fleet) if s.option_id == plan.base)
    if plan.kv_bytes_per_token is not None:
        base = replace(base, kv_bytes_per_token=plan.kv_bytes_per_token)
    links: dict[str, LinkSpec] = dict(base.links)
    tiers: dict[str, TierSpec] = {}
    for tier in base.tiers:
        route = route_of(tier, ())
        path = _PATH_OF_OPTION.get(plan.base, "dram_pcie")
        of_wired = None if wired is None else wired.routes.get(path)
        if of_wired is not None:
            route = of_wired
            links = {link.link_id: link for link in route.links}
        tiers[tier.tier_id] = _on_route(tier, route)
    for name, stated in plan.tiers.items():
        tiers[name] = _tier(name, stated, tiers.get(name), serving, links)
    if wired is not None:
        links = {**wired.links, **links}
    _change_links(plan, links)
    base = _as_engine(plan, base, tiers, deployment)
    fields = dict(plan.fields)
    if fields.get("overlap", base.overlap) == "layerwise":
        fields.setdefault("layers", deployment.llm.layers)
    if wired is not None and fields.get("prefill_instances") and wired.handoff is not None:
        fields.setdefault("handoff", wired.handoff)
    scenario = replace(
        base,
        option_id=plan.document.name,
        title=plan.title or (base.title if plan.document.name == plan.base else plan.document.name),
        hbm_capacity_bytes=_hbm_bytes(plan, base, block_tokens),
        tiers=_in_chain(plan, _stated(plan, base, block_tokens)),
        links={name: links[name] for name in sorted(links)},
        **fields,  # type: ignore[arg-type]
    )
    check_usable(plan, scenario)
    check_effects(plan, scenario, deployment)
    return scenario


def _as_engine(
    plan: Plan, base: Scenario, tiers: Mapping[str, TierSpec], deployment: Deployment
) -> Scenario:
    """The base with these tiers, in the order of the chain, as the plan's engine would run it."""
    scenario = replace(base, tiers=_in_chain(plan, tiers))
    if plan.engine is None:
        return scenario
    return with_engine(scenario, plan.engine, layers=deployment.llm.layers)


def _stated(plan: Plan, base: Scenario, block_tokens: int) -> dict[str, TierSpec]:
    """The tiers with what the plan states of them."""
    tiers = {}
    for tier in base.tiers:
        stated = plan.tiers.get(tier.tier_id)
        tiers[tier.tier_id] = (
            tier if stated is None else _as_stated(tier, stated, base, block_tokens)
        )
    return tiers


def _as_stated(tier: TierSpec, stated: TierPlan, base: Scenario, block_tokens: int) -> TierSpec:
    changed = replace(tier, **stated.fields)  # type: ignore[arg-type]
    return replace(changed, capacity_bytes=_capacity(stated, changed, base, block_tokens))


def _hbm_bytes(plan: Plan, base: Scenario, block_tokens: int) -> float:
    if plan.hbm_blocks is not None:
        return plan.hbm_blocks * block_tokens * base.kv_bytes_per_token
    return base.hbm_capacity_bytes if plan.hbm_bytes is None else plan.hbm_bytes


def _on_route(tier: TierSpec, route: Route) -> TierSpec:
    return replace(tier, read=route.read, write=route.write, lookup_s=route.lookup_s)


def _tier(
    name: str,
    stated: TierPlan,
    known: TierSpec | None,
    serving: _Serving,
    links: dict[str, LinkSpec],
) -> TierSpec:
    """A tier of the base on its route, or one that the file adds; its links join the others."""
    route = _route(name, stated, known, serving)
    for link in route.links:
        links.setdefault(link.link_id, link)
    scope = cast("TierScope", stated.fields.get("scope", known.scope if known else route.scope))
    one_copy = serving.deployment.kv_bytes_per_token_unreplicated if route.keeps_one_copy else None
    return replace(
        known
        or TierSpec(
            tier_id=name,
            scope=scope,
            capacity_bytes=_usual_capacity(name, scope, serving),
            lookup_s=route.lookup_s,
            read=(),
            write=(),
            stored_bytes_per_token=one_copy if scope == "shared" else None,
        ),
        read=stated.read if stated.read is not None else route.read,
        write=stated.write if stated.write is not None else route.write,
        lookup_s=route.lookup_s,
    )


def _route(name: str, stated: TierPlan, known: TierSpec | None, serving: _Serving) -> Route:
    """The stated path, else that of the base, else the one that the tier's name stands for."""
    if stated.path is None and stated.read is not None and stated.write is not None:
        scope = known.scope if known else "shared"
        return Route(scope, known.lookup_s if known else 0.0, stated.read, stated.write, ())
    if stated.path is None and known is not None:
        return route_of(known, ())
    path = stated.path or _USUAL_PATH.get(name)
    if path is None and (stated.read is None) != (stated.write is None):
        there, absent = ("read", "write") if stated.write is None else ("write", "read")
        raise stated.reader.fault(
            there,
            f"tier `{name}` states `{there}` and no `{absent}`",
            hint=f"state `{absent}` too, or a `path` for both",
        )
    if path is None:
        raise stated.reader.fault(
            None,
            f"nothing says how tier `{name}` is reached",
            hint='`path = "dram_pcie"`, another path of `kvtrace ledger`, or `read` and `write`',
        )
    if serving.wired is not None and path in serving.wired.routes:
        return serving.wired.routes[path]
    return find_route(path, serving.deployment, serving.fleet)


_USUAL_PATH: Final[Mapping[str, str]] = {
    "host_dram": "dram_pcie",
    "local_nvme": "local_nvme",
    "pool": "pool_rdma_direct",
    "pool_ssd": "pool_ssd",
    "object_store": "object_store",
}


def _usual_capacity(name: str, scope: TierScope, serving: _Serving) -> float:
    """Idle DRAM for a private tier; the DRAM of pool nodes, or all idle DRAM of GPU nodes."""
    fleet = serving.fleet
    idle = fleet.dram_idle_bytes_per_instance.value
    if scope == "instance":
        return idle
    if serving.wired is not None and serving.wired.is_pool_in_gpu_nodes:
        return idle * fleet.instances
    return fleet.pool_dram_bytes.value


def _capacity(stated: TierPlan, tier: TierSpec, base: Scenario, block_tokens: int) -> float:
    if stated.capacity_blocks is not None:
        token_bytes = tier.stored_bytes_per_token or base.kv_bytes_per_token
        return stated.capacity_blocks * block_tokens * token_bytes
    return tier.capacity_bytes if stated.capacity_bytes is None else stated.capacity_bytes


def _change_links(plan: Plan, links: dict[str, LinkSpec]) -> None:
    """Apply what `[link.NAME]` states; a link of another name is added, and needs a rate."""
    for name, stated in plan.links.items():
        known = links.get(name)
        if known is None and "bytes_per_s" not in stated:
            raise plan.reader.section("link").fault(
                name,
                f"there is no link `{name}` to change, and a new one needs its `rate`",
                hint=f"known: {', '.join(links) or 'none'}",
            )
        base = known or LinkSpec(name, "shared", 0.0)
        links[name] = replace(base, **stated)  # type: ignore[arg-type]


def _in_chain(plan: Plan, tiers: Mapping[str, TierSpec]) -> tuple[TierSpec, ...]:
    if plan.chain is None:
        return tuple(tiers.values())
    twice = next((name for name in plan.chain if plan.chain.count(name) > 1), None)
    if twice is not None:
        raise plan.reader.fault("chain", f"the chain names `{twice}` twice")
    return tuple(tiers[find_tier(name, tiers)] for name in plan.chain)
