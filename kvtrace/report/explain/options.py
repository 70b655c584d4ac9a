"""What an option is, put together from the parts of its id."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from kvtrace.report.explain.explanation import Explanation, Fact

_WHOLE: Final[Mapping[str, tuple[str, str]]] = {
    "as_observed": (
        "The service as it runs today",
        "What fleet.toml and the logs say of it; a named assumption where both are silent",
    ),
    "recompute": (
        "Every prompt is computed whole, nothing is reused",
        "The floor that GPU-seconds saved are counted from",
    ),
    "hbm_only": (
        "Prefix caching in the HBM that weights and activations leave, of each instance alone",
        "What most engines do by default; today, where nobody says otherwise",
    ),
    "hbm_as_needed": (
        "HBM only, and a request takes its KV blocks as it grows, not all at admission",
        "More requests run at once, and some are preempted",
    ),
    "kv_routing": (
        "HBM only, and a request goes where queue, move and recompute together take least",
        "A rival of the pool that costs no hardware",
    ),
    "dram_idle": (
        "DRAM of the GPU nodes that is free today keeps what HBM drops, for its own instance",
        "A rival of the pool; priced at zero, and at cost beside it",
    ),
    "dram_bought": (
        "As idle DRAM, with DRAM that is bought for it",
        "A rival of the pool that needs no network",
    ),
    "local_nvme": (
        "Idle DRAM, and local SSD of the GPU nodes below it: what is free there, else bought",
        "A rival of the pool; SSD wears by what is written",
    ),
    "bigger_gpu": (
        "The next GPU by HBM in place of today's, as many of them",
        "More KV stays in HBM, and nothing is moved",
    ),
}
_PLACES: Final[Mapping[str, str]] = {
    "pool_dram": "a pool of dedicated DRAM nodes that all instances share",
    "pool_peer": "a pool in the DRAM of the GPU nodes themselves, shared by all instances",
    "pool_ssd": "a pool of dedicated nodes with DRAM and SSD",
    "pool_fs": "a pool on a parallel file system or appliance, priced per TB and GB/s",
    "pool_managed": "a managed cloud cache, paid by node-hours and requests",
}
_WIRES: Final[Mapping[str, str]] = {
    "tcp": "over TCP",
    "rdma_bounce": "over RDMA into host memory, then over PCIe into HBM (host bounce)",
    "rdma_direct": "over RDMA straight into HBM (GPU-direct)",
}
_CHANGES: Final[Mapping[str, str]] = {
    "idle_dram": "the idle DRAM of each instance is looked up before it",
    "2x": "on twice the nodes that the fleet file states",
    "own_instances": "long prompts have instances of their own",
    "isolated": "long prompts have a queue of their own",
    "fp8": "KV in fp8: half the bytes of bf16; what it does to answers is not evaluated here",
    "kv_routing": "requests go where queue, move and recompute together take least",
}
_POOL: Final = re.compile(
    rf"(?P<place>{'|'.join(_PLACES)})_(?P<wire>{'|'.join(_WIRES)})(?:_(?P<rate>\d+)g)?"
)
OPTION_IDS: Final = (
    *_WHOLE,
    *(f"{place}_{wire}" for place in _PLACES for wire in _WIRES),
)
"""Ids without the changes that may follow them."""


def explain_option(name: str) -> Explanation | None:
    """What an option is; null: the name is no id of one."""
    base, changes = _split(name)
    found = _WHOLE.get(base)
    pool = _POOL.fullmatch(base)
    if found is not None:
        title, role = found
    elif pool is not None:
        rate = f", at {pool['rate']} Gb/s a port" if pool["rate"] else ""
        title = f"KV in {_PLACES[pool['place']]}, {_WIRES[pool['wire']]}{rate}"
        role = "A pooled option: weighed against the best option without a pool"
    else:
        return None
    facts = [Fact("role", role), *(Fact("with", _CHANGES[one]) for one in changes)]
    facts.append(Fact("replay it", f"kvtrace replay DATASET --option {name}"))
    return Explanation(name, "option", title, tuple(facts))


def _split(name: str) -> tuple[str, list[str]]:
    """The base of an id, and the changes behind it in order."""
    changes: list[str] = []
    while name not in _WHOLE:
        change = next((one for one in _CHANGES if name.endswith(f"_{one}")), None)
        if change is None:
            break
        name = name.removesuffix(f"_{change}")
        changes.insert(0, change)
    return name, changes
