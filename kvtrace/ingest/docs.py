"""The page docs/formats.md: what can be read, what it supplies, and how to switch it on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from kvtrace.ingest.capabilities import question
from kvtrace.ingest.contract import Format

_HEAD: Final = """# Formats

Written by `scripts/gen_format_docs.py` from the formats themselves; `kvtrace formats NAME` prints
the same. Files are told by their content, never by their name; `kvtrace sniff PATH` says what each
is, and which flag would make it say more. Lines of several programs in one text log are read side
by side (the formats marked "in text logs"), with the outer layers of docker, Kubernetes, journald,
syslog, Ray and srun taken off.

Evidence grades: **A** per-request tokens and block identity: any cache can be replayed. **B**
per-request cached counts: what the deployed cache did. **C** aggregates: curves over time. **L**
lengths or latencies without reuse.
"""


def render_format_docs(formats: Sequence[Format]) -> str:
    """The page, formats in order of their names."""
    ordered = sorted(formats, key=lambda entry: entry.name)
    parts = [_HEAD, _table(ordered)]
    parts += [_section(entry) for entry in ordered]
    return "\n".join(parts)


def _table(formats: Iterable[Format]) -> str:
    rows = ["| format | grade | what it is | in text logs |", "|---|---|---|---|"]
    rows += [
        f"| [`{entry.name}`](#{entry.name}) | {entry.best_grade} | {_cell(entry.title)} |"
        f" {'yes' if entry.dialect is not None else ''} |"
        for entry in formats
    ]
    return "\n".join(rows) + "\n"


def _section(entry: Format) -> str:
    lines = [
        f"## {entry.name}",
        "",
        f"{entry.title}. Best evidence grade {entry.best_grade}.",
        "",
        f"- Read from: {entry.versions}",
        f"- Supplies: {', '.join(f'`{name}`' for name in entry.supplies)}",
        f"- Switch on: {entry.enable_hint or 'nothing to do'}",
    ]
    lines += [f"- Does not say {question(name)}: {flag}" for name, flag in entry.missing.items()]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
