"""The Audit record: versioned JSON that alone suffices to render every report.

Everything that a reader sees is here; the renderers choose, order and format, and do no arithmetic.
Unknown is null. JSON Schema: `kvtrace/audit/audit.schema.json`, generated from these types.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from kvtrace.audit.drilldown.record import Drilldown
from kvtrace.audit.fit.record import Fit
from kvtrace.audit.fleet.record import FleetSizes
from kvtrace.audit.money.record import Economics
from kvtrace.audit.quantity import OriginState as OriginState
from kvtrace.audit.quantity import Quantity as Quantity
from kvtrace.audit.sharing.record import SharingScope
from kvtrace.audit.sizing.record import Sizing
from kvtrace.audit.uncertainty.record import Uncertainty
from kvtrace.audit.what_if.record import WhatIf
from kvtrace.schema.manifest import FileEntry, Grade, Note, SourceEntry

AUDIT_SCHEMA_VERSION: Final = 1
Outcome = Literal["pays", "does_not_pay", "pays_only_if", "cannot_tell"]
Level = Literal["low", "medium", "high"]
Severity = Literal["info", "warning", "critical"]
Family = Literal["today", "local", "pool", "hardware"]
"""today: nothing is added; local: routing, DRAM, SSD, number formats or isolation on the instances
as they are; pool: KV that all instances share; hardware: another GPU."""
Basis = Literal["measured", "idealised", "modelled"]
"""What a table rests on. measured: what was logged; idealised: the blocks of the trace in caches
that hold everything at once; modelled: a model, or sizes of tiers that no log states."""
Cell = bool | int | float | str | None


class Table(msgspec.Struct, kw_only=True):
    """Result of a named query (or replay), as shown."""

    id: str
    title: str
    query: str | None
    """Name in the catalogue, or null where a model made it."""
    columns: list[str]
    units: list[str]
    meanings: list[str]
    rows: list[list[Cell]]
    is_modelled: bool = False
    """Made by a model, not by a query."""
    basis: Basis = "measured"
    truncated_from: int | None = None
    """Rows before truncation, if any were left out."""


class Validity(msgspec.Struct, kw_only=True):
    """One statement about what the data can and cannot carry."""

    code: str
    severity: Severity
    message: str


class Data(msgspec.Struct, kw_only=True):
    """Totals of the headline source, evidence, conservation."""

    requests: int
    requests_by_status: dict[str, int]
    prompt_tokens: int | None
    output_tokens: int | None
    cached_tokens: int | None
    cached_known_requests: int
    cache_write_tokens: int | None
    cached_tiers: dict[str, int | None]
    block_refs: int | None
    distinct_blocks: int | None
    block_size_tokens: int | None
    samples: int
    transfers: int
    block_events: int = 0
    rejected: int
    notes: list[Note]
    evidence_grade: Grade
    validity: list[Validity]
    files: list[FileEntry]
    sources: list[SourceEntry]
    span_s: float | None
    """First to last arrival; null without a clock or with one request."""
    dataset_digest: str


class CurvePoint(msgspec.Struct, kw_only=True):
    """Hits of one LRU cache of this capacity, idealised (DESIGN.md section 4)."""

    capacity_blocks: int
    capacity_bytes: float | None
    hit_ratio_blocks: float | None
    hit_ratio_tokens: float | None


class Reuse(msgspec.Struct, kw_only=True):
    """Reuse that exists in the trace; null where the data cannot say, with `unknown_reason`."""

    reusable_ratio_blocks: float | None
    reusable_ratio_tokens: float | None
    reusable_ratio_requests_mean: float | None
    reusable_ratio_full_blocks: float | None
    requests_with_reuse_ratio: float | None
    reusable_blocks: int | None
    reusable_tokens: int | None
    observed_hit_ratio_tokens: float | None
    """cached_tokens / prompt_tokens where both are known: what the deployed cache did."""
    hit_curve: list[CurvePoint]
    knee: CurvePoint | None = None
    """The first point of `hit_curve` within two points of its highest hit ratio: beyond it more
    room adds little. Null without a curve."""
    unknown_reason: str | None = None
    observed_unknown_reason: str | None = None
    """Why `observed_hit_ratio_tokens` is null, and where engine-wide ratios stand instead."""
    lower_bound_reason: str | None = None
    """Why what is reusable is a lower bound: requests are missing from the log. Null: it is not."""


class BytesDistribution(msgspec.Struct, kw_only=True):
    """KV bytes per request."""

    mean: float | None
    p50: float | None
    p90: float | None
    p99: float | None
    maximum: float | None


class Kv(msgspec.Struct, kw_only=True):
    """KV bytes of the prompts under the LLM shape."""

    llm: str
    kv_dtype: str
    bytes_per_token: float
    bytes_requested: float | None
    bytes_requested_block_rounded: float | None
    bytes_distinct: float | None
    """Bytes of all distinct blocks: an unlimited cache."""
    distribution: BytesDistribution


class Percentiles(msgspec.Struct, kw_only=True):
    """Of per-request seconds; p99 is null below `p99_needs` requests."""

    mean: float | None
    p50: float | None
    p90: float | None
    p99: float | None


class HitCost(msgspec.Struct, kw_only=True):
    """What the loaded hits of one option cost against recomputing them."""

    hits: int
    """Loaded hits: requests with at least one block loaded from below HBM."""
    net_negative_hits: int
    """Of the loaded hits, where move took longer than recomputing what it moved (TTFT price)."""
    net_negative_bytes: float
    ttft_lost_s: float
    """Sum of (move - recompute) over net-negative hits."""
    ttft_gained_s: float
    gpu_seconds_freed: float
    moved_bytes: float
    net_negative: Quantity | None = None
    """`net_negative_hits` over the range of the path's constants; null without loaded hits."""
    with_arbiter: HitCost | None = None
    """The same option when it loads only what is priced below recomputing; null: not replayed."""


