"""What the verbs return: values for Python, text for people, JSON for scripts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from kvtrace.api.querymodes import Mode, inert_json, to_csv, to_markdown, to_parquet
from kvtrace.audit import jsonio
from kvtrace.audit.ingest_report import build_ingest_report, dump_ingest_report
from kvtrace.audit.record import AuditRecord, Finding, Option, Verdict
from kvtrace.ingest.capabilities import question
from kvtrace.ingest.contract import Format
from kvtrace.ingest.inspect import Inspection
from kvtrace.query.catalog import QueryResult
from kvtrace.report.console import render_console
from kvtrace.report.html import render_html
from kvtrace.report.text.replay import finding_lines, threshold_lines
from kvtrace.report.text.table import fitted_table, text_table
from kvtrace.report.texts import Lang
from kvtrace.schema.manifest import Note
from kvtrace.store.dataset import Dataset


def to_json(document: object) -> str:
    """One JSON document as text: sorted keys, no NaN, no newline at the end."""
    return json.dumps(document, sort_keys=True, allow_nan=False, ensure_ascii=False, indent=1)


@dataclass(frozen=True, slots=True)
class IngestOutcome:
    """A dataset and whether it was there already."""

    dataset: Dataset
    is_reused: bool

    def to_json(self) -> str:
        """The document of `kvtrace ingest --json`."""
        return dump_ingest_report(build_ingest_report(self.dataset.manifest)).decode().rstrip("\n")

    def summary(self) -> list[str]:
        """What was read, lost and found, for people."""
        manifest = self.dataset.manifest
        header = ("file", "format", "grade", "rows", "used", "ignored", "rejected", "blank")
        rows = [
            (
                entry.path,
                entry.format or "not recognised",
                entry.evidence_grade or "-",
                entry.rows_in,
                entry.used,
                entry.ignored,
                entry.rejected,
                entry.blank,
            )
            for entry in manifest.files
        ]
        totals = manifest.totals
        tokens = "unknown" if totals.prompt_tokens is None else f"{totals.prompt_tokens:,}"
        return [
            text_table(header, rows),
            "",
            f"requests {totals.requests:,} · prompt tokens {tokens} · samples {totals.samples:,}",
            *map(_note_line, totals.notes),
            f"dataset  {self.dataset.directory}",
        ]


def _note_line(note: Note) -> str:
    label = "note" if note.severity == "info" else note.severity
    place = f" ({note.path})" if note.path and note.path not in note.message else ""
    return f"{label}[{note.code}]: {note.message}{place}"


@dataclass(frozen=True, slots=True)
class QueryTable:
    """The result of a query."""

    name: str
    result: QueryResult
    notes: tuple[str, ...] = ()
    """What a reader must know of it: parameters that nobody typed, rows that were left out."""

    def to_json(self) -> str:
        """Columns with unit and meaning, and the rows."""
        columns = [
            {"name": name, "unit": unit, "meaning": meaning}
            for name, unit, meaning in zip(
                self.result.columns, self.result.units, self.result.meanings, strict=True
            )
        ]
        return inert_json(to_json({"query": self.name, "columns": columns, "rows": self.rows()}))

    def rows(self) -> list[dict[str, object]]:
        """The rows by column name; not-a-number and infinity are null."""
        return [
            {name: _finite(value) for name, value in row.items()}
            for row in self.result.frame.iter_rows(named=True)
        ]

    def to_text(self, width: int | None = None) -> str:
        """The table for people, within `width` columns where that is given."""
        rows = [tuple(row.values()) for row in self.rows()]
        return fitted_table(self.result.columns, rows, width)

    def brief_text(self, columns: Sequence[str]) -> str:
        """Some columns for people, ratios to four decimals."""
        rows = [[_brief(row[name]) for name in columns] for row in self.rows()]
        return text_table(columns, rows)

    def to_csv(self) -> str:
        """The rows for a spreadsheet; texts that would be formulas are made inert."""
        return to_csv(self.result)

    def to_markdown(self) -> str:
        """The rows as a Markdown table."""
        return to_markdown(self.result)

    def to_parquet(self) -> bytes:
        """The rows as a Parquet file, exactly."""
        return to_parquet(self.name, self.result)

    def rendered(self, mode: Mode, *, width: int | None = None) -> bytes:
        """The table in one of the modes, text with a newline at its end."""
        if mode == "parquet":
            return self.to_parquet()
        if mode == "table":
            text = self.to_text(width)
        else:
            makers = {"json": self.to_json, "csv": self.to_csv, "markdown": self.to_markdown}
            text = makers[mode]()
        return (text + "\n").encode("utf-8", errors="backslashreplace")


def _brief(value: object) -> object:
    return round(value, 4) if isinstance(value, float) else value


def _finite(value: object) -> object:
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    return value


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

    def to_json(self) -> str:
        """The options as an audit has them, and all scenarios as the queries give them."""
        return to_json(
            {
                "schema_version": 1,
                "requests": self.requests,
                "served_by": self.served_by,
                "options": self.documents,
                "scenarios": self.scenarios,
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
        replayed = f"{self.requests:,} requests replayed on: {served}"
        table = text_table(header, rows)
        return [replayed, *self._refused(), table, *threshold_lines(self.scenarios)]

    def _refused(self) -> list[str]:
        """What was left out of all scenarios of a load alike; nothing where nothing was."""
        counts = {int(str(one["refused_requests"])) for one in self.scenarios}
        return [
            f"{count:,} requests are left out: not every scenario has an instance that holds them"
            for count in sorted(counts - {0})
        ]

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
        table = text_table(header, rows)
        below = [*finding_lines([*self.findings.values()]), *threshold_lines(self.scenarios)]
        return [f"replayed on: {served}", *loads, *self._refused(), table, *below]


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

    def to_json(self) -> str:
        """The runs with all figures; the engine's wall time where it ran now."""
        runs = [
            {**row, "engine_wall_s": self.wall_s.get(int(str(row["run"])))}
            for row in QueryTable("replay/sweep", self.result).rows()
        ]
        return to_json({"schema_version": 1, "runs": runs})

    def summary(self) -> list[str]:
        """A table for people; all figures are modelled."""
        shown = ("scenario", "changes", "hit_ratio_tokens", "ttft_mean_s", "ttft_mean_ratio",
                 "ttft_p90_s", "tpot_mean_s", "net_negative_requests", "is_overloaded")  # fmt: skip
        return [QueryTable("replay/sweep", self.result).brief_text(shown)]


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


