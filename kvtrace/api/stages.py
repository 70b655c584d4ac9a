"""The stages that verbs are made of: ingest, model, query, and the record of what was asked."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from kvtrace import __version__
from kvtrace.api import policy_tables, pool_tables
from kvtrace.api.degraded import degraded_modes
from kvtrace.api.fleet_loads import PeakHour, replayed_windows
from kvtrace.api.fleet_sizes import size_fleets, with_ends
from kvtrace.api.logged import logged_requests
from kvtrace.api.mixes import with_mixes
from kvtrace.api.observed import with_observed
from kvtrace.api.opened import DATASET_FOLDER, whole_trace
from kvtrace.api.pool_tables import fleet_bytes
from kvtrace.api.replays import Replays, WindowRuns, accepted, ground_of, replay_options
from kvtrace.api.results import (
    IngestOutcome,
)
from kvtrace.api.setup import (
    Setup,
    choose_deployment,
    choose_fleet,
)
from kvtrace.api.sizing_params import sizing_params
from kvtrace.api.uncertainty import conversations_of, is_affordable, replay_design
from kvtrace.api.uncertainty_question import Asked
from kvtrace.audit.fleet.facts import FleetFacts
from kvtrace.audit.inputs import AuditInput
from kvtrace.audit.money.calendar import day_of, loads_per_day
from kvtrace.audit.sizing.value import reuse_value
from kvtrace.audit.sizing.worth import ReuseValue
from kvtrace.audit.tables.carried import is_carried
from kvtrace.audit.uncertainty.design import ReplayedDesign
from kvtrace.config import Settings
from kvtrace.cost.deployment import Deployment
from kvtrace.duckdb_session import Param
from kvtrace.errors import OutputError
from kvtrace.exec.progress import Progress
from kvtrace.ingest.mapping import Mapping, load_mapping
from kvtrace.ingest.pipeline import fingerprint, ingest_paths
from kvtrace.ingest.readfile import IngestSettings
from kvtrace.query.catalog import QueryResult, load_catalog
from kvtrace.replay.options.ground import Ground
from kvtrace.reuse.continuations import build_continuations
from kvtrace.reuse.facts import build_reuse_of
from kvtrace.reuse.stays import build_block_stays
from kvtrace.reuse.trace import order_requests
from kvtrace.schema.arrays import IntArray, RequestTrace
from kvtrace.schema.manifest import SCHEMA_VERSION, Manifest
from kvtrace.store.dataset import MANIFEST_NAME, Dataset, DatasetWriter, discard_output
from kvtrace.store.lock import OutputLock, load_or_create_salt, salt_from_text
from kvtrace.units import NS_PER_S

Inputs = Sequence[str | Path]
OBSERVED: Final = frozenset({"samples", "transfers", "block_events", "block_stays"})
"""Tables of what engines printed beside their requests; many logs have none."""


@dataclass(frozen=True, slots=True)
class Modelled:
    """What the models made of a dataset."""

    deployment: Deployment
    setup: Setup
    whole: RequestTrace | None
    """All requests that an instance accepts; null where the dataset has none with a length."""
    refused_requests: int
    """Longer than an instance can hold, so neither sized nor replayed."""
    replays: Replays
    fleet_facts: FleetFacts | None
    """The instances that each option needs."""
    every: RequestTrace | None
    """As `whole`, with the requests that were refused."""
    conversation: IntArray | None = None
    """(requests,) of the replayed ones: the conversation of each, -1: none; null: not known."""
    design: ReplayedDesign | None = None
    """The weighed pool and its rivals at sampled inputs (depth full)."""


def mapping_of(settings: Settings) -> Mapping | None:
    """The mapping that was given, read and checked.

    Raises:
        UsageError: it cannot be read or used.
    """
    path = settings.text("mapping")
    return None if path is None else load_mapping(path)


def ingest_into(
    inputs: Inputs, folder: Path, settings: Settings, watch: Progress, lock: OutputLock
) -> IngestOutcome:
    """Read logs into `folder`/dataset, or reuse the dataset that the same input made."""
    read_settings = IngestSettings(
        tz=settings.text("tz"),
        year=settings.integer("year"),
        block_size_tokens=settings.integer("block_size"),
        max_reject_rate=settings.number("max_reject_rate") or 0.0,
        allow_inert_pickle=settings.switch("allow_inert_pickle"),
        tokenizer=settings.text("tokenizer"),
        bytes_per_token=settings.number("bytes_per_token"),
        hash_prompts=settings.switch("hash_prompts"),
        mapping=mapping_of(settings),
    )
    given = settings.text("salt")
    salt = load_or_create_salt(folder) if given is None else salt_from_text(given)
    existing = _unchanged(folder / DATASET_FOLDER, fingerprint(inputs, read_settings))
    if existing is not None and given is None:
        watch.start("ingest")
        watch.finish("input unchanged, dataset reused")
        return IngestOutcome(existing, is_reused=True)
    read = ingest_paths(inputs, settings=read_settings, salt=salt, progress=watch)
    watch.start("reuse")
    ordered = order_requests(read.frames["requests"], read.frames["blocks"])
    facts = build_reuse_of(ordered, read.domains)
    turns = build_continuations(ordered, read.domains)
    stays = build_block_stays(read.frames["block_events"])
    watch.finish(
        f"{len(facts):,} facts" + (f", {len(stays):,} stays of blocks" if len(stays) else "")
    )
    with DatasetWriter(folder / DATASET_FOLDER, lock=lock) as writer:
        made = {"reuse": facts, "continuations": turns, "block_stays": stays}
        for name, frame in {**read.frames, **made}.items():
            writer.write_table(name, frame)
        manifest = Manifest(
            schema_version=SCHEMA_VERSION,
            kvtrace_version=__version__,
            settings=read_settings.described(),
            inputs_fingerprint=read.fingerprint,
            files=read.files,
            sources=read.sources,
            domains=read.domains,
            totals=read.totals,
            tables={},
            digest=read.digest,
        )
        committed = writer.commit(manifest)
    return IngestOutcome(Dataset(folder / DATASET_FOLDER, committed), is_reused=False)


def _unchanged(directory: Path, wanted: str) -> Dataset | None:
    """The dataset if it is whole and was made from exactly this input."""
    try:
        dataset = Dataset.open(directory)
    except OutputError:
        return None
    return dataset if dataset.manifest.inputs_fingerprint == wanted else None


def audit_input(
    dataset: Dataset,
    inputs: Inputs,
    settings: Settings,
    watch: Progress,
    lock: OutputLock | None = None,
    *,
    workers: int | None = None,
) -> AuditInput:
    """Everything that an audit of the dataset is made of; tables derived for it join the dataset.

    `lock` is that of the output folder, where the caller holds it; `workers` as for `model`.
    """
    modelled = model(dataset, settings, watch, workers=workers)
    replays, whole = modelled.replays, modelled.whole
    if modelled.every is not None and modelled.every.distinct_blocks:
        for derive in (pool_tables.derive_for_audit, policy_tables.derive_for_audit):
            dataset = derive(
                dataset,
                modelled.every,
                modelled.setup,
                watch,
                is_full=settings.text("depth") == "full",
                lock=lock,
            )
    watch.start("query")
    span_s = None if whole is None else _span_s(whole)
    value = reuse_value(whole, modelled.deployment, modelled.setup.fleet)
    queries = _run_queries(dataset, modelled.setup, value, span_s)
    watch.finish(f"{len(queries)} queries")
    return AuditInput(
        manifest=dataset.manifest,
        queries=queries,
        replays=replays.results,
        trace=replays.trace,
        whole_trace=whole,
        window_reusable_tokens=replays.window_reusable_tokens,
        warmup_requests=replays.history,
        fewer=replays.fewer,
        arbiter=replays.arbiter,
        ends=replays.ends,
        options=replays.options,
        absent_options=replays.catalogue.absent,
        options_left_to_full=replays.catalogue.left_to_full,
        mixes=replays.mixes,
        fleet_facts=modelled.fleet_facts,
        conversation=modelled.conversation,
        design=modelled.design,
        refused_requests=modelled.refused_requests,
        deployment=modelled.deployment,
        fleet=modelled.setup.fleet,
        settings=modelled.setup.settings,
        seed=settings.integer("seed") or 0,
        command=_command(inputs, settings),
        generated_at=_generated_at(),
        span_s=span_s,
        reuse_value=value,
        logged=logged_requests(dataset, replays.trace),
    )


def model(
    dataset: Dataset, settings: Settings, watch: Progress, *, workers: int | None = None
) -> Modelled:
    """Choose deployment and fleet, and replay the options on the peak hour (depth full: on all).

    `workers` processes replay; None: as many as are worth their start.
    """
    manifest = dataset.manifest
    deployment, settings = choose_deployment(settings, manifest)
    every = whole_trace(dataset)
    whole, refused = (None, 0) if every is None else accepted(every, deployment)
    setup = with_observed(choose_fleet(settings, deployment, whole, manifest), dataset)
    is_full = settings.text("depth") == "full"
    if whole is None or not whole.requests:
        return Modelled(deployment, setup, whole, refused, Replays(), None, every)
    stated = (deployment, setup.fleet)
    seed = settings.integer("seed") or 0
    windowed, peak = replayed_windows(whole, dataset, stated, is_full=is_full, seed=seed)
    ground = ground_of(windowed, deployment, setup.fleet)
    with WindowRuns(windowed, watch, workers=workers) as run:
        replays = replay_options(run, ground, watch, is_full=is_full)
        replays = with_mixes(run, replays, ground, watch, is_full=is_full)
        facts = _sized(replays, peak, ground, run, watch, is_full=is_full, workers=workers)
        replays = with_ends(replays, facts, ground, run, watch)
        conversation = conversations_of(dataset, replays.trace)
        design = None
        if is_full:
            asked = _asked(replays, facts, setup, dataset.manifest, whole)
            asked = replace(asked, conversation=conversation)
            design = _designed(asked, peak, dataset, run, watch, seed=seed, workers=workers)
    return Modelled(deployment, setup, whole, refused, replays, facts, every, conversation, design)


def _asked(
    replays: Replays,
    facts: FleetFacts | None,
    setup: Setup,
    manifest: Manifest,
    whole: RequestTrace,
) -> Asked:
    """With what the bills of the verdict rest on: the day, and how often a day the load comes."""
    headline = next((one for one in manifest.sources if one.role == "headline"), None)
    today = day_of(whole, None if headline is None else headline.clock)
    if today is None and (made := _generated_at()) is not None:
        today = datetime.fromisoformat(made).date()
    window = replays.trace
    loads = None
    if window is not None:
        of_load = int(window.prompt_tokens.sum())
        loads = loads_per_day(manifest.totals.prompt_tokens, of_load, _span_s(whole))
    return Asked(
        replays,
        facts,
        setup.deployment,
        setup.fleet,
        None,
        today=today,
        windows_per_day=loads,
        whole=whole,
    )


def _sized(
    replays: Replays,
    peak: PeakHour,
    stated: Ground,
    run: WindowRuns,
    watch: Progress,
    *,
    is_full: bool,
    workers: int | None,
) -> FleetFacts | None:
    """The fleets of the options, on the peak hour where the options were replayed on more."""
    if run.windowed.trace is not peak.windowed.trace:
        with WindowRuns(peak.windowed, watch, workers=workers) as on_peak:
            return _sized(replays, peak, stated, on_peak, watch, is_full=is_full, workers=workers)
    facts = size_fleets(replays, peak, stated, run, watch, is_full=is_full)
    return facts and degraded_modes(facts, replays, peak, stated, run, watch)


def _designed(
    asked: Asked,
    peak: PeakHour,
    dataset: Dataset,
    run: WindowRuns,
    watch: Progress,
    *,
    seed: int,
    workers: int | None,
) -> ReplayedDesign | None:
    """Replays at sampled inputs, on the peak hour where those of everything are too many."""
    if is_affordable(asked, run.windowed) or run.windowed.trace is peak.windowed.trace:
        return replay_design(asked, run, seed, watch)
    hour = replace(
        asked,
        conversation=conversations_of(dataset, peak.windowed.window),
        where="the busiest hour",
    )
    with WindowRuns(peak.windowed, watch, workers=workers) as on_peak:
        return replay_design(hour, on_peak, seed, watch)


def _span_s(trace: RequestTrace) -> float | None:
    if not trace.has_clock or trace.requests < 2:
        return None
    return float(trace.arrived_at_ns[-1] - trace.arrived_at_ns[0]) / NS_PER_S


def has_data(manifest: Manifest, reads: Sequence[str]) -> bool:
    """Whether a query finds anything: one over what was observed gives no row of nothing."""
    if not OBSERVED.issuperset(reads):
        return True
    return any(part.rows for table in reads for part in manifest.tables.get(table, ()))


def _run_queries(
    dataset: Dataset, setup: Setup, value: ReuseValue | None, span_s: float | None
) -> dict[str, QueryResult]:
    catalog = load_catalog()
    known = _known_params(dataset.manifest, setup)
    known |= sizing_params(setup.deployment, setup.fleet, value, span_s, known)
    results = {}
    with dataset.session() as session:
        for name in filter(is_carried, catalog.names()):
            if not has_data(dataset.manifest, catalog.describe(name).reads):
                results[name] = catalog.without_rows(name)
                continue
            wanted = {param.name for param in catalog.describe(name).params}
            params = {name: value for name, value in known.items() if name in wanted}
            results[name] = catalog.run(session, name, params)
    return results


def _known_params(manifest: Manifest, setup: Setup) -> dict[str, Param]:
    """Of what queries ask for, what is known; sizes of tiers are of one copy of the KV."""
    deployment, fleet = setup.deployment, setup.fleet
    block_tokens = manifest.totals.block_size_tokens

    def all_instances(size: float) -> float:
        return fleet_bytes(
            size, deployment, instances=fleet.instances, block_tokens=block_tokens or 1
        )

    known: dict[str, Param] = {
        "block_size_tokens": block_tokens,
        "kv_bytes_per_token": deployment.kv_bytes_per_token_unreplicated,
        "hbm_bytes": all_instances(deployment.hbm_cache_bytes),
        "dram_bytes": all_instances(fleet.dram_idle_bytes_per_instance.value),
        "pool_bytes": float(fleet.pool_dram_bytes.value),
    }
    return {name: value for name, value in known.items() if value}


@contextmanager
def claimed(folder: Path) -> Iterator[OutputLock]:
    """The output folder under its lock; a folder made for nothing is removed again."""
    is_new = not folder.exists()
    try:
        with OutputLock(folder) as lock:
            yield lock
    finally:
        if is_new and not (folder / DATASET_FOLDER / MANIFEST_NAME).exists():
            discard_output(folder)


def _command(inputs: Inputs, settings: Settings) -> str:
    """The command that gives this audit again; names without their folders."""
    words = ["kvtrace", "analyze", *(Path(one).name or str(one) for one in inputs)]
    for setting in settings.public():
        if setting.origin == "flag":
            flag = "--" + setting.name.replace("_", "-")
            value = setting.value
            shown = Path(value).name if isinstance(value, str) and "/" in value else value
            words += [flag, str(shown)]
    return " ".join(words)


def _generated_at() -> str | None:
    """From SOURCE_DATE_EPOCH; without it no time is recorded, so that reruns are equal."""
    text = os.environ.get("SOURCE_DATE_EPOCH", "")
    if not text.isdigit():
        return None
    return datetime.fromtimestamp(int(text), tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
