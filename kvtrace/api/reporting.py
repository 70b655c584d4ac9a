"""The verb `report`: an audit.json read again, and what is made of it; nothing else is read."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Final, Literal, get_args

from kvtrace.api.opened import AUDIT_FILE
from kvtrace.api.outputs import read_audit, write_output
from kvtrace.api.results import Audit
from kvtrace.audit import jsonio
from kvtrace.errors import UsageError
from kvtrace.report.adr import render_adr, render_summary
from kvtrace.report.texts import Lang

ReportForm = Literal["html", "json", "md", "adr"]
FORMS: Final[tuple[ReportForm, ...]] = get_args(ReportForm)


def load_audit(audit: Path | str) -> Audit:
    """The audit of an audit.json, or of the folder that holds one.

    Raises:
        InputError: the file cannot be read.
        OutputError: it is no audit record, or a newer kvtrace wrote it.
    """
    source = Path(audit)
    source = source / AUDIT_FILE if source.is_dir() else source
    return Audit(jsonio.load(read_audit(source), path=str(source)), source.parent)


def render_report(audit: Audit, *, to: str = "html", lang: str = "en") -> str:
    """The audit as `html`, `json`, `md` (its evidence) or `adr` (the decision left open).

    Raises:
        UsageError: no such form.
    """
    form = _form(to)
    chosen: Lang = "zh" if lang == "zh" else "en"
    if form == "html":
        return audit.to_html(lang=chosen)
    if form == "json":
        return audit.to_json() + "\n"
    maker = render_adr if form == "adr" else render_summary
    return maker(audit.record, lang=chosen)


def _form(name: str) -> ReportForm:
    for form in FORMS:
        if form == name:
            return form
    close = difflib.get_close_matches(name, FORMS, n=1) or FORMS
    raise UsageError(
        "KVT-U083",
        f"there is no form of a report `{name}`",
        hint=f"`--to {close[0]}`; all are {', '.join(FORMS)}",
    )


def report(
    audit: Path | str, *, output: Path | str | None = None, lang: str = "en", to: str = "html"
) -> Path:
    """Write a report of an audit.json (or the folder that holds one); returns its path.

    Without `output`, beside the audit: `report.html`, `report.json`, `report.md` or `adr.md`.

    Raises:
        UsageError: no such form of a report.
        InputError, OutputError: the audit cannot be read, or the report not be written.
    """
    loaded = load_audit(audit)
    text = render_report(loaded, to=to, lang=lang)
    target = Path(output) if output is not None else _beside(loaded, to)
    write_output(target, text.encode())
    return target


def _beside(audit: Audit, to: str) -> Path:
    name = "adr.md" if to == "adr" else f"report.{to}"
    return (audit.directory or Path()) / name
