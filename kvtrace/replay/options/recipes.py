"""The table of options: what each one is, before it is built on a service.

Ids are composed: a base, for pools `_2x` or `_idle_dram`, and in this order `_kv_routing`, `_fp8`,
`_isolated`; pools have their place, wire and rate in the base (`pool_peer_rdma_direct_100g_fp8`).
`_own_instances` is the other isolation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import Final

from kvtrace.replay.options.ground import Ground
from kvtrace.replay.options.local_tiers import bought_dram, idle_dram, local_nvme, no_tier
from kvtrace.replay.options.observed import observed_tiers
from kvtrace.replay.options.option import Family, Place, Wire
from kvtrace.replay.options.parts import Parts
from kvtrace.units import GB

POOL_PREFIX: Final = "pool_"
"""Begins the id of every pool, also of those that only a file or another release knows."""
KV_ROUTING: Final = "_kv_routing"
FP8: Final = "_fp8"
ISOLATED: Final = "_isolated"
OWN_INSTANCES: Final = "_own_instances"
OVER_IDLE_DRAM: Final = "_idle_dram"
TWICE: Final = "_2x"
PORT_BITS_PER_S: Final = (100.0 * GB, 200.0 * GB, 400.0 * GB)
"""Line rates that pools are compared at, beside that of the hardware; ports of data/links.toml."""
_PLACE_IDS: Final[tuple[tuple[Place, str, str], ...]] = (
    ("dram_nodes", "pool_dram", "DRAM pool"),
    ("peer_dram", "pool_peer", "Pool in the GPU nodes' DRAM"),
    ("dram_ssd_nodes", "pool_ssd", "DRAM and SSD pool"),
    ("file_system", "pool_fs", "Parallel file system"),
    ("managed_cache", "pool_managed", "Managed cloud cache"),
)
_WIRES: Final[tuple[tuple[Wire, str], ...]] = (
    ("tcp", "TCP"),
    ("rdma_bounce", "RDMA, host bounce"),
    ("rdma_direct", "RDMA, GPU-direct"),
)
_QUICK_POOLS: Final = frozenset(
    {
        "pool_dram_tcp",
        "pool_dram_rdma_bounce",
        "pool_dram_rdma_direct",
        "pool_dram_rdma_direct_fp8",
        "pool_peer_rdma_direct",
        "pool_ssd_rdma_bounce",
        "pool_fs_rdma_bounce",
        "pool_managed_tcp",
    }
)
"""Each place once at least, the plainest on every wire, and one with KV in fp8."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """One option as a row."""

    option_id: str
    title: str
    family: Family
    parts: Callable[[Ground], Parts] = no_tier
    """Of a local option; a pool is built from its place."""
    place: Place | None = None
    wire: Wire | None = None
    port_bits_per_s: float | None = None
    is_kv_routed: bool = False
    is_quantised: bool = False
    is_isolated: bool = False
    """Long prompts have a queue of their own."""
    has_own_instances: bool = False
    """Long prompts have instances of their own."""
    is_as_needed: bool = False
    is_over_idle_dram: bool = False
    """Of a pool: the instances' idle DRAM is looked up before it."""
    pool_times: int = 1
    """Of a pool: so many times the nodes that the fleet states, each as large."""
    has_reuse: bool = True
    is_quick: bool = False


def kv_routed(recipe: Recipe) -> Recipe:
    """The same, and requests go where queue, move and recompute together take least."""
    base = "kv_routing" if recipe.option_id == "hbm_only" else recipe.option_id + KV_ROUTING
    title = f"{recipe.title}, KV-centric routing"
    return replace(
        recipe,
        option_id=base,
        title="KV-centric routing" if recipe.option_id == "hbm_only" else title,
        family="local" if recipe.family == "today" else recipe.family,
        is_kv_routed=True,
        is_quick=False,
    )


def quantised(recipe: Recipe) -> Recipe:
    """The same with KV in fp8."""
    return _changed(recipe, FP8, "KV in fp8", is_quantised=True)


def isolated(recipe: Recipe) -> Recipe:
    """The same with a queue of their own for long prompts."""
    return _changed(recipe, ISOLATED, "long prompts apart", is_isolated=True)


def with_own_instances(recipe: Recipe) -> Recipe:
    """The same with instances of their own for long prompts."""
    words = "long prompts on instances of their own"
    return _changed(recipe, OWN_INSTANCES, words, has_own_instances=True)


def over_idle_dram(recipe: Recipe) -> Recipe:
    """The pool below the idle DRAM of each instance."""
    return _changed(recipe, OVER_IDLE_DRAM, "below idle host DRAM", is_over_idle_dram=True)


def twice_the_nodes(recipe: Recipe) -> Recipe:
    """The pool on twice as many nodes: twice its bytes and its ports."""
    return replace(_changed(recipe, TWICE, "twice the nodes"), pool_times=2 * recipe.pool_times)


def _changed(recipe: Recipe, suffix: str, words: str, **fields: bool) -> Recipe:
    family: Family = "local" if recipe.family == "today" else recipe.family
    return replace(
        recipe,
        option_id=recipe.option_id + suffix,
        title=f"{recipe.title}, {words}",
        family=family,
        is_quick=False,
        **fields,  # type: ignore[arg-type]
    )


def find_recipe(option_id: str) -> Recipe | None:
    """The recipe of an id, composed ones included; null: no such option."""
    for suffix, change in _CHANGES:
        if option_id.endswith(suffix):
            base = find_recipe(option_id.removesuffix(suffix))
            is_of_pool = suffix in (OVER_IDLE_DRAM, TWICE)
            if base is None or (is_of_pool and not can_be_mixed(base)):
                return None
            return change(base)
    if option_id == "kv_routing":
        return kv_routed(HBM_ONLY)
    return next((one for one in _bases() if one.option_id == option_id), None)


