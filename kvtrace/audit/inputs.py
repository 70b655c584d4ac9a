"""What an audit is built from: everything that was read, asked and replayed, with its settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

import polars as pl

from kvtrace.audit.fleet.facts import FleetFacts
from kvtrace.audit.logged import LoggedRequests
from kvtrace.audit.options.mixes import MixFacts
from kvtrace.audit.record import Cell
from kvtrace.audit.sizing.worth import ReuseValue
from kvtrace.audit.slo.ends import EndFleet
from kvtrace.audit.uncertainty.design import ReplayedDesign
from kvtrace.cost.deployment import Deployment
from kvtrace.cost.fleet import Fleet
from kvtrace.replay.options.option import AbsentOption, ReplayOption
from kvtrace.replay.result import ReplayResult
from kvtrace.schema.arrays import IntArray, RequestTrace
from kvtrace.schema.manifest import Manifest


class ResultOfQuery(Protocol):
    """A query result as the catalogue returns it."""

    @property
    def columns(self) -> Sequence[str]:
        """Column names, in order."""
        ...

    @property
    def units(self) -> Sequence[str]:
        """Unit of each column."""
        ...

    @property
    def meanings(self) -> Sequence[str]:
        """Meaning of each column."""
        ...

    @property
    def frame(self) -> pl.DataFrame:
        """The rows, in the query's total order."""
        ...


class SettingValue(NamedTuple):
    """One setting that shaped the result."""

    name: str
    value: Cell
    origin: str
    """flag | environment | the file's path | logs | default."""
    is_confirmed: bool
    """False for a default that nobody stated."""


HARMLESS_SETTINGS: Final = frozenset(
    {
        "allow_inert_pickle",
        "block_size",
        "bytes_per_token",
        "cost_provider",
        "depth",
        "hash_prompts",
        "json",
        "lang",
        "mapping",
        "max_reject_rate",
        "output",
        "salt",
        "seed",
        "tokenizer",
        "tz",
        "year",
    }
)
"""Settings whose defaults decide nothing about the verdict; any other one does until confirmed."""


SERVING_SETTINGS: Final = frozenset({"llm", "hardware", "tp", "weight_dtype", "kv_dtype"})
"""Settings that set the time of a prefill."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditInput:
    """Everything that an audit is made of."""

    manifest: Manifest
    queries: Mapping[str, ResultOfQuery]
    """By name; a query that was not run is simply absent."""
    replays: tuple[ReplayResult, ...]
    """Empty where nothing could be replayed."""
    trace: RequestTrace | None
    """Exactly the requests that were replayed; null without replays."""
    deployment: Deployment
    fleet: Fleet
    settings: Sequence[SettingValue]
    seed: int
    command: str
    generated_at: str | None
    span_s: float | None = None
    """First to last arrival of the data; null takes it from the trace or the time slices."""
    whole_trace: RequestTrace | None = None
    """All requests that the replayed ones were taken from; null: not at hand. Bounds then hold for
    the replayed part only, and prove nothing where that is not the whole."""
    window_reusable_tokens: IntArray | None = None
    """(requests,) of `trace`: tokens that an unlimited cache with the whole history before each
    request would serve. Null: worked out from `whole_trace`, or from `trace` if it is the whole."""
    warmup_requests: int = 0
    """Requests before the replayed ones that warmed the caches of every replay."""
    refused_requests: int = 0
    """`ok` requests that no instance can hold: neither in `whole_trace` nor replayed."""
    fewer: tuple[ReplayResult, ...] = ()
    """The same requests on one instance less, as many options as were tried; load decisions may
    differ from those of `replays`."""
    fleet_facts: FleetFacts | None = None
    """The instances that each option needs; null: no option without a pool carries the load."""
    arbiter: tuple[ReplayResult, ...] = ()
    """Options of `replays` once more, loading only what is priced below recomputing it."""
    ends: tuple[EndFleet, ...] = ()
    """What the saved instances rest on at the ends of the constants; empty: nothing is saved, or
    it was not asked, and then the low of a saving is nothing."""
    conversation: IntArray | None = None
    """(requests,) of `trace`: the conversation of each, -1: of none; null: not known."""
    design: ReplayedDesign | None = None
    """The weighed pool and its rivals replayed at sampled inputs; null: they were not."""
    options: tuple[ReplayOption, ...] = ()
    """What was replayed in `replays`, with what each option needs; an option that is absent here is
    priced by its id."""
    absent_options: tuple[AbsentOption, ...] = ()
    """Options that cannot be replayed here, with the reason of each."""
    options_left_to_full: int = 0
    """Options that only `--depth full` replays."""
    mixes: MixFacts = field(default_factory=MixFacts)
    """What a search over mixes of options did."""
    reuse_value: ReuseValue | None = None
    """What one reused token is worth; null: no reuse, or no price of a prefill."""
    logged: LoggedRequests | None = None
    """What the log says of each request of `trace`; null: not at hand."""

    @property
    def unconfirmed(self) -> tuple[str, ...]:
        """Decisive settings that nobody confirmed, and estimates that the replays take as exact.

        Prices are estimates too, but their intervals are in the money that the verdict weighs.
        """
        names = [
            setting.name
            for setting in self.settings
            if not setting.is_confirmed and setting.name not in HARMLESS_SETTINGS
        ]
        fleet = self.fleet
        sizes = {
            "pool size": (fleet.pool_nodes, fleet.pool_dram_bytes, fleet.pool_nics_per_node),
            "idle DRAM": (fleet.dram_idle_bytes_per_instance,),
        }
        assumed = [
            name
            for name, constants in sizes.items()
            if any(constant.kind == "assumed" for constant in constants)
        ]
        if fleet.contract.kind.kind == "assumed":
            assumed.append("GPU contract")
        return (*names, *assumed)

    @property
    def is_serving_confirmed(self) -> bool:
        """Somebody or a log stated what serves: model times are then those of this service."""
        return not SERVING_SETTINGS & set(self.unconfirmed)

    @property
    def has_fleet_file(self) -> bool:
        """The deployed pool is known: its size is no estimate."""
        return self.fleet.pool_nodes.kind != "assumed"
