"""The tables of a profile file: their keys, and the values that each may have."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

Count = Annotated[int, msgspec.Meta(ge=1, le=10**9)]
Whole = Annotated[int, msgspec.Meta(ge=0, le=10**9)]
Positive = Annotated[float, msgspec.Meta(gt=0, le=1e12)]
NotNegative = Annotated[float, msgspec.Meta(ge=0, le=1e12)]
LARGE: Final = 1e9


class _Checked(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A table of the file: other keys are errors."""


class SpreadTable(_Checked, kw_only=True):
    """A distribution: log-normal by `median` and `sigma`, or empirical by `quantiles`."""

    median: NotNegative | None = None
    sigma: NotNegative = 0.0
    low: NotNegative = 0.0
    high: NotNegative = LARGE
    quantiles: list[NotNegative] | None = None
    """Values at evenly spaced shares from 0 to 1, or at `shares`."""
    shares: list[Annotated[float, msgspec.Meta(ge=0, le=1)]] | None = None


class ArrivalsTable(_Checked, kw_only=True):
    """How sessions arrive."""

    process: Literal["poisson", "even", "gamma"] = "poisson"
    cv: Positive = 1.0
    """Coefficient of variation of the gaps, for `gamma`."""


class RhythmTable(_Checked, kw_only=True):
    """How the rate goes up and down: by `weights`, or as a wave with `peak_to_trough`."""

    period_s: Positive
    weights: list[NotNegative] | None = None
    peak_to_trough: Annotated[float, msgspec.Meta(ge=1, le=1e6)] | None = None
    peak_s: NotNegative = 0.0
    """Time of the peak in the period."""


class TurnsTable(_Checked, kw_only=True):
    """Turns of a session: geometric with this mean, or by `quantiles`; cut."""

    mean: Annotated[float, msgspec.Meta(ge=1, le=1e6)] = 1.0
    quantiles: list[NotNegative] | None = None
    shares: list[Annotated[float, msgspec.Meta(ge=0, le=1)]] | None = None
    min: Count = 1
    max: Count = 1000


class PrefixesTable(_Checked, kw_only=True):
    """Shared texts of one level: how many, how long, how popular."""

    count: Count
    tokens: float | SpreadTable
    zipf: NotNegative = 0.0


class PrefixTable(_Checked, kw_only=True):
    """One shared prefix."""

    tokens: Count
    weight: Positive = 1.0
    within: Whole | None = None
    """Index of an earlier prefix of the workload that it begins with."""
    text: str | None = None
    """Prefixes of equal text are one in all workloads."""


class WorkloadTable(_Checked, kw_only=True):
    """One workload."""

    name: str
    sessions: Count
    duration_s: Positive
    start_s: NotNegative = 0.0
    arrivals: ArrivalsTable = msgspec.field(default_factory=ArrivalsTable)
    rhythm: RhythmTable | None = None
    turns: TurnsTable = msgspec.field(default_factory=TurnsTable)
    prefixes: PrefixesTable | None = None
    documents: PrefixesTable | None = None
    """Shared texts behind each of `prefixes`."""
    prefix: list[PrefixTable] = []
    unshared_weight: NotNegative = 0.0
    first_tokens: float | SpreadTable
    first_holds_prefix: bool = False
    """`first_tokens` is the whole first prompt, prefix included."""
    stratified: bool = False
    """Lengths and turns fill their distributions evenly."""
    cuts_at_end: bool = True
    """No turn arrives after the end of the workload."""
    turn_tokens: float | SpreadTable = 1.0
    output_tokens: float | SpreadTable
    think_s: float | SpreadTable | None = None
    """Pause from the last token of a reply to the next turn."""
    gap_s: float | SpreadTable | None = None
    """Pause from the arrival of a turn to the next one."""
    keeps_replies: bool = True
    context_max_tokens: Count = 10**9


class EngineTable(_Checked, kw_only=True):
    """Numbers of the engine of the story; what is absent is the story's own."""

    model: str | None = None
    speed: Positive = 1.0
    """Times as fast as stated: FLOP/s, links and decoding."""
    kv_bytes_per_token: Count | None = None
    kv_capacity_tokens: Count | None = None
    weight_flops_per_token: Positive | None = None
    attention_flops_per_token_pair: NotNegative | None = None
    effective_flops_per_s: Positive | None = None
    prefill_overhead_s: NotNegative | None = None
    lookup_s: NotNegative | None = None
    pool_bytes_per_s: Positive | None = None
    pcie_bytes_per_s: Positive | None = None
    pool_chunk_tokens: Count | None = None
    decode_s_per_token: NotNegative | None = None
    frontend_s: NotNegative | None = None


class ProfileTable(_Checked, kw_only=True):
    """A whole profile file."""

    seed: Whole = 7
    block_size_tokens: Annotated[int, msgspec.Meta(ge=1, le=1 << 20)] = 64
    reuse: Annotated[float, msgspec.Meta(ge=0, lt=1)] | None = None
    """Share of the prompt tokens that an unlimited cache is to catch."""
    engine: EngineTable = msgspec.field(default_factory=EngineTable)
    workload: Annotated[list[WorkloadTable], msgspec.Meta(min_length=1)]
