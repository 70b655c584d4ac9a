"""The verb `replay`: scenarios and sweeps of them on a dataset's requests, as functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Final

import msgspec
import polars as pl

from kvtrace.api.opened import (
    SERVING_SETTINGS,
    open_or_read,
    read_earlier,
    whole_trace,
    with_earlier,
)
from kvtrace.api.replay_findings import find_losses
from kvtrace.api.replay_outcomes import ReplayOutcome, SweepOutcome
from kvtrace.api.replay_runs import Bench, load_all, make_ready, replay_all
from kvtrace.api.replay_sweeps import SweepRuns
from kvtrace.api.replay_tables import SUMMARY, Replayed, ask, frames_of, write_runs, write_sweep
from kvtrace.api.replay_thresholds import threshold_documents
from kvtrace.api.replay_windows import windows_of
from kvtrace.api.replays import is_routed_alone
from kvtrace.api.setup import check_names
from kvtrace.api.traceout import TraceWindow, write_trace
from kvtrace.audit.options.table import build_options
from kvtrace.audit.record import Finding, Option
from kvtrace.config import Settings, resolve_settings
from kvtrace.errors import Location, UsageError
from kvtrace.exec.progress import Progress, SilentProgress
from kvtrace.query.catalog import load_catalog
from kvtrace.scenarios.document import OPTIONS, Document, load_scenario
from kvtrace.scenarios.load import Load
from kvtrace.scenarios.sweeps import Case, expand, parse_axis

DETAILS: Final = (SUMMARY, "replay/stages", "replay/tiers", "replay/links")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayAsk:
    """What is to be replayed."""

    options: Sequence[str] = ()
    """Option ids."""
    scenarios: Sequence[str] = ()
    """Shipped names, option ids, or files. Neither options nor scenarios: all options."""
    load: Load = field(default_factory=Load)
    """Stated for all scenarios, over what each states itself."""
    trace_out: Path | None = None
    """Where the timelines of `window` are written for a trace viewer."""
    window: TraceWindow = field(default_factory=TraceWindow)

    def documents(self) -> list[Document]:
        """The scenarios that are asked for, each once.

        Raises:
            UsageError: no such option or scenario, or two scenarios of one name.
        """
        for option in self.options:
            if option not in OPTIONS:
                close = get_close_matches(option, OPTIONS, n=3, cutoff=0.5)
                meant = " or ".join(f"`--option {one}`" for one in close)
                listed = f"one of {', '.join(f'`{one}`' for one in OPTIONS)}"
                raise UsageError(
                    "KVT-U021",
                    f"there is no option `{option}`",
                    hint=f"did you mean {meant}? {listed}" if close else listed,
                )
        names = [*self.options, *self.scenarios] or [*OPTIONS]
        documents = [load_scenario(name) for name in dict.fromkeys(names)]
        ids = [document.name for document in documents]
        twice = next((one for one in ids if ids.count(one) > 1), None)
        if twice is not None:
            raise UsageError(
                "KVT-U025", f"two scenarios are named `{twice}`", hint="rename one of the files"
            )
        return documents

    @property
    def is_of_all(self) -> bool:
        """Whether nothing was named: all options that differ are replayed."""
        return not self.options and not self.scenarios

    @property
    def is_of_options(self) -> bool:
        """Whether only options are replayed, as an audit does."""
        return not self.scenarios


def replay(
    dataset: Path | str,
    *,
    options: Sequence[str] | None = None,
    asked: ReplayAsk | None = None,
    output: Path | str | None = None,
    workers: int | None = None,
    settings: Settings | None = None,
    progress: Progress | None = None,
) -> ReplayOutcome:
    """What each option or scenario would have done with a dataset's requests.

    `dataset` may be logs: they are read into `output` first [reports/<input name>].

    `options` are ids, None all; `asked` says more. The timelines stay in the dataset as tables.
    `workers` processes replay; None: as many as are worth their start. Results are equal.

    Raises:
        UsageError: no such option or scenario, or the dataset has no requests with known lengths.
        OutputError: the dataset cannot be read or written.
    """
    asked = ReplayAsk(options=tuple(options or ())) if asked is None else asked
    watch = progress or SilentProgress()
    bench = _bench(dataset, output, settings, watch)
    cases = [Case(document) for document in _possible(bench, asked)]
    ready = make_ready(bench, cases, asked.load)
    if asked.is_of_all:
        ready = [one for one in ready if not is_routed_alone(one.scenario)]
    loads = load_all(bench, ready)
    watch.start("replay")
    with closing(replay_all(ready, loads, watch, workers=workers)) as outcomes:
        ended = dict(outcomes)
    runs = [ended[place] for place in range(len(ready))]
    replayed = sum(len(one.result.timeline.ttft_s) for one in runs)
    watch.finish(f"{len(runs)} scenarios, {replayed:,} requests")
    frames = frames_of(runs)
    found = find_losses(ready, runs, frames, loads, watch, workers=workers)
    write_runs(bench.dataset, frames)
    if asked.trace_out is not None:
        write_trace(asked.trace_out, frames, asked.window)
    outcome = _outcome(runs, frames, found, is_of_options=asked.is_of_options)
    return replace(outcome, windows=windows_of(loads))


def sweep(
    dataset: Path | str,
    axes: Sequence[str],
    *,
    asked: ReplayAsk | None = None,
    one_at_a_time: bool = False,
    output: Path | str | None = None,
    workers: int | None = None,
    settings: Settings | None = None,
    progress: Progress | None = None,
) -> SweepOutcome:
    """Scenarios with keys set to other values, such as `pool.capacity=1TB,2TB`.

    The grid of all axes; or the start and then each value alone. What was replayed before with the
    same content is not replayed again. The figures stay in the dataset as `replay_sweep`. Logs are
    read first, as by `replay`.

    Raises:
        UsageError: a key or value that cannot be used, or no requests with known lengths.
        OutputError: the dataset cannot be read or written.
    """
    asked = ReplayAsk() if asked is None else asked
    watch = progress or SilentProgress()
    bench = _bench(dataset, output, settings, watch)
    parsed = [parse_axis(text) for text in axes]
    cases = expand(_possible(bench, asked), parsed, one_at_a_time=one_at_a_time)
    ready = make_ready(bench, cases, asked.load)
    loads = load_all(bench, ready)
    runs = SweepRuns(bench, ready, loads, watch, workers=workers)
    watch.start("sweep")
    rows, wall_s = runs.rows()
    watch.finish(f"{len(rows)} replays, {len(rows) - len(wall_s)} of them known before")
    found = runs.findings(rows)
    written = write_sweep(bench.dataset, rows)
    with written.session() as session:
        result = load_catalog().run(session, "replay/sweep")
    return SweepOutcome(result, wall_s, windows_of(loads), found)


def _bench(
    dataset: Path | str, output: Path | str | None, settings: Settings | None, watch: Progress
) -> Bench:
    stated = settings or resolve_settings()
    opened = open_or_read(dataset, output, stated, watch)
    chosen = with_earlier(stated, read_earlier(opened))
    check_names(chosen)
    whole = whole_trace(opened)
    if whole is None or not whole.has_clock:
        raise UsageError(
            "KVT-U020",
            "nothing can be replayed: no request has a known length and arrival",
            where=Location(str(opened.directory)),
            hint="`kvtrace formats` says which logs carry lengths",
        )
    return Bench(opened, chosen, whole)


def _possible(bench: Bench, asked: ReplayAsk) -> list[Document]:
    """The scenarios; of requests without blocks only recomputing can be told."""
    documents = asked.documents()
    if bench.whole.distinct_blocks or not asked.is_of_options:
        return documents
    return [load_scenario("recompute")]


def _outcome(
    runs: Sequence[Replayed],
    frames: Mapping[str, pl.DataFrame],
    found: Mapping[int, Finding],
    *,
    is_of_options: bool,
) -> ReplayOutcome:
    wall_s = {one.scenario: one.wall_s for one in runs}
    built: list[Option] = []
    if is_of_options:
        built = build_options([one.result for one in runs], runs[0].setup.fleet)
    documents = [
        {**msgspec.to_builtins(option), "engine_wall_s": wall_s[option.id]} for option in built
    ]
    answers = ask(frames, DETAILS)
    return ReplayOutcome(
        options=built,
        wall_s=wall_s,
        requests=len(runs[0].result.timeline.ttft_s) if runs else 0,
        served_by=_served_by(runs[0]) if runs else {},
        documents=documents,
        scenarios=[
            {**_scenario(number, one, answers), "engine_wall_s": one.wall_s}
            for number, one in enumerate(runs)
        ],
        findings={runs[number].scenario: finding for number, finding in found.items()},
    )


def _served_by(run: Replayed) -> dict[str, str]:
    return {
        one.name: f"{one.value} ({one.origin})"
        for one in run.setup.settings
        if one.name in SERVING_SETTINGS
    }


def _scenario(
    number: int, run: Replayed, answers: Mapping[str, list[dict[str, object]]]
) -> dict[str, object]:
    """What the queries say of one run, by subject."""
    row = dict(answers[SUMMARY][number])
    tiers = [dict(one) for one in answers["replay/tiers"] if one["run"] == number]
    links = [dict(one) for one in answers["replay/links"] if one["run"] == number]
    stages = next((dict(one) for one in answers["replay/stages"] if one["run"] == number), {})
    for one in (row, *tiers, *links):
        one.pop("run")
    for one in (*tiers, *links):
        del one["scenario"], one["changes"]
    for name in ("run", "scenario", "changes", "requests", "ttft_mean_s"):
        stages.pop(name, None)
    for name in ("ttft", "tpot", "e2e"):
        row[f"{name}_s"] = {
            figure: row.pop(f"{name}_{figure}_s")
            for figure in ("mean", "p50", "p90", "p99")
            if f"{name}_{figure}_s" in row
        }
    row["net_negative"] = {
        name: row.pop(f"net_negative_{name}") for name in ("requests", "bytes", "lost_s")
    }
    return {
        **row,
        "title": run.result.scenario.title,
        "stages": stages,
        "tiers": tiers,
        "links": links,
        "thresholds": threshold_documents(run.result),
        "served_by": _served_by(run),
    }
