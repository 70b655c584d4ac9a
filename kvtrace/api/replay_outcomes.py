"""What a replay or a sweep returns: values for Python, text for people, JSON for scripts."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from kvtrace.api.query_results import QueryTable, to_json
from kvtrace.api.replay_windows import ReplayedWindow
from kvtrace.audit.record import Finding, Option
from kvtrace.query.catalog import QueryResult
from kvtrace.report.text.replay import finding_lines, threshold_lines
from kvtrace.report.text.table import text_table


@dataclass(frozen=True, slots=True)
class ReplayOutcome:
    """What the replayed options did."""

    options: list[Option]
    wall_s: dict[str, float]
    """Seconds that the engine took per option."""
    requests: int
    served_by: dict[str, str]
    """Settings that were modelled: value and origin by name."""
    documents: list[dict[str, object]]
    """The options with all figures and the engine's own wall time."""
    scenarios: list[dict[str, object]] = field(default_factory=list)
    """What the queries say of every scenario, options among them, and the engine's wall time."""
    findings: dict[str, Finding] = field(default_factory=dict)
    """By scenario: where reuse costs more time than it saves."""
    windows: tuple[ReplayedWindow, ...] = ()
    """By load: which requests were replayed."""

    def to_json(self) -> str:
        """The options as an audit has them, and all scenarios as the queries give them."""
        return to_json(
            {
                "schema_version": 1,
                "requests": self.requests,
                "served_by": self.served_by,
                "options": self.documents,
                "scenarios": self.scenarios,
                "windows": [one.document() for one in self.windows],
                "findings": [
                    {**msgspec.to_builtins(finding), "scenario": scenario}
                    for scenario, finding in self.findings.items()
                ],
            }
        )

    def summary(self) -> list[str]:
        """A table for people; all figures are modelled."""
        if not self.options:
            return self._scenario_summary()
        header = ("option (modelled)", "hit tokens", "TTFT p50 s", "TTFT p90 s", "TTFT p99 s",
                  "loaded hits", "net-negative", "engine s")  # fmt: skip
        rows = [
            (
                option.id,
                None if option.hit_ratio_tokens is None else f"{option.hit_ratio_tokens:.1%}",
                _rounded(option.ttft_s.p50),
                _rounded(option.ttft_s.p90),
                _rounded(option.ttft_s.p99),
                option.hit_cost.hits,
                option.hit_cost.net_negative_hits,
                _rounded(self.wall_s[option.id]),
            )
            for option in self.options
        ]
        served = " · ".join(f"{name} {value}" for name, value in self.served_by.items())
        return [f"replayed on: {served}", *self._around(text_table(header, rows))]

    def _around(self, table: str) -> list[str]:
        """The table between what was replayed and what was found."""
        above = [line for one in self.windows for line in one.lines()]
        below = [*finding_lines([*self.findings.values()]), *threshold_lines(self.scenarios)]
        return [*above, table, *below]

    def _scenario_summary(self) -> list[str]:
        header = ("scenario (modelled)", "requests", "hit tokens", "TTFT mean s", "p50", "p99",
                  "TPOT mean s", "loaded hits", "net-negative", "engine s")  # fmt: skip
        rows = [
            (
                one["scenario"],
                one["requests"],
                _share(one["hit_ratio_tokens"]),
                *(_figure(one["ttft_s"], name) for name in ("mean", "p50", "p99")),
                _figure(one["tpot_s"], "mean"),
                one["loaded_requests"],
                _figure(one["net_negative"], "requests"),
                _figure(one, "engine_wall_s"),
            )
            for one in self.scenarios
        ]
        served = " · ".join(f"{name} {value}" for name, value in self.served_by.items())
        loads = [f"{one['scenario']}: {one['load']}" for one in self.scenarios if one["load"]]
        return [f"replayed on: {served}", *loads, *self._around(text_table(header, rows))]


def _figure(figures: object, name: str) -> object:
    """One figure of a document, rounded."""
    value = figures.get(name) if isinstance(figures, dict) else None
    return round(value, 4) if isinstance(value, float) else value


def _share(value: object) -> str | None:
    return f"{value:.1%}" if isinstance(value, float) else None


@dataclass(frozen=True, slots=True)
class SweepOutcome:
    """What a sweep found."""

    result: QueryResult
    """Of `replay/sweep`."""
    wall_s: dict[int, float]
    """Seconds of the engine by run; runs that were known before have none."""
    windows: tuple[ReplayedWindow, ...] = ()
    """By load: which requests were replayed."""
    findings: dict[int, Finding] = field(default_factory=dict)
    """By run: where reuse costs more time than it saves."""

    def to_json(self) -> str:
        """The runs with all figures; the engine's wall time where it ran now."""
        runs = [
            {**row, "engine_wall_s": self.wall_s.get(int(str(row["run"])))}
            for row in QueryTable("replay/sweep", self.result).rows()
        ]
        return to_json(
            {
                "schema_version": 1,
                "runs": runs,
                "windows": [one.document() for one in self.windows],
                "findings": [
                    {**msgspec.to_builtins(finding), "run": run}
                    for run, finding in self.findings.items()
                ],
            }
        )

    def summary(self) -> list[str]:
        """A table for people; all figures are modelled."""
        shown = ("scenario", "changes", "hit_ratio_tokens", "ttft_mean_s", "ttft_mean_ratio",
                 "ttft_p90_s", "tpot_mean_s", "net_negative_requests", "is_overloaded")  # fmt: skip
        above = [line for one in self.windows for line in one.lines()]
        table = QueryTable("replay/sweep", self.result).brief_text(shown)
        return [*above, table, *finding_lines([*self.findings.values()])]


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
