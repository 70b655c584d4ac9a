"""The verb `policies`: eviction policies against the bounds of them all, as a function."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from kvtrace.api.choices import choose
from kvtrace.api.opened import open_dataset
from kvtrace.api.policy_tables import DEFAULT_CAPACITY, TABLE, block_traces, derive_policies
from kvtrace.api.query_results import QueryTable, to_json
from kvtrace.api.queryparams import KV_BYTES, known_params
from kvtrace.config import Settings, resolve_settings
from kvtrace.errors import Location, UsageError
from kvtrace.query.catalog import load_catalog
from kvtrace.reuse.capacities import parse_capacities
from kvtrace.reuse.policies.blocks import Admission, BlockTrace
from kvtrace.reuse.policies.run import POLICIES
from kvtrace.reuse.policies.table import Plan
from kvtrace.schema.manifest import DerivedParam
from kvtrace.store.dataset import Dataset
from kvtrace.units import parse_duration_ns

_Value = TypeVar("_Value")
QUERIES: Final = ("policies/hits", "policies/gaps", "policies/second_use")
_ADMISSIONS: Final[dict[str, tuple[Admission, ...]]] = {
    "all": ("all",),
    "second-use": ("second_use",),
    "second_use": ("second_use",),
    "both": ("all", "second_use"),
}
_SHOWN: Final = {
    "policies/hits": (
        *("capacity_blocks", "policy", "admission"),
        *("hit_ratio_blocks", "hit_ratio_tokens", "writes_blocks"),
    ),
    "policies/gaps": (
        *("capacity_blocks", "best_policy", "policy_gap_low_ratio", "policy_gap_high_ratio"),
        *("capacity_gap_low_ratio", "capacity_gap_high_ratio", "larger_gap"),
    ),
    "policies/second_use": (
        *("capacity_blocks", "policy", "hits_kept_ratio", "writes_kept_ratio"),
    ),
}


@dataclass(frozen=True, slots=True)
class PoliciesOutcome:
    """What each policy serves and what any could, as the results of three queries."""

    tables: tuple[QueryTable, ...]
    params: dict[str, DerivedParam]
    """What the table was made with."""

    def to_json(self) -> str:
        """All results with all columns."""
        tables = {table.name: table.rows() for table in self.tables}
        return to_json({"schema_version": 1, "params": self.params, "tables": tables})

    def summary(self) -> list[str]:
        """The results for people, the ratios only; a table without rows is left out."""
        lines: list[str] = []
        for table in self.tables:
            if not table.result.frame.is_empty():
                lines += ["", table.name, table.brief_text(_SHOWN[table.name])]
        return lines[1:]


def policies(
    dataset: Path | str,
    *,
    policies: Sequence[str] | None = None,
    capacity: str | None = None,
    admission: str = "all",
    weight: str = "blocks",
    ttl: str = "300s",
    settings: Settings | None = None,
) -> PoliciesOutcome:
    """What one cache serves under each policy (None: all) at each capacity, and the bounds.

    `capacity` is such as `10000,50GiB,10%`, a share being one of the distinct blocks of the largest
    cache domain; `admission` is all, second-use or both. Writes `policy_hits` into the dataset.

    Raises:
        UsageError: no such policy, admission, weight or capacity, a TTL without a clock, or a
            dataset without blocks.
        OutputError: there is no dataset, it cannot be written, or another run holds it.
    """
    opened, chosen = open_dataset(dataset), settings or resolve_settings()
    wanted = POLICIES
    if policies is not None:
        wanted = tuple(choose(name, POLICIES, code="KVT-U052", what="policy") for name in policies)
    traces = block_traces(opened)
    if not traces:
        raise UsageError(
            "KVT-U050",
            "no policy can be simulated: no request has blocks",
            where=Location(str(opened.directory)),
            hint="`kvtrace formats` says which logs carry block ids or prompts",
        )
    if policies is not None and "ttl" in wanted and not any(t.has_clock for _, t in traces):
        raise UsageError(
            "KVT-U051",
            "a time to live needs arrivals, and the requests only have an order",
            hint="leave `ttl` out of --policy",
        )
    plan = Plan(
        capacities=_capacities(opened, traces, capacity, chosen),
        policies=wanted,
        admissions=_chosen(admission, _ADMISSIONS, "admission"),
        weight="tokens" if _chosen(weight, _WEIGHTS, "weight") == "tokens" else "blocks",
        ttl_ns=parse_duration_ns(ttl) if "ttl" in wanted else None,
    )
    derived = derive_policies(opened, plan, traces)
    return PoliciesOutcome(_asked(derived, chosen), derived.manifest.derived[TABLE])


_WEIGHTS: Final = {"blocks": "blocks", "tokens": "tokens"}


def _capacities(
    dataset: Dataset,
    traces: Sequence[tuple[int, BlockTrace]],
    text: str | None,
    settings: Settings,
) -> tuple[int, ...]:
    """Capacities in blocks; bytes need an LLM that somebody stated, now or for the audit."""
    known = known_params(dataset, {KV_BYTES}, settings)
    per_token = float(str(known[0].value)) if known else None
    size = traces[0][1].block_size_tokens
    block_bytes = None if per_token is None else per_token * size
    return parse_capacities(
        text or DEFAULT_CAPACITY,
        distinct_blocks=max(trace.distinct_blocks for _, trace in traces),
        block_bytes=block_bytes,
    )


def _asked(dataset: Dataset, settings: Settings) -> tuple[QueryTable, ...]:
    catalog = load_catalog()
    takes = {name: {param.name for param in catalog.describe(name).params} for name in QUERIES}
    known = known_params(dataset, set().union(*takes.values()), settings)
    tables = []
    with dataset.session() as session:
        for name, wanted in takes.items():
            params = {one.name: one.value for one in known if one.name in wanted}
            tables.append(QueryTable(name, catalog.run(session, name, params)))
    return tuple(tables)


def _chosen(name: str, known: dict[str, _Value], what: str) -> _Value:
    if name in known:
        return known[name]
    raise UsageError(
        "KVT-U053",
        f"there is no {what} `{name}`",
        hint=f"`--{what} {next(iter(known))}`; all are {', '.join(known)}",
    )
