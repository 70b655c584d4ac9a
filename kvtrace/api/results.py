"""What the verbs return: values for Python, text for people, JSON for scripts."""

from __future__ import annotations

import shlex
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import polars as pl

from kvtrace.api.notebook import AuditFigure, Tables, figure_names, figure_of
from kvtrace.api.query_results import to_json
from kvtrace.audit import jsonio
from kvtrace.audit.ingest_report import build_ingest_report, dump_ingest_report
from kvtrace.audit.record import AuditRecord, Finding, Verdict
from kvtrace.errors import UsageError
from kvtrace.exec.progress import counted
from kvtrace.ingest.capabilities import question
from kvtrace.ingest.contract import Format
from kvtrace.ingest.inspect import Inspection
from kvtrace.report.console import render_console
from kvtrace.report.html import render_bilingual
from kvtrace.report.text.table import text_table
from kvtrace.report.texts import Lang, load_texts
from kvtrace.schema.manifest import Note
from kvtrace.store.dataset import Dataset


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
            rows = [(one.name, one.best_grade, _title(one)) for one in self.formats]
            return [text_table(("format", "grade", "what it is"), rows)]
        lines: list[str] = []
        for one in self.formats:
            lines += [
                f"{one.name}: {_title(one)} (evidence grade {one.best_grade})",
                f"  read from: {one.versions}",
                f"  supplies: {', '.join(one.supplies)}",
                *(_unsaid(question(name), flag) for name, flag in one.missing.items()),
                f"  switch on: {one.enable_hint or 'nothing to do'}",
            ]
        return lines


def _title(one: Format) -> str:
    return one.title if one.distribution is None else f"{one.title} (package {one.distribution})"


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
        "package": one.distribution,
    }


_MAPPING_HINT: Final = (
    "hint: JSON and CSV of your own are read by a mapping: `kvtrace sniff FILE --suggest-mapping"
    " -o map.toml` writes a first one, `--mapping map.toml` reads by it"
)


@dataclass(frozen=True, slots=True)
class Sniffed:
    """What the files of an input are."""

    files: tuple[Inspection, ...]
    inputs: tuple[str, ...] = ()
    """As they were given, for the command that comes next."""

    def _together(self) -> list[str]:
        """The best grade of the files and what it is, and the next command; nothing without one."""
        known = [one for one in self.files if one.format is not None]
        if not known:
            return []
        grades = [one.evidence_grade for one in known if one.evidence_grade is not None]
        best = next((grade for grade in ("A", "B", "C", "L") if grade in grades), None)
        told = (
            ""
            if best is None
            else f", best evidence grade {best}: " + load_texts("en")(f"grade.{best}.short")
        )
        lines = ["", f"{len(known):,} of {counted(len(self.files), 'file')} can be read{told}"]
        if self.inputs:
            lines.append(f"next: kvtrace analyze {shlex.join(self.inputs)}")
        return lines

    def to_json(self) -> str:
        """A list, one object a file."""
        return to_json([msgspec.to_builtins(one) for one in self.files])

    def lines(self, width: int | None = None) -> list[str]:
        """A paragraph a file, then what they can tell together and what to type next."""
        lines: list[str] = []
        for one in self.files:
            grade = f", evidence grade {one.evidence_grade}" if one.evidence_grade else ""
            sure = f" (confidence {one.confidence:.2f})" if one.confidence else ""
            lines.append(f"{one.path}: {one.format or 'not recognised'}{grade}")
            said = [f"why: {one.why}{sure}"]
            if one.supplies:
                said.append(f"gives: {', '.join(one.supplies)}")
            said += (_unsaid(*pair).strip() for pair in zip(one.missing, one.flags, strict=True))
            lines += (line for text in said for line in _indented(text, width))
        lines += self._together()
        if any(one.format is None and one.may_be_mapped for one in self.files):
            lines.append(_MAPPING_HINT)
        return lines or ["there is no file to look at"]


def _indented(text: str, width: int | None) -> list[str]:
    """A line below a file, wrapped where there is a width; flags and names stay whole."""
    if width is None:
        return [f"  {text}"]
    wrapped = textwrap.wrap(
        text,
        width,
        initial_indent="  ",
        subsequent_indent="    ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return wrapped or [f"  {text}"]


@dataclass(frozen=True, slots=True, repr=False)
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

    @property
    def tables(self) -> Tables:
        """The tables of the audit by id, as polars frames: `audit.tables["reuse/summary"]`."""
        return Tables(self.record.tables)

    @property
    def figures(self) -> list[str]:
        """Ids of the charts that can be drawn."""
        return figure_names(self.record)

    def figure(self, name: str, *, lang: Lang = "en") -> AuditFigure:
        """One chart by its id, which a notebook draws.

        Raises:
            UsageError: there is no such chart, or nothing to draw of it.
        """
        return figure_of(self.record, name, lang=lang)

    def sql(self, query: str, **params: str | int | float) -> pl.DataFrame:
        """One SELECT of your own over the dataset, or a query of the catalogue by its name.

        Raises:
            UsageError: no dataset is beside this audit, or the SQL is not one SELECT.
            ModelError: the query failed or passed a bound.
        """
        from kvtrace.api.queries import query as run

        if self.directory is None:
            raise UsageError(
                "KVT-U112",
                "this audit has no folder, so no dataset to ask",
                hint="`kvtrace.load_audit(FOLDER)` knows it",
            )
        given = {name: str(value) for name, value in params.items()}
        is_name = not any(character.isspace() for character in query.strip())
        if is_name:
            return run(self.directory, query.strip(), params=given).result.frame
        return run(self.directory, sql=query, params=given).result.frame

    def to_adr(self, *, lang: Lang = "en") -> str:
        """The decision record in Markdown; the decision is left to a person."""
        from kvtrace.report.adr import render_adr

        return render_adr(self.record, lang=lang)

    def _repr_html_(self) -> str:
        """A card for a notebook."""
        from kvtrace.report.card import render_card

        return render_card(self.record)

    def __repr__(self) -> str:
        verdict = self.record.verdict
        return f"<Audit: {verdict.outcome}, {verdict.confidence} confidence: {verdict.headline}>"

    def to_html(self, *, lang: Lang = "en") -> str:
        """The report as one offline HTML document."""
        return render_bilingual(self.record, lang=lang)

    def first_screen(self, *, width: int = 100, lang: Lang = "en") -> list[str]:
        """12 to 20 lines: data, validity, verdict, the numbers that carry it, findings, paths."""
        folder = self.directory or Path()
        return render_console(
            self.record,
            report_path=folder / "report.html",
            audit_path=folder / "audit.json",
            dataset_path=folder / "dataset",
            reused=self.is_dataset_reused,
            width=width,
            lang=lang,
        )