class LinkLedger(msgspec.Struct, kw_only=True):
    """Bytes and utilisation of one kind of link in one option."""

    link_id: str
    links: int
    bytes_read: float
    bytes_written: float
    utilisation: float
    usable_bytes_per_s: float


class Option(msgspec.Struct, kw_only=True):
    """One option on the common trace and axes; all figures modelled."""

    id: str
    title: str
    instances: int
    hit_ratio_tokens: float | None
    hit_tokens_by_tier: dict[str, int]
    ttft_s: Percentiles
    queue_s: Percentiles
    move_s: Percentiles
    prefill_s: Percentiles
    tpot_s: Percentiles
    prefill_utilisation: float
    gpu_seconds_prefill: float
    gpu_seconds_saved: float
    """GPU-seconds of prefill that the option `recompute` takes (else: each prompt alone, nothing
    cached), less its own. The money in `saving` has another reference: today's option."""
    hit_cost: HitCost
    links: list[LinkLedger]
    usd_per_month: float | None
    """Cost of what the option adds (DRAM, NICs, nodes); zero for what is already there."""
    usd_saved_per_month: float | None
    """Value of the instances it saves, against keeping KV in HBM only (not against recomputing)."""
    is_dominated: bool | None = None
    """Another option is at least as good in p90 and p99 TTFT, GPU-seconds and cost, and better in
    one of them; null where a figure is missing."""
    binds: str | None = None
    """What limits it: prefill | decode | hbm_capacity | link:<id> | none."""
    cost: Quantity | None = None
    """`usd_per_month` with interval and source."""
    saving: Quantity | None = None
    """`usd_saved_per_month` with interval and source."""
    instances_saved: Quantity | None = None
    """Instances (groups of GPUs) that its freed prefill time is worth, before rounding, against
    HBM only: an estimate, as if the fleet were sized by its mean load."""
    whole_instances_saved: Quantity | None = None
    """Whole instances that it gives back at today's SLO, against HBM only: the value by replays on
    fewer instances, the low by the same at the ends of the constants, the high by the estimate."""
    instances_at_slo: int | None = None
    """Instances that keep the SLO at the load of the trace: the count of `fleets.needs`, with the
    load decision of this row; null where none is known."""
    instances_basis: Literal["replayed", "enough", "surrogate", "none"] | None = None
    """How it is known, as in `fleets.needs`: replayed: and one less misses it; enough: replayed,
    fewer were not asked; surrogate: an estimate; none: not known. Null in older records."""
    is_feasible: bool = True
    """False: it cannot carry the load on the stated fleet; its times mean nothing then."""
    offered_load: float | None = None
    """Work that arrives over what the instances can serve; null: unknown."""
    slo: str | None = None
    """Its figures against today's, in one sentence; null where there is nothing to compare with."""
    keeps_slo: bool | None = None
    """TTFT and TPOT within tolerance of today's on the stated fleet; null: nothing to compare."""
    family: Family | None = None
    """What kind of change to today's service it is; null in older records."""
    place: str | None = None
    """Where a pool lives: peer_dram | dram_nodes | dram_ssd_nodes | file_system | managed_cache."""
    wire: str | None = None
    """How a pool is reached: tcp | rdma_bounce | rdma_direct."""
    port_bits_per_s: float | None = None
    """Line rate of the ports to a pool, where the option states one."""
    is_quantised: bool = False
    """KV of fewer bits than today's; accuracy is not evaluated."""
    is_quick: bool = True
    """Replayed at `--depth quick`, too."""
    is_on_frontier: bool | None = None
    """No other option has both a lower cost and a shorter P99 TTFT; null where one is unknown."""
    extra_hit_tokens: int | None = None
    """Hit tokens beyond those of `rival`, as the verdict weighs them: each by the better of its
    load decisions. Null for what is no pool, or is not weighed."""
    rival: str | None = None
    """The option without a pool that leaves this pool least, by id; null as `extra_hit_tokens`."""


