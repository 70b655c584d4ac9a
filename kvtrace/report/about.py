"""What was given, what served it and what was replayed: shared by the page and the first screen."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Final

from kvtrace.audit.record import AuditRecord, Quantity
from kvtrace.report.format import format_value, safe_text
from kvtrace.schema.manifest import FileEntry, SourceEntry

_SERVED: Final = ("llm", "weight_dtype", "kv_dtype", "hardware", "tp", "instances")


def given_inputs(record: AuditRecord) -> list[str]:
    """Inputs as they were given on the command line, else the paths of the files."""
    try:
        words = shlex.split(record.reproduce.command)[2:]
    except ValueError:  # a quote without its end
        words = []
    given: list[str] = []
    for word in words:
        if word.startswith("-"):
            break
        given.append(word)
    return given or [file.path for file in record.data.files]


def served_by(record: AuditRecord) -> str:
    """LLM, dtypes, GPU and instances in one line; `(assumed)` behind what nobody stated."""
    facts = {one.id: one for one in record.assumptions if one.id in _SERVED}
    if "llm" not in facts:
        return f"{safe_text(record.kv.llm)}, KV in {safe_text(record.kv.kv_dtype)}"
    if len(facts) == len(_SERVED) and all(_is_assumed(one) for one in facts.values()):
        return f"{', '.join(_parts(facts, assumed=False))} (all assumed)"
    return ", ".join(_parts(facts, assumed=True))


def _parts(facts: Mapping[str, Quantity], *, assumed: bool) -> list[str]:
    weights, kv = (_shown(facts, id) for id in ("weight_dtype", "kv_dtype"))
    dtypes = weights if weights == kv else f"{weights} weights, {kv} KV"
    parts = (
        (_shown(facts, "llm"), {"llm": "LLM"}),
        (dtypes, {"weight_dtype": "weights", "kv_dtype": "KV"}),
        (f"{_shown(facts, 'hardware')} × {_shown(facts, 'tp')}", {"hardware": "GPU", "tp": "tp"}),
        (_counted(facts.get("instances")), {"instances": "instances"}),
    )
    return [f"{text}{_mark(facts, of) if assumed else ''}" for text, of in parts if text]


def _shown(facts: Mapping[str, Quantity], id: str) -> str:
    return (format_value(facts[id].value, "") if id in facts else None) or "unknown"


def _counted(instances: Quantity | None) -> str:
    return "" if instances is None else format_value(instances.value, "instances") or ""


def _mark(facts: Mapping[str, Quantity], of: Mapping[str, str]) -> str:
    """Which of the facts of one part nobody stated."""
    assumed = [words for id, words in of.items() if id in facts and _is_assumed(facts[id])]
    if not assumed:
        return ""
    return " (assumed)" if len(assumed) == len(of) else f" ({', '.join(assumed)} assumed)"


def _is_assumed(fact: Quantity) -> bool:
    return not fact.is_confirmed or fact.origin == "default"


def unrecognised(record: AuditRecord) -> list[FileEntry]:
    """Files that no format recognised."""
    return [file for file in record.data.files if file.format is None]


def sources_beside(record: AuditRecord) -> tuple[SourceEntry | None, list[SourceEntry]]:
    """The headline source, and those that stand beside it without being added."""
    sources = record.data.sources
    headline = next((one for one in sources if one.role == "headline"), None)
    return headline, [one for one in sources if one.role == "beside"]
