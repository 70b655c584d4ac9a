"""What a scenario file states, checked before anything is computed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from kvtrace.errors import UsageError
from kvtrace.replay.engines import EnginePreset, find_engine
from kvtrace.replay.scenario import (
    HandoffSpec,
    IsolationSpec,
    LinkSpec,
    Scenario,
    StageSpec,
    ThrottleSpec,
    TierSpec,
)
from kvtrace.scenarios.document import OPTIONS, Document, Reader, load_topology
from kvtrace.scenarios.keys import Key, keys_of, read_fields
from kvtrace.scenarios.load import LOAD_KEYS, Load, read_load
from kvtrace.units import parse_bytes

Spec = TypeVar("Spec")
SERVING: Final = ("llm", "hardware", "tp", "instances", "weight_dtype", "kv_dtype")
"""Keys of a scenario that are settings of `kvtrace`, by the same names."""
LAYOUT: Final = ("pp", "dp", "ep")
"""Keys that say how the ranks of an engine share the LLM, beside `tp`."""
SCENARIO_KEYS: Final[Mapping[str, Key]] = keys_of(
    Scenario,
    ("option_id", "title", "instances", "hbm_capacity_bytes", "kv_bytes_per_token", "stages"),
)
TIER_KEYS: Final = keys_of(TierSpec, ("tier_id", "capacity_bytes"))
LINK_KEYS: Final = keys_of(LinkSpec, ("link_id",))
TOP_KEYS: Final = (
    *("title", "base", "engine", "fleet", "topology", "hbm", "hbm_blocks", "kv_bytes_per_token"),
    *("chain", "tier", "link", "isolation", "throttle", "handoff"),
    *(*SERVING, *LAYOUT, *SCENARIO_KEYS),
    *(key for key in LOAD_KEYS if key not in SCENARIO_KEYS),
)
_TABLES: Final = (
    "a tier of the cache is `[tier.NAME]`, a link is `[link.NAME]`, "
    "and a table of a fleet file is `[fleet.NAME]`"
)


@dataclass(frozen=True, slots=True)
class TierPlan:
    """What a file states of one tier; null: not stated."""

    reader: Reader
    fields: Mapping[str, object]
    """Fields of `TierSpec` by name."""
    path: str | None
    capacity_bytes: float | None
    capacity_blocks: int | None
    read: tuple[StageSpec, ...] | None
    write: tuple[StageSpec, ...] | None


@dataclass(frozen=True, slots=True)
class Plan:
    """One scenario file, parsed; numbers that need an LLM or a fleet are still open."""

    document: Document
    reader: Reader
    title: str | None
    base: str
    engine: EnginePreset | None
    """Whose defaults hold where the file states nothing."""
    serving: Mapping[str, str | int]
    """Settings that the file states, by their names."""
    layout: Mapping[str, int]
    """`pp`, `dp` and `ep` of a `Deployment`, as stated."""
    hardware: Mapping[str, object] | None
    """`[hardware]`: the keys of a hardware file."""
    fleet: Mapping[str, object] | None
    """`[fleet]`: the keys of a fleet file."""
    topology: Document | None
    hbm_bytes: float | None
    hbm_blocks: int | None
    kv_bytes_per_token: float | None
    fields: Mapping[str, object]
    """Fields of `Scenario` by name."""
    tiers: Mapping[str, TierPlan]
    chain: tuple[str, ...] | None
    links: Mapping[str, Mapping[str, object]]
    """Fields of `LinkSpec` by link."""
    load: Load


def read_plan(document: Document) -> Plan:
    """What a scenario document states.

    Raises:
        UsageError: an unknown key (with the close ones and its line), or a value that cannot be
            used.
    """
    top = Reader(document, document.table)
    top.check(TOP_KEYS, _TABLES)
    base = top.word("base") if top.has("base") else "hbm_only"
    if base not in OPTIONS:
        raise top.fault("base", f"there is no option `{base}`", hint=f"one of {', '.join(OPTIONS)}")
    if top.has("hbm") and top.has("hbm_blocks"):
        raise top.fault("hbm_blocks", "`hbm` and `hbm_blocks` are both stated")
    hardware = top.table.get("hardware")
    return Plan(
        document=document,
        reader=top,
        title=top.word("title") if top.has("title") else None,
        base=base,
        engine=_engine(top),
        serving=_serving(top),
        layout={key: top.whole(key, least=1) for key in LAYOUT if top.has(key)},
        hardware=top.section("hardware").table if isinstance(hardware, Mapping) else None,
        fleet=top.section("fleet").table if top.has("fleet") else None,
        topology=_topology(top),
        hbm_bytes=top.quantity("hbm", parse_bytes) if top.has("hbm") else None,
        hbm_blocks=top.whole("hbm_blocks") if top.has("hbm_blocks") else None,
        kv_bytes_per_token=_kv_bytes(top),
        fields=_fields(top),
        tiers={name: _tier(reader) for name, reader in top.sections("tier").items()},
        chain=top.words("chain") if top.has("chain") else None,
        links={name: _link(reader) for name, reader in top.sections("link").items()},
        load=read_load(top),
    )


def _kv_bytes(top: Reader) -> float | None:
    if not top.has("kv_bytes_per_token"):
        return None
    stated = top.number("kv_bytes_per_token")
    if stated == 0:
        raise top.fault("kv_bytes_per_token", "`kv_bytes_per_token` is not above zero")
    return stated


def _engine(top: Reader) -> EnginePreset | None:
    if not top.has("engine"):
        return None
    try:
        return find_engine(top.word("engine"))
    except UsageError as error:
        raise top.fault("engine", f"{error.message} ({error.cause})", hint=error.hint) from error


def _serving(top: Reader) -> dict[str, str | int]:
    stated: dict[str, str | int] = {}
    for key in SERVING:
        if not top.has(key) or (key == "hardware" and not isinstance(top.table[key], str)):
            continue
        is_count = key in ("tp", "instances")
        stated[key] = top.whole(key, least=1) if is_count else top.document.beside(top.word(key))
    return stated


def _topology(top: Reader) -> Document | None:
    """Named, or written out in the scenario."""
    value = top.table.get("topology")
    if value is None:
        return None
    if isinstance(value, str):
        return load_topology(top.document.beside(value))
    document = top.document
    return replace(
        document,
        name=f"{document.name} topology",
        table=top.section("topology").table,
        prefix=("topology",),
    )


def _fields(top: Reader) -> dict[str, object]:
    """The fields of `Scenario`, also those that are tables of their own."""
    stated = read_fields(top, SCENARIO_KEYS)
    if top.has("isolation"):
        stated["isolation"] = _spec(top.section("isolation"), IsolationSpec)
    if top.has("throttle"):
        throttles = (_spec(row, ThrottleSpec, link_id="link") for row in top.rows("throttle"))
        stated["throttles"] = tuple(throttles)
    if top.has("handoff"):
        shorter = {"out_link_ids": "out_links", "in_link_ids": "in_links"}
        stated["handoff"] = _spec(top.section("handoff"), HandoffSpec, **shorter)
    return stated


def _spec(reader: Reader, spec: type[Spec], **renamed: str) -> Spec:
    """A small table as its dataclass; a field may stand under a shorter key."""
    found = keys_of(spec)
    keys = {renamed.get(one.field, key): one for key, one in found.items()}
    reader.check(tuple(keys))
    stated = read_fields(reader, keys)
    try:
        return spec(**stated)
    except TypeError:
        absent = next(key for key, one in keys.items() if one.field not in stated)
        raise reader.fault(None, f"`{absent}` is missing") from None


def _tier(reader: Reader) -> TierPlan:
    reader.check(("path", "capacity", "capacity_blocks", "read", "write", *TIER_KEYS))
    if reader.has("capacity") and reader.has("capacity_blocks"):
        raise reader.fault("capacity_blocks", "`capacity` and `capacity_blocks` are both stated")
    return TierPlan(
        reader=reader,
        fields=read_fields(reader, TIER_KEYS),
        path=reader.word("path") if reader.has("path") else None,
        capacity_bytes=reader.quantity("capacity", parse_bytes) if reader.has("capacity") else None,
        capacity_blocks=reader.whole("capacity_blocks") if reader.has("capacity_blocks") else None,
        read=_stages(reader, "read"),
        write=_stages(reader, "write"),
    )


def _stages(reader: Reader, key: str) -> tuple[StageSpec, ...] | None:
    if not reader.has(key):
        return None
    stages = []
    for row in reader.rows(key):
        stated = {"latency_s": 0.0, **_stage(row)}
        stages.append(StageSpec(**stated))  # type: ignore[arg-type]
    return tuple(stages)


def _stage(row: Reader) -> dict[str, object]:
    keys = {"links" if key == "link_ids" else key: one for key, one in keys_of(StageSpec).items()}
    row.check(tuple(keys))
    for needed in ("kind", "links"):
        if not row.has(needed):
            raise row.fault(None, f"a stage needs `{needed}`")
    return read_fields(row, keys)


def _link(reader: Reader) -> Mapping[str, object]:
    reader.check(tuple(LINK_KEYS))
    return read_fields(reader, LINK_KEYS)


def find_tier(name: str, known: Mapping[str, object]) -> str:
    """The tier that a name of the chain means.

    Raises:
        UsageError: there is none, with close names.
    """
    if name in known:
        return name
    raise UsageError(
        "KVT-N011", f"the chain names no tier `{name}`", hint=f"the tiers are {', '.join(known)}"
    )