class AbsentOption(msgspec.Struct, kw_only=True):
    """An option that could not be replayed."""

    id: str
    title: str
    reason: str


class FrontierStep(msgspec.Struct, kw_only=True):
    """One option of the frontier of cost against P99 TTFT, in the order of rising cost."""

    option: str
    usd_per_month: float
    """Of what is bought for it, on the stated fleet; instances that it gives back are not taken
    off, for `ttft_s` is on that fleet, too."""
    saved_usd_per_month: float | None = None
    """Worth of the instances that it gives back at the SLO (`usd_saved_per_month` of the option),
    with the longer TTFT that the SLO allows; null: not known."""
    net_usd_per_month: float | None = None
    """`usd_per_month` less `saved_usd_per_month`: below zero it saves; null: not known."""
    ttft_s: float
    """p99; p90 where too few requests were replayed for it, see `ttft_is_p90`."""
    usd_per_ms: float | None
    """What each ms less than the step before costs a month; null for the first step."""
    keeps_slo: bool | None


class PromisingMix(msgspec.Struct, kw_only=True):
    """A mix that was not replayed and that the surrogate places on the frontier."""

    option: str
    title: str
    usd_per_month: float
    """Without the wear of flash and bytes over zones, which take a replay."""
    ttft_s: float
    """The nearest replayed option, times what each further change did to others."""
    usd_per_ms: float
    """What each ms less than the best replayed option of at most its cost takes a month."""


class Frontier(msgspec.Struct, kw_only=True):
    """What a shorter tail costs, over all options that carry the load; all figures modelled."""

    steps: list[FrontierStep]
    ttft_is_p90: bool = False
    cheapest: str | None = None
    """The option that keeps the SLO at the least cost, of equal cost the one with the shorter tail;
    null: none does."""
    cheapest_as_it_is: str | None = None
    """The same among options with KV in as many bits as today."""
    weighed: int = 0
    """Options whose cost and tail are known and that carry the load."""
    unpriced: list[str] = []
    """Options that carry the load and whose cost is not known: not weighed."""
    mixes_replayed: int = 0
    """Mixes that a search chose and replayed; they are among the options."""
    mixes_most: int = 0
    """Replays that the search was allowed."""
    mixes_by_surrogate: int = 0
    """Mixes that were priced and not replayed."""
    promising: list[PromisingMix] = []
    """Of these, those that may be steps of the frontier, the cheapest ms first."""


