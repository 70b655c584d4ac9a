"""What is replayed: an option as numbers. No constant lives here; `cost` supplies every one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

TierScope = Literal["instance", "shared"]
LoadMode = Literal["async", "sync"]
"""async: the request waits for its load while the GPU serves others; sync: the GPU waits too."""
LoadDecision = Literal["always", "never", "threshold", "arbiter", "split"]
"""threshold: load where the tiers add `load_threshold_tokens` or more, as engines do. arbiter: load
only what is priced below recomputing it, links as they are at that moment; and, where loads are in
series, write nothing that empty links would not bring back sooner than computing it. split: compute
a head of what was found while its tail loads, cut where both end together by such prices; or all,
or none."""
Overlap = Literal["serial", "pipelined", "layerwise"]
"""How a load runs beside itself and the prefill. serial: stages one after the other, then prefill.
pipelined: chunks of `load_chunk_tokens` pass all stages of a tier at once, the slowest one bounds.
layerwise: the prefill begins once the first of `layers` layers is there, and computes each layer
after its load: d + (L - 1) max(c, d) + c seconds, for d of load and c of prefill a layer."""
Prefetch = Literal["wait", "best_effort", "off"]
"""Loads of requests that still queue. wait: they begin on arrival and are waited for. best_effort:
they are stopped when the GPU would stand idle for them, and what has come is used. off: nothing is
asked or loaded before the scheduler takes the request."""
EvictionPolicy = Literal[
    "lru", "leaf_lru", "fifo", "flat_fifo", "lfu", "length_aware", "arc", "s3_fifo"
]
"""As in docs/policies.md, which also says who stays in front of whom."""
WriteMoment = Literal["on_compute", "on_evict"]
"""on_compute: a prompt is written when its prefill ends. on_evict: what the cache above (HBM, or
the tier before in the chain) evicts is written."""
Inclusion = Literal["inclusive", "exclusive"]
"""exclusive: a block that is loaded from here leaves for HBM, and comes back when evicted there."""
LookupMoment = Literal["on_schedule", "on_arrival"]
"""When the tiers below HBM are asked. on_arrival: then alone. on_schedule: then (so that a load may
start while the request queues), and again when the scheduler takes the request, from where its run
stands by then, unless the answer has only just come; engines with a cache connector ask there."""
KvAdmission = Literal["whole", "as_needed"]
"""What HBM must have room for when a request enters: its prompt and all that it will generate, or
its prompt alone. as_needed: generated tokens take their room as they come; when there is none, the
instance preempts the request that entered last, which later computes again what it has lost."""
Routing = Literal["round_robin", "least_loaded", "session_sticky", "prefix_affinity", "kv_centric"]
"""How an instance is chosen for a request; see `kvtrace.replay.routing`."""
ThrottledMoves = Literal["reads", "writes", "handoffs"]
"""Loads from tiers, writes to them, or what goes from prefill to decode instances."""


class PrefillTime(Protocol):
    """Prefill seconds of `new_tokens` after `cached_tokens` on one instance."""

    def prefill_s(self, new_tokens: float, cached_tokens: float) -> float:
        """Seconds."""
        ...


class DecodeTime(Protocol):
    """Seconds of one decode step of a batch on one instance."""

    def step_s(self, batch: float, context_tokens: float) -> float:
        """Seconds for one step of `batch` sequences with `context_tokens` of KV in all."""
        ...


class StepTime(Protocol):
    """Seconds of engine steps that prompts of several requests share with the decode batch."""

    def work_s(self, new_tokens: float, cached_tokens: float) -> float:
        """Seconds that a request adds to its steps whatever it shares them with (attention)."""
        ...

    def added_s(
        self, new_tokens: float, work_s: float, *, steps: int, is_start: bool, batch: int
    ) -> float:
        """Seconds that `new_tokens` and `work_s` in all add to `steps` decode steps of `batch`.

        Batch 0: the seconds of the steps. `is_start`: a prefill begins in them, so that what a
        prefill pays once is due.
        """
        ...


@dataclass(frozen=True, slots=True)
class LinkSpec:
    """A link that flows share max-min fairly."""

    link_id: str
    """Such as `pcie`, `nic_rdma`, `pool_nic_rdma`."""
    scope: TierScope
    """instance: one such link per instance; shared: one for the whole fleet."""
    bytes_per_s: float
    """Usable bytes/s of the whole link (all ranks of an instance together)."""
    instances_per_link: int = 1
    """Scope instance: so many neighbouring instances (those of one node) share each such link."""


@dataclass(frozen=True, slots=True)
class StageSpec:
    """One serial stage of a move; the flow crosses all its links at once."""

    kind: Literal["pull", "load"]
    """pull: over a network; load: from host memory into HBM."""
    link_ids: tuple[str, ...]
    latency_s: float
    """Fixed seconds before the first byte."""


@dataclass(frozen=True, slots=True)
class TierSpec:
    """One tier below HBM; looked up in chain order."""

    tier_id: str
    """host_dram | pool."""
    scope: TierScope
    capacity_bytes: float
    lookup_s: float
    """Seconds of one lookup, paid by each request that has blocks left to find here."""
    read: tuple[StageSpec, ...]
    """Stages from the tier to HBM, in order; each waits for the one before (serial load)."""
    write: tuple[StageSpec, ...]
    """Stages from HBM to the tier; writes do not delay a request, but share the links."""
    stored_bytes_per_token: float | None = None
    """What a token takes in this tier; None: as in HBM. Less where ranks hold copies (MLA under TP)
    and the tier keeps one."""
    policy: EvictionPolicy = "lru"
    inclusion: Inclusion = "inclusive"
    write_moment: WriteMoment = "on_compute"
    """An exclusive tier is written on evict."""
    takes_generated: bool = False
    """Written on compute: generated blocks are written when their request ends, too. What is
    written on evict is whatever is evicted."""
    holds_hbm: bool = False
    """Written on compute: HBM keeps a prompt's blocks until they are written here, as engines do
    that copy straight out of HBM; slow writes then keep requests out."""
    admission_uses: int = 1
    """A block is written for the request that is the so manieth to ask for it, or a later one."""
    match_tokens: int = 0
    """Found and stored are only multiples of so many leading prompt tokens (a unit that ends inside
    a block of the trace takes all of it); 0: whole blocks, and a partial last one."""
    high_watermark: float = 1.0
    """Share of the capacity above which blocks are evicted, …"""
    low_watermark: float = 1.0
    """… down to this share."""
    lease_s: float = 0.0
    """A block that was found is not evicted for so long; what then finds no room is not stored."""
    ttl_s: float | None = None
    """A block is gone when its last use is longer ago."""
    lookup_p99_s: float | None = None
    """99th percentile of a lookup: `lookup_s` and an exponential delay; None: always `lookup_s`."""
    read_delay_p99_s: float = 0.0
    """99th percentile of an exponential delay before a load from here begins."""
    lookup_failure_share: float = 0.0
    """Share of the requests whose lookups here find nothing, after `timeout_s` if that is set."""
    read_failure_share: float = 0.0
    """Share of the requests whose loads from here bring nothing, as turns out at their end."""
    timeout_s: float | None = None
    """A load from here that takes longer is stopped; what has not come is recomputed."""
    starts_cold: bool = False
    """Requests before the replayed ones leave nothing here, as after a restart of the tier."""


@dataclass(frozen=True, slots=True)
class IsolationSpec:
    """What keeps long prompts away from short ones."""

    long_prompt_tokens: int
    """A prompt of more tokens is long."""
    long_instances: int = 0
    """So many instances (the last ones) serve the long prompts, and nothing else. 0: all serve
    both, but each has a queue for either kind, and short prompts take their steps first."""


@dataclass(frozen=True, slots=True)
class ThrottleSpec:
    """What some moves may take of a link, all of them together."""

    link_id: str
    bytes_per_s: float
    """On each such link."""
    moves: ThrottledMoves = "reads"


@dataclass(frozen=True, slots=True)
class HandoffSpec:
    """The way of a prompt's KV from the instance that prefilled it to the one that decodes it.

    The flow crosses all these links at once, and shares them with loads and writes.
    """

    out_link_ids: tuple[str, ...] = ()
    """Links of the prefill instance (or shared ones)."""
    in_link_ids: tuple[str, ...] = ()
    """Links of the decode instance (or shared ones)."""
    latency_s: float = 0.0
    """Fixed seconds before the first byte."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """One option, ready to replay."""

    option_id: str
    title: str
    instances: int
    """Engines with an HBM and a queue of their own. Under data parallelism each DP rank is one: it
    has its own KV cache, and requests are routed to ranks."""
    kv_bytes_per_token: float
    """All ranks of an instance, replication included."""
    hbm_capacity_bytes: float
    """For KV, per instance, after weights and activations."""
    tiers: tuple[TierSpec, ...]
    links: Mapping[str, LinkSpec]
    prefill: PrefillTime
    decode: DecodeTime
    routing: Routing = "least_loaded"
    load_mode: LoadMode = "async"
    load_decision: LoadDecision = "always"
    load_threshold_tokens: int = 0
    """Decision `threshold`: fewest tokens that the tiers must add to HBM for a load."""
    overlap: Overlap = "serial"
    layers: int = 1
    """Overlap `layerwise`: layers that load one after the other."""
    stages: int = 1
    """Stages of a pipeline (PP), which work on different steps at once: one takes a part of the
    seconds of `prefill`, `decode` and `step`, which are those of the way through all."""
    load_chunk_tokens: int = 0
    """Overlap `pipelined`: tokens of a chunk; the first one passes the stages one by one."""
    prefetch: Prefetch = "wait"
    reuse: bool = True
    """False: recompute everything (no cache at all)."""
    keeps_generated: bool = False
    """True: full blocks of what a request generates stay in HBM when it ends, and in the tiers that
    `takes_generated`; see `kvtrace.replay.generated` for those that a trace shows. Without effect
    in the idealised mode, whose bound is that of prompts, and where decode instances generate:
    no prompt looks into their HBM."""
    idealised: bool = False
    """True: instant insert and no pinning; hit ratios then equal the reuse facts."""
    seed: int = 0
    prefill_chunk_tokens: int = 0
    """Prompt tokens of one engine step at most: waiting prompts share a step up to it, a longer one
    takes several (chunked prefill). 0: a prefill is one step of its own. Every step also serves the
    decoding requests."""
    decode_in_chunk: bool = False
    """True: the tokens of the decoding requests count among the `prefill_chunk_tokens`."""
    running_requests: int = 0
    """Requests that hold HBM of an instance at once, at most; 0: as many as it holds."""
    kv_admission: KvAdmission = "whole"
    kv_block_tokens: int = 1
    """as_needed: the KV of a prompt takes whole blocks of so many tokens."""
    step: StepTime | None = None
    """Prices shared steps. None: requests of a step add up to their single prefills, and each step
    to a whole decode step of those that ride along."""
    lookup_moment: LookupMoment = "on_schedule"
    metadata_age_s: float = 0.0
    """`prefix_affinity` and `kv_centric` choose by what caches held so many seconds ago."""
    affinity_load_factor: float = 1.25
    """`prefix_affinity` passes over an instance with more requests in its queue than this times the
    mean over instances, rounded up (consistent hashing with bounded loads)."""
    isolation: IsolationSpec | None = None
    throttles: tuple[ThrottleSpec, ...] = ()
    request_bytes_per_s: float | None = None
    """What one move, of whatever request, gets at most, however idle its links are."""
    prefill_instances: int = 0
    """So many instances (the first ones) prefill and the others decode. 0: all do both."""
    handoff: HandoffSpec | None = None
    """With `prefill_instances`; None: the KV is there at once."""
    backlog_share: float = 0.05
    """A replay whose last arrivals (last quarter of the span) wait longer than this share of the
    span on average did not keep up; see `ReplayResult.is_overloaded`."""

    @property
    def queues_apart(self) -> bool:
        """Long prompts have a queue of their own on every instance."""
        return self.isolation is not None and not self.isolation.long_instances
