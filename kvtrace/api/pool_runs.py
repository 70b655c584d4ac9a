"""The verb `pooling`: private caches against one shared pool, as a function."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kvtrace.api.choices import choose
from kvtrace.api.opened import (
    SERVING_SETTINGS,
    open_dataset,
    read_earlier,
    whole_trace,
    with_earlier,
)
from kvtrace.api.pool_tables import (
    ONE_PASS_ROUTINGS,
    TABLE,
    block_bytes,
    derive_pools,
    level_of,
    plan_pools,
)
from kvtrace.api.query_results import QueryTable, to_json
from kvtrace.api.setup import Setup, choose_deployment, choose_fleet
from kvtrace.config import Settings, resolve_settings
from kvtrace.errors import Location, UsageError
from kvtrace.query.catalog import load_catalog
from kvtrace.reuse.capacities import parse_capacities
from kvtrace.reuse.pooling import ROUTINGS, Level
from kvtrace.schema.arrays import RequestTrace
from kvtrace.schema.manifest import DerivedParam

INSTANCES: Final = (2, 4, 8, 16)
QUERIES: Final = ("pooling/hit_ratio", "pooling/added")
_SHOWN: Final = {
    "pooling/hit_ratio": (
        *("routing", "instances", "total_capacity_blocks"),
        *("private_hit_ratio_tokens", "pooled_hit_ratio_tokens", "added_hit_ratio_tokens"),
    ),
    "pooling/added": (
        *("routing", "instances", "hbm_blocks", "dram_blocks", "pool_blocks"),
        *("hbm_hit_ratio_tokens", "dram_hit_ratio_tokens", "over_hbm_and_dram_hit_ratio_tokens"),
    ),
}


@dataclass(frozen=True, slots=True)
class PoolingOutcome:
    """What private caches and a pool would serve, as the results of two queries."""

    tables: tuple[QueryTable, ...]
    params: dict[str, DerivedParam]
    """What the table was made with."""
    served_by: dict[str, str]
    """Settings that the sizes in bytes were taken from: value and origin by name."""

    def to_json(self) -> str:
        """Both results with all columns."""
        return to_json(
            {
                "schema_version": 1,
                "params": self.params,
                "served_by": self.served_by,
                "tables": {table.name: table.rows() for table in self.tables},
            }
        )

    def summary(self) -> list[str]:
        """Both results for people, the ratios only."""
        served = " · ".join(f"{name} {value}" for name, value in self.served_by.items())
        lines = [f"sizes of: {served}", f"conversations: {_conversations(self.params)}"]
        for table in self.tables:
            lines += ["", table.name, table.brief_text(_SHOWN[table.name])]
        return lines


def pooling(
    dataset: Path | str,
    *,
    instances: Sequence[int] = INSTANCES,
    routings: Sequence[str] = ONE_PASS_ROUTINGS,
    capacity: str | None = None,
    hbm: str | None = None,
    dram: str | None = None,
    pool: str | None = None,
    settings: Settings | None = None,
) -> PoolingOutcome:
    """What private caches serve by routing and capacity, and what a shared pool would add.

    `capacity` are total capacities such as `10000,50GiB,10%`; `hbm` and `dram` are those of an
    instance, `pool` that of all, else of the deployment. Writes `pool_hits` into the dataset.

    Raises:
        UsageError: no such routing, a number of instances or a capacity that cannot be used, or a
            dataset without blocks.
        OutputError: there is no dataset, it cannot be written, or another run holds it.
    """
    opened = open_dataset(dataset)
    wanted = [choose(name, ROUTINGS, code="KVT-U043", what="routing") for name in routings]
    _check_instances(instances)
    chosen = with_earlier(settings or resolve_settings(), read_earlier(opened))
    deployment, chosen = choose_deployment(chosen, opened.manifest)
    trace = whole_trace(opened)
    if trace is None or not trace.distinct_blocks:
        raise UsageError(
            "KVT-U042",
            "nothing can be pooled: no request has blocks",
            where=Location(str(opened.directory)),
            hint="`kvtrace formats` says which logs carry block ids or prompts",
        )
    setup = choose_fleet(chosen, deployment, trace, opened.manifest)
    size = block_bytes(deployment, trace.block_size_tokens)
    level = _stated(
        level_of(deployment, setup.fleet, trace.block_size_tokens), trace, size, (hbm, dram, pool)
    )
    totals = () if capacity is None else _blocks(capacity, trace, size)
    plan = plan_pools(opened, trace, level, instances=instances, routings=wanted, totals=totals)
    derived = derive_pools(opened, trace, plan)
    catalog = load_catalog()
    with derived.session() as session:
        tables = tuple(QueryTable(name, catalog.run(session, name)) for name in QUERIES)
    return PoolingOutcome(tables, derived.manifest.derived[TABLE], _served_by(setup))


def _check_instances(instances: Sequence[int]) -> None:
    wrong = [one for one in instances if one < 1]
    if wrong or not instances:
        found = f"{wrong[0]} instances serve nothing" if wrong else "no number of instances"
        raise UsageError("KVT-U044", found, hint="`--instances 2,4,8`")


def _blocks(text: str, trace: RequestTrace, size: float) -> tuple[int, ...]:
    return parse_capacities(text, distinct_blocks=trace.distinct_blocks, block_bytes=size)


def _stated(
    level: Level, trace: RequestTrace, size: float, stated: tuple[str | None, ...]
) -> Level:
    """The sizes of a deployment with what a person states instead; `0` is none."""
    sizes = [level.hbm_blocks, level.dram_blocks, level.pool_blocks]
    for place, text in enumerate(stated):
        if text is not None:
            sizes[place] = 0 if text.strip() == "0" else _blocks(text, trace, size)[-1]
    return Level(*sizes)


def _served_by(setup: Setup) -> dict[str, str]:
    return {
        one.name: f"{one.value} ({one.origin})"
        for one in setup.settings
        if one.name in SERVING_SETTINGS
    }


def _conversations(params: dict[str, DerivedParam]) -> str:
    """How the conversations of `session_sticky` are known."""
    named = params["requests_with_session"]
    if named:
        return f"as the logs name them in {named:,} requests, else by the full-block rule"
    return "by the full-block rule, the logs name none"
