"""Ways between HBM and a tier, as stages and links of a scenario."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Final

from kvtrace.cost.deployment import Deployment
from kvtrace.cost.fleet import Fleet
from kvtrace.cost.tier_paths import find_path
from kvtrace.cost.transfer import Hop
from kvtrace.replay.options.presets import build_scenarios
from kvtrace.replay.scenario import LinkSpec, StageSpec, TierScope, TierSpec

OPTION_OF_PATH: Final[Mapping[str, str]] = {
    "dram_pcie": "dram_idle",
    "pool_tcp": "pool_dram_tcp",
    "pool_rdma_bounce": "pool_dram_rdma_bounce",
    "pool_rdma_direct": "pool_dram_rdma_direct",
}
"""The paths whose links the options of an audit have, with the ports of the fleet."""
_OF_POOL_NODES: Final = ("pool_nvme",)
"""Links of one pool node: all nodes together serve the fleet."""


@dataclass(frozen=True, slots=True)
class Route:
    """A way to a tier and back."""

    scope: TierScope
    """Of the tier that usually lies there."""
    lookup_s: float
    read: tuple[StageSpec, ...]
    write: tuple[StageSpec, ...]
    links: tuple[LinkSpec, ...]
    keeps_one_copy: bool = False
    """The tier stores one copy of what ranks replicate."""


def find_route(name: str, deployment: Deployment, fleet: Fleet) -> Route:
    """The route of a path's name; a bare rate such as `20GB/s` is a shared link of that rate.

    Raises:
        UsageError: unknown, with close names.
    """
    option = OPTION_OF_PATH.get(name)
    if option is not None:
        scenario = next(s for s in build_scenarios(deployment, fleet) if s.option_id == option)
        (tier,) = scenario.tiers
        return route_of(tier, tuple(scenario.links.values()))
    path = find_path(deployment, name)
    is_pool = any(link.link_id in _OF_POOL_NODES for hop in path.stages for link in hop.links)
    is_shared = is_pool or path.lookup_s == deployment.hardware.pool_lookup_s.value
    is_bare = len(path.stages) == 1
    read = tuple(_stage(hop) for hop in path.stages)
    return Route(
        scope="shared" if is_shared or is_bare else "instance",
        lookup_s=path.lookup_s,
        read=read,
        write=_writes(read),
        links=tuple(_link(hop, fleet, is_bare=is_bare) for hop in _each(path.stages)),
        keeps_one_copy=is_shared,
    )


def route_of(tier: TierSpec, links: Sequence[LinkSpec]) -> Route:
    """The route that a tier has already."""
    return Route(
        scope=tier.scope,
        lookup_s=tier.lookup_s,
        read=tier.read,
        write=tier.write,
        links=tuple(links),
        keeps_one_copy=tier.stored_bytes_per_token is not None,
    )


def _writes(read: Sequence[StageSpec]) -> tuple[StageSpec, ...]:
    """The same links the other way round; memory that is read one way is written the other."""
    turned = {"host_dram_read": "host_dram_write", "host_dram_write": "host_dram_read"}
    return tuple(
        replace(stage, link_ids=tuple(turned.get(link, link) for link in stage.link_ids))
        for stage in reversed(read)
    )


def _stage(hop: Hop) -> StageSpec:
    return StageSpec(hop.kind, tuple(link.link_id for link in hop.links), hop.latency_s)


def _each(stages: Sequence[Hop]) -> list[Hop]:
    """One hop for each link, so that a link is described once."""
    found: dict[str, Hop] = {}
    for hop in stages:
        for link in hop.links:
            found.setdefault(link.link_id, replace(hop, links=(link,)))
    return list(found.values())


def _link(hop: Hop, fleet: Fleet, *, is_bare: bool) -> LinkSpec:
    (link,) = hop.links
    if is_bare:
        return LinkSpec(link.link_id, "shared", link.bytes_per_s)
    if link.link_id in _OF_POOL_NODES:
        return LinkSpec(link.link_id, "shared", link.bytes_per_s * fleet.pool_nodes.value)
    return LinkSpec(link.link_id, "instance", link.bytes_per_s, ceil(link.shared_by))
