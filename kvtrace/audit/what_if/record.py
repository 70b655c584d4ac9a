"""What the page recomputes when a slider moves, as the record holds it.

The numbers here and the formulas of `formulas.py` are all that the page has: it replays nothing.
"""

from __future__ import annotations

import msgspec


class WhatIfSlider(msgspec.Struct, kw_only=True):
    """One thing that a reader may change, in fixed steps."""

    id: str
    """link_speed | pool_size | kv_dtype | load | gpu_price | dram_price."""
    unit: str
    values: list[float]
    """What each position means; bytes of a token for `kv_dtype`."""
    names: list[str] = []
    """Of the positions, where the values are no names by themselves."""
    base: int
    """The position of the audit."""
    low: float | None = None
    """The range that is known of the value; null: none is."""
    high: float | None = None
    kind: str = ""
    """spec | measured | fitted | assumed | given; empty: a choice, no constant."""
    source: str = ""
    fixed_reason: str | None = None
    """Why it cannot be moved, a key of the page's texts; then it has one position."""


class WhatIfLink(msgspec.Struct, kw_only=True):
    """A link on the way of the pool's KV."""

    link_id: str
    links: int
    is_shared: bool
    """One for the fleet; False: it comes with the instances."""
    usable_bytes_per_s: float
    """Of one."""
    port_bytes_per_s: float | None = None
    """What its network ports give at the base speed; null: it does not follow the ports."""
    cap_bytes_per_s: float | None = None
    """What else limits it, whatever the ports; null: nothing."""
    grows_with_nodes: bool = False
    """It is that of the pool's nodes."""
    bytes_read: float
    """Of the replayed window, over all links of the kind."""
    bytes_written: float
    p99_over_mean: float | None = None
    """P99 minute over the mean of the window; null: not known."""


class WhatIfStage(msgspec.Struct, kw_only=True):
    """One stage of a load; its bytes cross all its links at once."""

    latency_s: float
    links: list[int]
    """Places in `links`."""


class WhatIfHit(msgspec.Struct, kw_only=True):
    """The hit whose move is held against recomputing it."""

    prompt_tokens: int
    cached_tokens: int
    is_example: bool
    """No reuse is known: 95 % of a prompt of 2 000 tokens."""
    recompute_s: float
    kv_bytes: list[float]
    """Over all ranks, by position of `kv_dtype`."""


class WhatIfLengths(msgspec.Struct, kw_only=True):
    """Hits of rising length before the same new tokens."""

    new_tokens: int
    cached_tokens: list[int]
    recompute_s: list[float]
    kv_bytes: list[list[float]]
    """By position of `kv_dtype`, then by length."""


class WhatIfBucket(msgspec.Struct, kw_only=True):
    """Loaded hits of the replay, by prompt length."""

    prompt_bucket: int
    """Lower bound of the half-open range up to twice this, in tokens."""
    hits: int
    moved_bytes: float
    """Mean of a hit."""
    recompute_s: float
    """Mean of recomputing it."""
    move_s: float
    """Mean of the replay."""
    residual: float
    """What the replay took over what the formula gives at the base."""


class WhatIfSide(msgspec.Struct, kw_only=True):
    """An option as replayed, and the cache that its hits come from."""

    option: str
    title: str
    hit_tokens: int
    """Of the replayed window, from all tiers."""
    capacity_bytes: float
    """Of its largest tier, over all instances."""


class WhatIfFleet(msgspec.Struct, kw_only=True):
    """The replayed window, and the prefill time that hits leave."""

    instances: int
    gpus_per_instance: int
    span_s: float
    """First to last arrival."""
    replay_s: float
    """First arrival to last first token, over which links are used."""
    busy_share: float
    """Part of its time for which a fleet is kept busy."""
    prompt_tokens: int
    ceiling_tokens: int
    """Most that any cache could serve."""
    pool: WhatIfSide
    rival: WhatIfSide
    hbm: WhatIfSide
    """What the pooled option serves from HBM."""
    whole_share: float = 1.0
    """Of the estimated instances, those that the replays give back: 1 where their whole numbers
    agree at the base, else what makes them agree, in the middle of a whole one."""
    work_hit_tokens: list[int]
    """Of the replays without other GPUs and formats, rising."""
    work_gpu_s: list[float]
    """Their prefill, in GPU-seconds."""


class WhatIfPorts(msgspec.Struct, kw_only=True):
    """What ports of a class cost."""

    upto_bits_per_s: float | None
    """Highest line rate of the class; null: the last one."""
    node_usd: float
    """USD a month of one pool node with its ports, without DRAM."""
    gpu_nodes_usd: float
    """USD a month of the ports that the GPU nodes get for it."""


