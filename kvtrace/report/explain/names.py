"""Every name that can be explained, found without loading what explains it (for completion)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Final

from kvtrace.report.explain.codes import error_codes
from kvtrace.report.explain.options import OPTION_IDS

_CHECK: Final = re.compile(r'\bCheck\(\s*id="(\w+)"')
CODE_START: Final = "KVT-"
_OUTCOMES: Final = ("cannot_tell", "does_not_pay", "pays", "pays_only_if")

_MONEY: Final = (
    "break_even_dram_usd_per_gb",
    "break_even_gpu_usd_per_hour",
    "npv",
    "payback_months",
    "pool_extra_cost",
    "pool_saving",
)


def explainable_names(queries: Traversable) -> tuple[str, ...]:
    """Findings, codes, queries, options, outcomes and terms, sorted; `queries` is their folder."""
    return tuple(sorted({*_words(queries), *error_codes()}))


def light_names(queries: Traversable, start: str) -> Iterator[str]:
    """Those of them that begin so; codes, which take reading all source, only where it is one."""
    names = error_codes() if start and CODE_START.startswith(start[:4]) else ()
    yield from (one for one in (*_words(queries), *names) if one.startswith(start))


def _words(queries: Traversable) -> set[str]:
    """All but the codes."""
    words = resources.files("kvtrace") / "report" / "i18n" / "en.json"
    strings: dict[str, str] = json.loads(words.read_text(encoding="utf-8"))
    terms = (name.split(".")[1] for name in strings if name.startswith("glossary."))
    return {*finding_ids(), *OPTION_IDS, *_OUTCOMES, *_MONEY, *terms, *query_names(queries)}


def finding_ids() -> tuple[str, ...]:
    """Ids of the registry's rows, as they stand in its source."""
    return tuple(_ids_below(resources.files("kvtrace") / "audit" / "findings"))


def _ids_below(folder: Traversable) -> Iterator[str]:
    for one in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if one.name.endswith(".py"):
            yield from _CHECK.findall(one.read_text(encoding="utf-8"))
        elif "." not in one.name and one.is_dir():
            yield from _ids_below(one)


def query_names(folder: Traversable) -> Iterator[str]:
    """Names of the queries in this folder, as their files are called."""
    for topic in folder.iterdir():
        if topic.is_dir():
            for one in topic.iterdir():
                if one.name.endswith(".sql"):
                    yield f"{topic.name}/{one.name.removesuffix('.sql')}"
