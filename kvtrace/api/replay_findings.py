"""What is wrong with a replayed scenario: further replays of it, and the finding they carry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace

import polars as pl

from kvtrace.api.loads import Loaded
from kvtrace.api.opened import SERVING_SETTINGS
from kvtrace.api.replay_runs import Ready, replay_all
from kvtrace.api.replay_tables import SUMMARY, Replayed, ask, frames_of
from kvtrace.api.replay_thresholds import threshold_documents
from kvtrace.audit.findings.net_negative_loads import Run, Trial, judge
from kvtrace.audit.record import Finding
from kvtrace.exec.progress import Progress
from kvtrace.replay.options.presets import with_arbiter
from kvtrace.replay.scenario import Scenario
from kvtrace.scenarios.load import Load


def find_losses(
    ready: Sequence[Ready],
    runs: Sequence[Replayed],
    frames: Mapping[str, pl.DataFrame],
    loads: Mapping[Load, Loaded],
    watch: Progress,
    *,
    workers: int | None,
) -> dict[int, Finding]:
    """By run: reuse that costs more time than it saves.

    A scenario of which many loads lose time is replayed twice more, without its shared tiers (all
    below HBM where none is shared) and with an arbiter.
    """
    told = [Run.of(row) for row in ask(frames, [SUMMARY])[SUMMARY]]
    suspects = [place for place, run in enumerate(told) if run.is_suspect]
    trials = [
        replace(ready[place], scenario=scenario)
        for place in suspects
        for scenario in trials_of(ready[place].scenario)
    ]
    if not trials:
        return {}
    watch.start("what the loads cost")
    with closing(replay_all(trials, loads, watch, workers=workers)) as outcomes:
        ended = dict(outcomes)
    watch.finish(f"{len(trials)} replays")
    tried = ask(frames_of([ended[place] for place in range(len(trials))]), [SUMMARY])[SUMMARY]
    rows = iter(Run.of(row) for row in tried)
    found: dict[int, Finding] = {}
    for place in suspects:
        tried_here = [next(rows) for _ in trials_of(ready[place].scenario)]
        finding = judge(_trial(runs[place], told[place], tried_here))
        if finding is not None:
            found[place] = finding
    return found


def trials_of(scenario: Scenario) -> list[Scenario]:
    """Without the tiers that are in question; with an arbiter, where that changes anything."""
    kept = tuple(tier for tier in scenario.tiers if tier.tier_id not in in_question(scenario))
    bare = replace(scenario, tiers=kept)
    return [bare, with_arbiter(scenario)] if scenario.load_decision != "arbiter" else [bare]


def in_question(scenario: Scenario) -> tuple[str, ...]:
    """The tiers that a trial leaves out: the shared ones, else all below HBM."""
    shared = tuple(tier.tier_id for tier in scenario.tiers if tier.scope == "shared")
    return shared or tuple(tier.tier_id for tier in scenario.tiers)


def _trial(run: Replayed, told: Run, tried: Sequence[Run]) -> Trial:
    tiers = in_question(run.result.scenario)
    advised = {
        str(one["tier"]): one["recommended_tokens"] for one in threshold_documents(run.result)
    }
    return Trial(
        scenario=run.scenario,
        tiers=tiers,
        told=told,
        without=tried[0],
        arbiter=tried[1] if len(tried) > 1 else None,
        thresholds={
            tier: tokens if isinstance(tokens := advised[tier], int) else None for tier in tiers
        },
        is_confirmed=all(
            one.is_confirmed for one in run.setup.settings if one.name in SERVING_SETTINGS
        ),
    )
