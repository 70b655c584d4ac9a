"""The runs of a sweep: those that are known from before, and those that are replayed now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace

from kvtrace.api.loads import Loaded
from kvtrace.api.opened import SERVING_SETTINGS
from kvtrace.api.replay_findings import in_question, trials_of
from kvtrace.api.replay_runs import Bench, Ready, replay_all
from kvtrace.api.replay_tables import SUMMARY, ask, frames_of
from kvtrace.api.sweep_store import KEPT, SweepStore, content_of
from kvtrace.audit.findings.net_negative_loads import Run, Trial, judge
from kvtrace.audit.record import Finding
from kvtrace.exec.progress import Progress
from kvtrace.query.catalog import load_catalog
from kvtrace.replay.thresholds import advice
from kvtrace.scenarios.load import Load

Row = dict[str, object]


class SweepRuns:
    """Replays of a sweep by their content: each is made once, and kept beside the dataset."""

    def __init__(
        self,
        bench: Bench,
        ready: Sequence[Ready],
        loads: Mapping[Load, Loaded],
        watch: Progress,
        *,
        workers: int | None,
    ) -> None:
        self._bench, self._ready, self._loads = bench, ready, loads
        self._watch, self._workers = watch, workers
        self._room = min((one.room_tokens for one in ready), default=0.0)
        self._store = SweepStore(bench.dataset)

    def rows(self) -> tuple[list[Row], dict[int, float]]:
        """(the rows of `replay_sweep`, seconds of the engine by run that was replayed now)."""
        contents, known, wall_s = self._ran(self._ready)
        rows = []
        for number, (one, content) in enumerate(zip(self._ready, contents, strict=True)):
            case = one.case
            which: Row = {
                "run": number,
                "scenario": case.document.name,
                "axis": case.axis,
                "value": case.value,
                "changes": case.changes,
                "content": content,
            }
            rows.append({**which, **known[content]})
        return rows, wall_s

    def findings(self, rows: Sequence[Row]) -> dict[int, Finding]:
        """By run: reuse that costs more time than it saves, judged as `kvtrace replay` does.

        The further replays are kept as the others are; thresholds are those of empty links.
        """
        told = [Run.of(row) for row in rows]
        suspects = [place for place, run in enumerate(told) if run.is_suspect]
        trials = [
            replace(self._ready[place], scenario=scenario)
            for place in suspects
            for scenario in trials_of(self._ready[place].scenario)
        ]
        if not trials:
            return {}
        self._watch.start("what the loads cost")
        contents, known, wall_s = self._ran(trials)
        self._watch.finish(f"{len(trials)} replays, {len(trials) - len(wall_s)} known before")
        tried = iter(Run.of(known[content]) for content in contents)
        return dict(self._judged(suspects, told, tried))

    def _judged(
        self, suspects: Sequence[int], told: Sequence[Run], tried: Iterator[Run]
    ) -> Iterator[tuple[int, Finding]]:
        for place in suspects:
            one = self._ready[place]
            ended = [next(tried) for _ in trials_of(one.scenario)]
            tiers = in_question(one.scenario)
            alone = advice(one.scenario)
            name = one.case.document.name
            finding = judge(
                Trial(
                    scenario=f"{name} ({one.case.changes})" if one.case.changes else name,
                    tiers=tiers,
                    told=told[place],
                    without=ended[0],
                    arbiter=ended[1] if len(ended) > 1 else None,
                    thresholds={tier: alone[tier] for tier in tiers},
                    is_confirmed=all(
                        s.is_confirmed for s in one.setup.settings if s.name in SERVING_SETTINGS
                    ),
                )
            )
            if finding is not None:
                yield place, finding

    def _ran(self, ready: Sequence[Ready]) -> tuple[list[str], dict[str, Row], dict[int, float]]:
        """(content by run, row by content, seconds of the engine by run that was made now)."""
        contents = [content_of(self._bench, one, self._room) for one in ready]
        found = {content: self._store.read(content) for content in dict.fromkeys(contents)}
        places = [contents.index(content) for content, row in found.items() if row is None]
        known = {content: row for content, row in found.items() if row is not None}
        catalog, wall_s = load_catalog(), {}
        todo = [ready[place] for place in places]
        with closing(replay_all(todo, self._loads, self._watch, workers=self._workers)) as outcomes:
            for number, run in outcomes:
                content = contents[places[number]]
                summary = ask(frames_of([run]), [SUMMARY], catalog)[SUMMARY][0]
                row = {name: summary[name] for name in KEPT}
                self._store.write(content, row)
                known[content] = row
                wall_s[places[number]] = run.wall_s
        return contents, known, wall_s
