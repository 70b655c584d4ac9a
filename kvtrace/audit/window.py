"""The window that the options were replayed on, and what replays and models can carry."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kvtrace.audit.record import Data, ReplayWindow, Reuse, Validity
from kvtrace.audit.uncertainty.ranges import ratio
from kvtrace.audit.words import counted, percent
from kvtrace.cost.deployment import Deployment
from kvtrace.replay.result import ReplayResult
from kvtrace.replay.reusable import reusable_tokens
from kvtrace.schema.arrays import IntArray, RequestTrace
from kvtrace.units import NS_PER_S

FULL_DEPTH = "`--depth full` replays the whole trace"


def build_replay_window(
    trace: RequestTrace | None,
    results: Sequence[ReplayResult],
    data: Data,
    reuse: Reuse,
    *,
    reusable: IntArray | None = None,
    warmup_requests: int = 0,
    load_factor: float = 1.0,
) -> ReplayWindow | None:
    """What was replayed; null without replays. `reusable`: per request, with the history."""
    if trace is None or not results:
        return None
    served = data.requests_by_status.get("ok", data.requests)
    span_s = arrival_span_s(trace)
    prompt = int(trace.prompt_tokens.sum())
    tokens = None
    if reuse.reusable_tokens is not None:
        own = reusable_tokens(trace) if reusable is None else reusable
        tokens = int(own.sum())
    is_part = trace.requests < served or load_factor != 1
    return ReplayWindow(
        requests=trace.requests,
        of_requests=served,
        span_s=span_s,
        is_whole_trace=not is_part,
        is_peak_hour=is_part and (span_s or 0.0) < (data.span_s or 0.0),
        prompt_tokens=prompt,
        reusable_tokens=tokens,
        reusable_ratio_tokens=ratio(tokens, prompt),
        counts_history=reusable is not None and tokens is not None,
        warmup_requests=warmup_requests,
        load_factor=load_factor,
    )


def arrival_span_s(trace: RequestTrace) -> float | None:
    """First to last arrival; null without a clock or with one request."""
    if not trace.has_clock or trace.requests < 2:
        return None
    return float(trace.arrived_at_ns[-1] - trace.arrived_at_ns[0]) / NS_PER_S


def replayed_on(window: ReplayWindow | None) -> str:
    """`Replayed on the peak hour: 900 of 1,000 requests`; empty for the whole trace."""
    if window is None or window.is_whole_trace:
        return ""
    if window.load_factor != 1:
        return (
            f"Replayed on {counted(window.requests, 'request')}: the busiest hour with its load "
            f"raised to {window.load_factor:g} times its sessions, the stated peak factor"
        )
    requests = f"{window.requests:,} of {counted(window.of_requests, 'request')}"
    if window.is_peak_hour:
        return f"Replayed on the peak hour: {requests}; {FULL_DEPTH}"
    return f"Replayed on {requests}: those of the largest cache domain with known lengths"


def replay_validity(
    window: ReplayWindow | None, results: Sequence[ReplayResult], reuse: Reuse
) -> Iterator[Validity]:
    """What the replays leave out."""
    if window is None:
        yield Validity(
            code="not_replayed",
            severity="warning",
            message="No option was replayed: arrival times, lengths or blocks are missing",
        )
        return
    if not window.is_whole_trace:
        yield Validity(
            code="replayed_part",
            severity="info",
            message=f"{replayed_on(window)}. {_caches(window)}{_ceilings(window, reuse)}",
        )
    unable = [r for r in results if r.is_overloaded]
    if unable:
        titles = ", ".join(result.scenario.title for result in unable)
        yield Validity(
            code="overloaded_options",
            severity="warning",
            message=f"Overloaded on the stated fleet (modelled): {titles}. Queues there grow as "
            "long as requests arrive, so times say how long the window was, not how fast the "
            "option is",
        )
    oversized = max(result.oversized_requests for result in results)
    if oversized:
        verb = "needs" if oversized == 1 else "need"
        yield Validity(
            code="oversized_requests",
            severity="warning",
            message=f"{counted(oversized, 'request')} {verb} more KV than one instance has HBM; "
            "the replay serves such a request alone",
        )


def _caches(window: ReplayWindow) -> str:
    """What the caches hold when the window starts."""
    if window.warmup_requests:
        before = counted(window.warmup_requests, "request")
        return f"Caches are warm there: the {before} before it filled them"
    return "Caches start empty there, so early hits are a lower bound"


def _ceilings(window: ReplayWindow, reuse: Reuse) -> str:
    """Both ceilings, so that nobody compares an option with the wrong one."""
    if window.reusable_ratio_tokens is None or reuse.reusable_ratio_tokens is None:
        return ""
    history = "with what came before" if window.counts_history else "without what came before"
    return (
        f". An unlimited cache ({history}) would hit {percent(window.reusable_ratio_tokens)} of "
        f"this window's prompt tokens, {percent(reuse.reusable_ratio_tokens)} of the whole "
        "trace's: compare an option with the ceiling of its window"
    )


def deployment_validity(deployment: Deployment) -> Iterator[Validity]:
    """Tensor parallelism that engines refuse, or that nobody runs."""
    tp = deployment.tp
    windows = [group for group in deployment.llm.groups if group.window_tokens is not None]
    if windows:
        layers = sum(group.layers for group in windows)
        yield Validity(
            code="kv_windows_left_out",
            severity="warning",
            message=f"KV bytes of the trace leave out the {layers} layers of {deployment.llm.name} "
            "that keep only a window of tokens: short prompts need more than is shown",
        )
    if tp & (tp - 1):
        yield Validity(
            code="tp_unusual",
            severity="warning",
            message=f"TP {tp} is not a power of two: most engines and nodes are not run so; check "
            "that it is what is deployed",
        )
