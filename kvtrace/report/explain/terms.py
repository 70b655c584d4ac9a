"""Words of reports and tables: outcomes, the glossary, metrics, columns, settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from kvtrace.config import SETTINGS
from kvtrace.report.explain.explanation import Explanation, Fact
from kvtrace.report.texts import Lang, load_texts
from kvtrace.schema.metrics import METRICS
from kvtrace.schema.tables import TABLES

_GLOSSARY: Final = "glossary."
_TERM: Final = ".term"
OUTCOMES: Final[Mapping[str, tuple[str, str, str]]] = {
    "pays": (
        "The pool is worth more than it costs, at both ends of the intervals",
        "The low end of its value (whole instances, by replay) is above the high end of its cost, "
        "TTFT is no worse than today, and nothing decisive is assumed",
        "Try it on two instances with the options that the findings name; then watch the numbers "
        "that carry the verdict",
    ),
    "does_not_pay": (
        "Even the best case saves less than a pool costs, or a cheaper option serves the reuse",
        "Proved by a bound (all prefill free, moves free) or by replays against the best option "
        "without a pool",
        "Take the best option without a pool; the conditions say what would change the answer",
    ),
    "pays_only_if": (
        "The pool pays under conditions that the verdict lists, and not without them",
        "The intervals of value and cost overlap, or an estimate that nobody confirmed decides",
        "Confirm or change what the conditions name, then run the analysis again",
    ),
    "cannot_tell": (
        "This data cannot answer, and the bounds of best and worst case do not settle it",
        "Reuse, load or time span is unknown, or too short",
        "Switch on the one measurement that the verdict names, for the hours that it names",
    ),
}
"""By outcome: what it means, when it is given, what to do."""


_MONEY: Final[Mapping[str, str]] = {
    "break_even_dram_usd_per_gb": "Price of DRAM, USD per GB, at which the pool pays",
    "break_even_gpu_usd_per_hour": "Price of a GPU-hour, USD, at which the pool pays",
    "npv": "Net present value of the pool over the best option without one, USD",
    "payback_months": "Months until savings less running cost have paid what is bought",
    "pool_extra_cost": "USD a month that the pool costs beyond the best option without one",
    "pool_saving": "USD a month of the instances that the pool gives back, by the contract",
}


def explain_money(name: str) -> Explanation | None:
    """A number of the weighed pool; null: there is no such one."""
    if name not in _MONEY:
        return None
    facts = (Fact("basis", "modelled"), Fact("gate", f"--fail-on '{name}<VALUE'"))
    return Explanation(name, "number", _MONEY[name], facts)


def explain_outcome(name: str) -> Explanation | None:
    """An outcome of the verdict; null: there is no such one."""
    if name not in OUTCOMES:
        return None
    means, when, then = OUTCOMES[name]
    facts = (Fact("given when", when), Fact("do", then), Fact("gate", f"--fail-on verdict={name}"))
    return Explanation(name, "verdict", means, facts)


def glossary(lang: Lang = "en") -> dict[str, tuple[str, str]]:
    """By key: a term of the report and its meaning."""
    strings = load_texts(lang).strings
    keys = [
        name.removeprefix(_GLOSSARY).removesuffix(_TERM)
        for name in strings
        if name.startswith(_GLOSSARY) and name.endswith(_TERM)
    ]
    return {
        key: (strings[f"{_GLOSSARY}{key}{_TERM}"], strings[f"{_GLOSSARY}{key}.meaning"])
        for key in keys
    }


def explain_terms(name: str, *, lang: Lang = "en") -> Iterator[Explanation]:
    """What a word means in the glossary, as a metric, as a column and as a setting."""
    for key, (term, meaning) in glossary(lang).items():
        if name.lower() in {key, term.lower()}:
            yield Explanation(term, "term", meaning)
    if name in METRICS:
        metric = METRICS[name]
        query = "kvtrace query DATASET samples/over_time"
        facts = (Fact("unit", metric.unit), Fact("see it", query))
        yield Explanation(name, "metric", metric.meaning, facts)
    yield from _columns(name)
    for spec in SETTINGS:
        if spec.name == name:
            default = "none" if spec.default is None else str(spec.default)
            facts = (Fact("default", default), Fact("stated by", f"--{name.replace('_', '-')}"))
            yield Explanation(name, "setting", spec.help, facts)


def _columns(name: str) -> Iterator[Explanation]:
    """A column by its name or `table.name`; of equal ones of several tables each meaning once."""
    wanted_table, _, wanted = name.rpartition(".")
    found: dict[tuple[str, str], list[str]] = {}
    nulls: dict[tuple[str, str], str] = {}
    for table in TABLES.values():
        for column in table.columns:
            if column.name == wanted and wanted_table in {"", table.name}:
                key = (column.unit, column.meaning)
                found.setdefault(key, []).append(table.name)
                nulls[key] = column.null
    for key, tables in found.items():
        facts = (
            Fact("unit", key[0]),
            Fact("in", ", ".join(tables)),
            Fact("null", nulls[key]),
        )
        yield Explanation(wanted, "column", key[1], facts)