class WhatIfMoney(msgspec.Struct, kw_only=True):
    """How the bill and the worth of GPUs follow the sliders; a month of the window, repeated."""

    hours_per_month: float
    instance_usd_per_gpu_usd: float
    """USD a month of an instance that is given back, for each USD of a GPU-hour; 0: nothing."""
    profile: list[float]
    """Load of each hour over that of the busiest; empty: every hour as the busiest."""
    pool_usd: float
    """USD a month that goes with neither nodes nor DRAM."""
    nodes: float
    node_bytes: float
    """DRAM of one node; 0: the pool's size is fixed."""
    ports: list[WhatIfPorts]
    port_bits_per_s: float
    """Line rate of a pool port at the base."""
    gb_usd: float
    """USD a month of 10^9 bytes of its DRAM that do not go with the price of DRAM."""
    gb_usd_per_dram_usd: float
    """And those that do, for each USD of a GB."""
    rival_usd: float
    rival_usd_per_dram_usd: float


class WhatIfModel(msgspec.Struct, kw_only=True):
    """Everything that the formulas take."""

    sliders: list[WhatIfSlider]
    kv_ranks: int
    """GPUs that share the KV of one sequence."""
    path_title: str
    lookup_s: float
    stages: list[WhatIfStage]
    links: list[WhatIfLink]
    hit: WhatIfHit | None
    """Null: the FLOPs of the LLM are not known."""
    lengths: WhatIfLengths | None
    buckets: list[WhatIfBucket]
    curve_bytes: list[float]
    """Capacities of the curve of hits of one LRU cache, rising; empty: no curve."""
    curve_ratio: list[float]
    """Hit tokens over prompt tokens at them."""
    fleet: WhatIfFleet | None
    """Null: no pool was weighed."""
    money: WhatIfMoney | None
    """Null: no pool was weighed, or the log does not stand for a month."""


class WhatIfMove(msgspec.Struct, kw_only=True):
    """Move against recompute of one bucket; `move_s` null: a link on the way is full."""

    prompt_bucket: int
    move_s: float | None
    recompute_s: float


class WhatIfUse(msgspec.Struct, kw_only=True):
    """Use of one link."""

    link_id: str
    usable_bytes_per_s: float
    mean_bytes_per_s: float
    utilisation: float
    p99_utilisation: float | None


class WhatIfResults(msgspec.Struct, kw_only=True):
    """What the formulas give at one setting of the sliders; null: not known here."""

    path_bytes_per_s: float
    """Per GPU, when the move is alone."""
    needed_bytes_per_s: float | None = None
    """Per GPU, above which the hit is worth moving; null: no rate is enough, or unknown."""
    move_s: float | None = None
    recompute_s: float | None = None
    kv_bytes: float | None = None
    break_even_tokens: int | None = None
    """Least cached length that is worth moving; null: none up to the longest one, or unknown."""
    moves: list[WhatIfMove] = []
    links: list[WhatIfUse] = []
    hit_ratio: float | None = None
    """Hit tokens of the pool over prompt tokens."""
    rival_hit_ratio: float | None = None
    extra_hit_ratio: float | None = None
    """The difference."""
    freed_instances: float | None = None
    """That the freed prefill beyond the rival is worth, before rounding."""
    whole_instances: int | None = None
    gpu_hours_per_month: float | None = None
    """That whole instances give back."""
    saving_usd: float | None = None
    """USD a month of whole instances."""
    unrounded_usd: float | None = None
    """The same before rounding: by the second of GPU time."""
    cost_usd: float | None = None
    """USD a month that the pool costs beyond the rival."""
    net_usd: float | None = None
    """saving_usd - cost_usd."""
    unrounded_net_usd: float | None = None
    break_even_gpu_usd: float | None = None
    """USD a GPU-hour at which net is zero; null: no price."""
    break_even_dram_usd: float | None = None
    """USD a GB at which net is zero; null: no price."""


class WhatIfCheck(msgspec.Struct, kw_only=True):
    """A number of the audit, and what the formulas make of it at the base."""

    id: str
    unit: str
    here: float | None
    audit: float | None
    """By replay, bill or ledger."""


class WhatIf(msgspec.Struct, kw_only=True):
    """The model, what it gives at the base, and how far that is from the audit."""

    model: WhatIfModel
    base: WhatIfResults
    checks: list[WhatIfCheck]