class ReplayWindow(msgspec.Struct, kw_only=True):
    """The requests that all options were replayed on, and the most that any cache could hit there.

    The ceiling of the window is not that of the whole trace: a pool may hit more of a busy hour
    than is reusable over the whole trace.
    """

    requests: int
    of_requests: int
    """`ok` requests of the data."""
    span_s: float | None
    """First to last arrival; null without a clock or with one request."""
    is_whole_trace: bool
    is_peak_hour: bool
    """The busiest hour by uncached prefill; `--depth full` replays the whole trace."""
    prompt_tokens: int
    reusable_tokens: int | None
    """In an unlimited cache; with `counts_history` it holds what came before the window, else it
    starts empty and this is a lower bound. Null without block identity."""
    reusable_ratio_tokens: float | None
    """reusable_tokens / prompt_tokens: the ceiling of every option's hit ratio."""
    counts_history: bool = False
    """`reusable_tokens` counts the requests before the window."""
    warmup_requests: int = 0
    """Requests before the window that filled the caches of every replay."""
    load_factor: float = 1.0
    """Times the logged sessions: the peak factor that was stated; requests beyond those of the log
    are copies of sessions."""


class Finding(msgspec.Struct, kw_only=True):
    """One thing found, with evidence and what to do."""

    id: str
    """Fixed slug, such as `queueing_dominates`."""
    title: str
    severity: Severity
    confidence: Level
    message: str
    evidence: list[Quantity]
    table: str | None
    """Id of the table that shows it."""
    threshold: Quantity
    action: str
    action_kind: Literal["move_less", "faster", "nearer", "measure", "other"]
    production_check: str
    """How to check it in production: metric, PromQL or log field."""


class NextMeasurement(msgspec.Struct, kw_only=True):
    """The one measurement that is worth most when the data cannot tell."""

    question: str
    flag: str
    """What to switch on, pasteable."""
    hours: float
    settles: str


class Verdict(msgspec.Struct, kw_only=True):
    """Would the pool pay for itself?"""

    outcome: Outcome
    confidence: Level
    headline: str
    """One sentence."""
    reasons: list[str]
    conditions: list[str]
    """For pays_only_if: what must hold. For does_not_pay: what would change this."""
    carrying_numbers: list[Quantity]
    next_measurement: NextMeasurement | None
    confidence_reasons: list[str] = []
    """What set the confidence, the strongest first; at most two."""
    option: str | None = None
    """The pooled option that the verdict weighs (the best of them)."""
    rival: str | None = None
    """The best option without a pool, against which it is weighed."""


class Reproduce(msgspec.Struct, kw_only=True):
    """How to get the same bytes again."""

    command: str
    kvtrace_version: str
    settings: dict[str, Cell]
    seed: int
    inputs: dict[str, str]
    """Path to content digest."""
    dataset_digest: str


class AuditRecord(msgspec.Struct, kw_only=True):
    """The whole record."""

    schema_version: int
    generated_at: str | None
    """From SOURCE_DATE_EPOCH, ISO 8601 UTC; null when that is not set, so that reruns are equal."""
    data: Data
    reuse: Reuse
    kv: Kv
    options: list[Option]
    verdict: Verdict
    findings: list[Finding]
    assumptions: list[Quantity]
    tables: dict[str, Table]
    reproduce: Reproduce
    replay_window: ReplayWindow | None = None
    """Of all options; null where nothing was replayed."""
    absent_options: list[AbsentOption] = []
    """Options that cannot be replayed here, with the reason of each."""
    options_left_to_full: int = 0
    """Options that only `--depth full` replays."""
    frontier: Frontier | None = None
    """Null where nothing was replayed."""
    fleets: FleetSizes | None = None
    """The fleet that each option needs; null where no option without a pool carries the load."""
    economics: Economics | None = None
    """Money; null in records of older versions."""
    sharing: list[SharingScope] = []
    """By who may share a cache, the widest scope first; empty where no request has blocks."""
    sizing: Sizing | None = None
    """How large a pool should be, what it must carry, and where it breaks even; null in records of
    versions before it."""
    uncertainty: Uncertainty | None = None
    """Of the verdict's money; null where no pool is weighed, or no money a month is given."""
    what_if: WhatIf | None = None
    """What the page recomputes when a reader changes an input; null in records before it."""
    drilldown: Drilldown | None = None
    """Single requests; null where nothing was replayed."""
    fits: list[Fit] = []
    """Predicted against observed TTFT and prefill; empty: the running system was not replayed."""
