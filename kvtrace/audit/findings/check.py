"""What a check is: a question with a threshold, and what it says when the data crosses it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from kvtrace.audit.inputs import ResultOfQuery
from kvtrace.audit.options.kinds import is_local, is_pool
from kvtrace.audit.record import (
    Cell,
    Data,
    Kv,
    Level,
    Option,
    Quantity,
    ReplayWindow,
    Reuse,
    Severity,
)
from kvtrace.audit.sharing.record import SharingScope
from kvtrace.audit.thresholds import Threshold
from kvtrace.audit.uncertainty.ranges import ratio
from kvtrace.cost.deployment import Deployment
from kvtrace.cost.fleet import Fleet
from kvtrace.cost.tco.need import Need
from kvtrace.replay.result import ReplayResult
from kvtrace.replay.scenario import PrefillTime, Scenario
from kvtrace.schema.arrays import RequestTrace
from kvtrace.units import NS_PER_MS, NS_PER_S, format_seconds

MS_PER_S: Final = NS_PER_S // NS_PER_MS
ActionKind = Literal["move_less", "faster", "nearer", "measure", "other"]
Kind = Literal["measured", "modelled", "spec", "fitted", "assumed", "given"]


@dataclass(frozen=True, slots=True)
class MoveRow:
    """The moves of one path: as observed, and what the model has for them."""

    direction: str
    path: str | None
    transfers: int
    timed_transfers: int
    moved_bytes: int | None
    bytes_per_s: float | None
    slow_bytes_per_s: float | None
    median_bytes: float | None
    modelled_bytes_per_s: float | None
    tokens_per_s: float | None
    recompute_tokens_per_s: float | None

    @property
    def over_model(self) -> float | None:
        """Measured rate over the modelled one."""
        return ratio(self.bytes_per_s, self.modelled_bytes_per_s)


@dataclass(frozen=True, slots=True)
class LinkRow:
    """One kind of link in one option: what the replay sends over it, and what it carries today.

    Rates are of one modelled link: that of an instance, or of the ports that it shares.
    """

    option_id: str
    title: str
    """Of the option."""
    link_id: str | None
    """Of the model; null: the option has no such link."""
    read_bytes: float
    """Modelled, towards HBM, all links."""
    written_bytes: float
    read_bytes_per_s: float | None
    """Modelled, mean over the replay; null where it has no time."""
    written_bytes_per_s: float | None
    usable_bytes_per_s: float | None
    measured_link: str | None = None
    """pcie | nvlink | nic | rdma; null: nothing measured stands for this link."""
    measured_links: int | None = None
    rx_bytes: float | None = None
    """Measured, towards HBM, all measured links, in the replayed window where `is_same_window`."""
    tx_bytes: float | None = None
    rx_bytes_per_s: float | None = None
    tx_bytes_per_s: float | None = None
    is_same_window: bool | None = None
    """Null: nothing measured, or one of the clocks is no wall clock."""

    @property
    def left_read_bytes_per_s(self) -> float | None:
        """What the measured load leaves of the link towards HBM."""
        return _left(self.usable_bytes_per_s, self.rx_bytes_per_s)

    @property
    def left_written_bytes_per_s(self) -> float | None:
        """The same, away from HBM."""
        return _left(self.usable_bytes_per_s, self.tx_bytes_per_s)


def _left(usable: float | None, used: float | None) -> float | None:
    return None if usable is None or used is None else max(0.0, usable - used)


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the checks look at."""

    queries: Mapping[str, ResultOfQuery]
    data: Data
    reuse: Reuse
    kv: Kv
    options: Sequence[Option]
    scenarios: Mapping[str, Scenario]
    """By option id."""
    is_confirmed: bool
    """False where a decisive default was not confirmed; modelled findings are then uncertain."""
    window: ReplayWindow | None = None
    """Of the replayed requests."""
    prefill: PrefillTime | None = None
    """Of one instance of the service; null where nobody stated what serves, or no FLOPs are known.
    """
    moves: Sequence[MoveRow] = ()
    """Observed moves of KV beside the cost model."""
    links: Sequence[LinkRow] = ()
    """Modelled bytes of every link beside measured ones."""
    sharing: Sequence[SharingScope] = ()
    """Reuse and money by who may share a cache."""
    results: Mapping[str, ReplayResult] = field(default_factory=dict)
    """The replays behind the options, by option id."""
    trace: RequestTrace | None = None
    """The replayed requests."""
    deployment: Deployment | None = None
    """What serves, as stated, logged or assumed."""
    fleet: Fleet | None = None
    needs: Mapping[str, Need] = field(default_factory=dict)
    """What an option takes, by option id, where the catalogue of options says it."""

    @property
    def replayed_reusable_tokens(self) -> int | None:
        """Of the replayed requests, in an unlimited cache; the last prompt token is computed."""
        return None if self.window is None else self.window.reusable_tokens

    @property
    def replayed_prompt_tokens(self) -> int | None:
        """Of the replayed requests."""
        return None if self.window is None else self.window.prompt_tokens

    def option(self, option_id: str) -> Option | None:
        """The option of that id, if it was replayed."""
        return next((option for option in self.options if option.id == option_id), None)

    @property
    def locals(self) -> list[Option]:
        """The options that reuse KV without a pool."""
        return [option for option in self.options if is_local(option.id)]

    @property
    def pools(self) -> list[Option]:
        """The pooled options."""
        return [option for option in self.options if is_pool(option.id)]

    @property
    def modelled_confidence(self) -> Level:
        """How far a modelled finding can be trusted at best."""
        return "medium" if self.is_confirmed else "low"


@dataclass(frozen=True, slots=True)
class Hit:
    """A check that found something."""

    severity: Severity
    confidence: Level
    message: str
    evidence: tuple[Quantity, ...]
    table: str | None = None
    """Overrides the table of the check."""
    title: str | None = None
    """Overrides the title of the check."""


@dataclass(frozen=True, slots=True)
class Check:
    """One row of the registry."""

    id: str
    title: str
    question: str
    threshold: Threshold
    look: Callable[[Evidence], Hit | None]
    action: str
    action_kind: ActionKind
    production_check: str
    table: str | None = field(default=None)
    is_replayed: bool = False
    """Rests on the replays: the message then says on which window."""


def measured(ident: str, value: float | int | str | None, unit: str, source: str) -> Quantity:
    """A measured piece of evidence; exact over the rows that know it."""
    return _evidence(ident, value, unit, source, "measured", "exact over the rows that know it")


def modelled(ident: str, value: float | int | str | None, unit: str, source: str) -> Quantity:
    """A modelled piece of evidence."""
    return _evidence(ident, value, unit, source, "modelled", "one replay; no interval")


def _evidence(
    ident: str, value: Cell, unit: str, source: str, kind: Kind, interval_reason: str
) -> Quantity:
    return Quantity(
        id=ident,
        value=value,
        unit=unit,
        source=source,
        kind=kind,
        interval_reason=interval_reason,
    )


def known_only(*quantities: Quantity) -> tuple[Quantity, ...]:
    """Without those whose value is unknown."""
    return tuple(quantity for quantity in quantities if quantity.value is not None)


def in_ms(milliseconds: float | None) -> str:
    """A duration in ms for people."""
    return "unknown" if milliseconds is None else format_seconds(milliseconds / MS_PER_S)