@dataclass(frozen=True, slots=True)
class FormatListing:
    """Formats that can be read."""

    formats: tuple[Format, ...]
    is_detailed: bool

    def to_json(self) -> str:
        """All that a format says of itself."""
        return to_json([_format_document(one) for one in self.formats])

    def lines(self) -> list[str]:
        """A table, or one format in full."""
        if not self.is_detailed:
            rows = [(one.name, one.best_grade, one.title) for one in self.formats]
            return [text_table(("format", "grade", "what it is"), rows)]
        lines: list[str] = []
        for one in self.formats:
            lines += [
                f"{one.name}: {one.title} (evidence grade {one.best_grade})",
                f"  read from: {one.versions}",
                f"  supplies: {', '.join(one.supplies)}",
                *(_unsaid(question(name), flag) for name, flag in one.missing.items()),
                f"  switch on: {one.enable_hint or 'nothing to do'}",
            ]
        return lines


def _unsaid(what: str, flag: str) -> str:
    return f"  does not say {what}: {flag}"


def _format_document(one: Format) -> dict[str, object]:
    return {
        "name": one.name,
        "title": one.title,
        "evidence_grade": one.best_grade,
        "supplies": list(one.supplies),
        "missing": dict(one.missing),
        "versions": one.versions,
        "flags": one.enable_hint,
        "is_benchmark": one.is_benchmark,
    }


_MAPPING_HINT: Final = (
    "hint: JSON and CSV of your own are read by a mapping: `kvtrace sniff FILE --suggest-mapping"
    " -o map.toml` writes a first one, `--mapping map.toml` reads by it"
)


@dataclass(frozen=True, slots=True)
class Sniffed:
    """What the files of an input are."""

    files: tuple[Inspection, ...]

    def to_json(self) -> str:
        """A list, one object a file."""
        return to_json([msgspec.to_builtins(one) for one in self.files])

    def lines(self) -> list[str]:
        """A paragraph a file."""
        lines: list[str] = []
        for one in self.files:
            what = one.format or "not recognised"
            grade = f", evidence grade {one.evidence_grade}" if one.evidence_grade else ""
            lines.append(f"{one.path}: {what}{grade}")
            lines.append(f"  why: {one.why} (confidence {one.confidence:.2f})")
            if one.supplies:
                lines.append(f"  gives: {', '.join(one.supplies)}")
            lines += map(_unsaid, one.missing, one.flags)
        if any(one.format is None and one.may_be_mapped for one in self.files):
            lines.append(_MAPPING_HINT)
        return lines or ["there is no file to look at"]


@dataclass(frozen=True, slots=True)
class Audit:
    """An audit: the record, and its renderings."""

    record: AuditRecord
    directory: Path | None = None
    """Output folder, where the audit was written to one."""
    is_dataset_reused: bool = False

    @property
    def verdict(self) -> Verdict:
        """Would the pool pay for itself?"""
        return self.record.verdict

    @property
    def findings(self) -> list[Finding]:
        """What was found, most severe first."""
        return self.record.findings

    def to_json(self) -> str:
        """audit.json as text."""
        return jsonio.dump(self.record).decode().rstrip("\n")

    def to_html(self, *, lang: Lang = "en") -> str:
        """The report as one offline HTML document."""
        return render_html(self.record, lang=lang)

    def first_screen(self, *, width: int = 100) -> list[str]:
        """12 to 20 lines: data, validity, verdict, the numbers that carry it, findings, paths."""
        folder = self.directory or Path()
        return render_console(
            self.record,
            report_path=folder / "report.html",
            audit_path=folder / "audit.json",
            dataset_path=folder / "dataset",
            reused=self.is_dataset_reused,
            width=width,
        )
