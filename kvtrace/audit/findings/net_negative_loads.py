"""The finding of a replayed scenario whose tiers raise reuse and ruin latency, from a few replays.

It needs no audit: the rows of `replay/summary` of the scenario, of the same without its tiers, and
of the same with an arbiter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kvtrace.audit.findings.check import modelled
from kvtrace.audit.findings.limits import TIERS_MAY_COST, TTFT_COLLAPSE
from kvtrace.audit.record import Finding, Level, Quantity
from kvtrace.audit.thresholds import NET_NEGATIVE_DOMINATES, NET_NEGATIVE_SHARE
from kvtrace.audit.uncertainty.ranges import ratio
from kvtrace.units import format_seconds, format_traffic

_SOURCE = "replay/summary"
THRESHOLDS: Final = (TIERS_MAY_COST, TTFT_COLLAPSE, NET_NEGATIVE_SHARE, NET_NEGATIVE_DOMINATES)
"""Those that `judge` asks."""


@dataclass(frozen=True, slots=True)
class Run:
    """What `replay/summary` says of one replay, as far as the finding asks."""

    requests: int
    prompt_tokens: int
    hit_tokens: int
    loaded_requests: int
    net_negative_requests: int
    net_negative_bytes: float
    net_negative_lost_s: float
    ttft_mean_s: float | None

    @classmethod
    def of(cls, row: Mapping[str, object]) -> Run:
        """The row of a run."""
        return cls(**{name: row[name] for name in cls.__slots__})  # type: ignore[arg-type]

    @property
    def net_negative_share(self) -> float:
        """Of the loaded hits; 0 without any."""
        return ratio(self.net_negative_requests, self.loaded_requests) or 0.0

    @property
    def is_suspect(self) -> bool:
        """Whether so many loads lose time that the run without its tiers is worth a replay."""
        return self.net_negative_share >= NET_NEGATIVE_SHARE.value

    def reuse(self) -> str:
        """`17.6 % (3,400 of 19,300)`."""
        share = ratio(self.hit_tokens, self.prompt_tokens) or 0.0
        return f"{100 * share:.1f} % ({self.hit_tokens:,} of {self.prompt_tokens:,})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One scenario, and what it is judged by."""

    scenario: str
    tiers: tuple[str, ...]
    """Those that the run `without` lacks."""
    told: Run
    without: Run
    arbiter: Run | None
    """None: it decides by an arbiter, or loads nothing, as it is."""
    thresholds: Mapping[str, int | None]
    """By tier that was left out: tokens from which on loads pay; None: none does."""
    is_confirmed: bool
    """Whether the settings that serve were stated or logged, not assumed."""


def judge(trial: Trial) -> Finding | None:
    """The finding, where reuse rises, mean TTFT too, and loads are net-negative; else None.

    Formula: mean TTFT / mean TTFT without the tiers: above `TIERS_MAY_COST` a warning, from
    `TTFT_COLLAPSE` on critical if most loads lose time.
    """
    told, without = trial.told, trial.without
    times = _times(told, without)
    rises = told.hit_tokens > without.hit_tokens
    if times is None or times <= TIERS_MAY_COST.value or not (rises and told.is_suspect):
        return None
    most = told.net_negative_share >= NET_NEGATIVE_DOMINATES.value
    collapses = most and times >= TTFT_COLLAPSE.value
    confidence: Level = "medium" if trial.is_confirmed else "low"
    return Finding(
        id="reuse_up_ttft_collapse",
        title=f"Reuse rises and TTFT {'collapses' if collapses else 'rises'}: "
        f"{'loads' if most else 'some loads'} are net-negative",
        severity="critical" if collapses else "warning",
        confidence=confidence,
        message=_message(trial, times),
        evidence=_evidence(trial, times),
        table=None,
        threshold=(TTFT_COLLAPSE if collapses else TIERS_MAY_COST).quantity(),
        action=_action(trial),
        action_kind="move_less",
        production_check="Compare TTFT of requests with external hits against requests without, by "
        "prompt length, and switch the tier off on one instance for an hour; PromQL "
        "rate(vllm:external_prefix_cache_hits_total[5m]) beside "
        "vllm:time_to_first_token_seconds",
    )


def _times(run: Run, without: Run) -> float | None:
    return ratio(run.ttft_mean_s, without.ttft_mean_s)


def _message(trial: Trial, times: float) -> str:
    told, without = trial.told, trial.without
    return (
        f"{trial.scenario}: with {', '.join(trial.tiers)} hit tokens go from {without.reuse()} to "
        f"{told.reuse()} of the prompt tokens, and mean TTFT from "
        f"{format_seconds(without.ttft_mean_s or 0.0)} to {format_seconds(told.ttft_mean_s or 0.0)}"
        f", {times:,.3g} times as long, over {told.requests:,} requests; "
        f"{told.net_negative_requests:,} of {told.loaded_requests:,} loaded hits take longer than "
        f"recomputing what they bring: {format_traffic(told.net_negative_bytes)} moved for them, "
        f"{format_seconds(told.net_negative_lost_s)} lost (modelled)"
    )


def _action(trial: Trial) -> str:
    """The arbiter with what it was replayed to do, else a threshold or none of the tiers."""
    by_tier = "; ".join(
        f"{tier}: {'no threshold pays' if tokens is None else f'from {tokens:,} tokens on'}"
        for tier, tokens in trial.thresholds.items()
    )
    arbiter = trial.arbiter
    times = None if arbiter is None else _times(arbiter, trial.without)
    if arbiter is None or times is None:
        return f"Leave the tier out; a static threshold ({by_tier}) leaves its writes as they are"
    result = (
        f"mean TTFT {format_seconds(arbiter.ttft_mean_s or 0.0)}, {times:,.3g} times that without "
        f"the tiers, hit tokens {arbiter.reuse()} (modelled)"
    )
    if times > TIERS_MAY_COST.value:
        return f"Leave the tier out: an arbiter is not enough ({result}). Thresholds: {by_tier}"
    return (
        f'Load only what is priced below recomputing: `load_decision = "arbiter"` gives {result}. '
        f"A static threshold on loads ({by_tier}) leaves the writes as they are"
    )


def _evidence(trial: Trial, times: float) -> list[Quantity]:
    told, without, arbiter = trial.told, trial.without, trial.arbiter
    rows: list[tuple[str, float | int | None, str]] = [
        ("hit_tokens", told.hit_tokens, "tokens"),
        ("hit_tokens_without", without.hit_tokens, "tokens"),
        ("prompt_tokens", told.prompt_tokens, "tokens"),
        ("ttft_mean_s", told.ttft_mean_s, "s"),
        ("ttft_mean_s_without", without.ttft_mean_s, "s"),
        ("ttft_mean_ratio", times, "times"),
        ("loaded_requests", told.loaded_requests, "requests"),
        ("net_negative_requests", told.net_negative_requests, "requests"),
        ("net_negative_bytes", told.net_negative_bytes, "bytes"),
        ("net_negative_lost_s", told.net_negative_lost_s, "s"),
    ]
    if arbiter is not None:
        rows.append(("ttft_mean_s_with_arbiter", arbiter.ttft_mean_s, "s"))
        rows.append(("hit_tokens_with_arbiter", arbiter.hit_tokens, "tokens"))
    return [
        modelled(f"{name}:{trial.scenario}", value, unit, _SOURCE) for name, value, unit in rows
    ]