@cache
def changes_of(option_id: str) -> tuple[str, frozenset[str]]:
    """The base of an id, and the changes that are composed with it, by their suffixes."""
    if option_id == "kv_routing":
        return HBM_ONLY.option_id, frozenset({KV_ROUTING})
    for suffix, _ in _CHANGES:
        if option_id.endswith(suffix):
            base, changes = changes_of(option_id.removesuffix(suffix))
            return base, changes | {suffix}
    return option_id, frozenset()


def can_be_mixed(recipe: Recipe) -> bool:
    """A pool of nodes that the fleet states, which idle DRAM may stand above, or more nodes in."""
    is_plain = not recipe.is_over_idle_dram and recipe.pool_times == 1
    return recipe.place in ("dram_nodes", "dram_ssd_nodes") and is_plain


@cache
def family_of(option_id: str) -> Family:
    """What kind of change an option is, by its id; one that is of no catalogue is local."""
    found = find_recipe(option_id)
    if found is not None:
        return found.family
    return "pool" if option_id.startswith(POOL_PREFIX) else "local"


_CHANGES: Final = (
    (OWN_INSTANCES, with_own_instances),
    (ISOLATED, isolated),
    (FP8, quantised),
    (KV_ROUTING, kv_routed),
    (OVER_IDLE_DRAM, over_idle_dram),
    (TWICE, twice_the_nodes),
)
RECOMPUTE: Final = Recipe(
    option_id="recompute",
    title="Recompute everything",
    family="today",
    has_reuse=False,
    is_quick=True,
)
HBM_ONLY: Final = Recipe(option_id="hbm_only", title="HBM only", family="today", is_quick=True)
OBSERVED: Final = Recipe(
    option_id="as_observed",
    title="As observed",
    family="today",
    parts=observed_tiers,
    is_quick=True,
)
IDLE_DRAM: Final = Recipe(
    option_id="dram_idle", title="Idle host DRAM", family="local", parts=idle_dram, is_quick=True
)
BOUGHT_DRAM: Final = Recipe(
    option_id="dram_bought", title="Bought host DRAM", family="local", parts=bought_dram
)
LOCAL_SSD: Final = Recipe(
    option_id="local_nvme",
    title="Idle host DRAM and local SSD",
    family="local",
    parts=local_nvme,
)
BIGGER_GPU: Final = Recipe(option_id="bigger_gpu", title="Bigger GPU", family="hardware")
AS_NEEDED: Final = Recipe(
    option_id="hbm_as_needed",
    title="HBM only, KV taken as needed",
    family="local",
    is_as_needed=True,
)


def _pools() -> Iterator[Recipe]:
    """Every place over every wire, at the stated rate and at each other one."""
    rates = (None, *PORT_BITS_PER_S)
    for (place, ident, title), (wire, words), rate in product(_PLACE_IDS, _WIRES, rates):
        at_id = "" if rate is None else f"_{rate / GB:.0f}g"
        at = "" if rate is None else f", {rate / GB:.0f} Gb/s"
        option_id = f"{ident}_{wire}{at_id}"
        yield Recipe(
            option_id=option_id,
            title=f"{title} over {words}{at}",
            family="pool",
            place=place,
            wire=wire,
            port_bits_per_s=rate,
            is_quick=option_id in _QUICK_POOLS,
        )


def _bases() -> Iterator[Recipe]:
    yield from (
        RECOMPUTE,
        OBSERVED,
        HBM_ONLY,
        IDLE_DRAM,
        BOUGHT_DRAM,
        LOCAL_SSD,
        BIGGER_GPU,
        AS_NEEDED,
    )
    yield from _pools()


def mixes(instances: int) -> Iterator[Recipe]:
    """Pools of stated nodes with idle DRAM above them or twice the nodes, by routing, number format
    and isolation: what no depth replays whole, and a search chooses from.
    """
    for pool in _pools():
        if not can_be_mixed(pool) or pool.port_bits_per_s is not None:
            continue
        for base in (pool, over_idle_dram(pool), twice_the_nodes(pool)):
            routed = (base, kv_routed(base)) if instances > 1 else (base,)
            for one in routed:
                for change in (one, quantised(one)):
                    yield change
                    yield isolated(change)


def _locals(instances: int) -> Iterator[Recipe]:
    """Every mix of a store, a routing, a number format and an isolation.

    Quick ones: each store once, with the better routing where there is something to route.
    """
    is_routed = instances > 1
    for base in (HBM_ONLY, IDLE_DRAM, BOUGHT_DRAM, LOCAL_SSD, BIGGER_GPU):
        usual = kv_routed(base) if is_routed else base
        for one in (base, kv_routed(base)):
            is_quick = base.is_quick or one == usual
            for change in (one, quantised(one)):
                is_told = base in (HBM_ONLY, IDLE_DRAM, BOUGHT_DRAM) and one == usual
                yield replace(change, is_quick=is_quick if change is one else is_told)
                is_apart = base is HBM_ONLY and change == base
                yield replace(isolated(change), is_quick=is_apart)


def recipes(instances: int) -> list[Recipe]:
    """All options of a comparison, in the order in which they are shown."""
    apart = [with_own_instances(one) for one in (HBM_ONLY, IDLE_DRAM)]
    made = [OBSERVED, RECOMPUTE, *_locals(instances), *apart, AS_NEEDED]
    for pool in _pools():
        narrow = quantised(pool)
        made += [pool, replace(narrow, is_quick=narrow.option_id in _QUICK_POOLS)]
    return made
