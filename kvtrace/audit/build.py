"""From what was read, asked and replayed to the Audit record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from kvtrace.audit.assumptions import build_assumptions, from_constant
from kvtrace.audit.bounds import knows_flops
from kvtrace.audit.data import build_data
from kvtrace.audit.drilldown.build import build_drilldown
from kvtrace.audit.findings.check import Evidence, LinkRow, MoveRow
from kvtrace.audit.findings.link_rows import LinkSources, link_rows, links_table
from kvtrace.audit.findings.moves import move_rows, moves_table
from kvtrace.audit.findings.registry import find_all
from kvtrace.audit.findings.sampling import sampled_log, sampling_validity
from kvtrace.audit.fit.build import build_fits
from kvtrace.audit.fleet.build import build_fleet_sizes
from kvtrace.audit.fleet.record import FleetSizes
from kvtrace.audit.inputs import AuditInput
from kvtrace.audit.money.bills import build_bills
from kvtrace.audit.money.build import Priced, build_economics
from kvtrace.audit.money.calendar import last_day, windows_per_day
from kvtrace.audit.money.gpu_worth import gpu_worth, load_profile
from kvtrace.audit.money.pool_over_rival import Pair
from kvtrace.audit.money.record import Economics
from kvtrace.audit.options.frontier import build_frontier
from kvtrace.audit.options.table import Money, add_instances, build_options
from kvtrace.audit.record import (
    AUDIT_SCHEMA_VERSION,
    AbsentOption,
    AuditRecord,
    Data,
    Kv,
    NextMeasurement,
    Option,
    ReplayWindow,
    Reproduce,
    Reuse,
    Table,
    Validity,
    Verdict,
)
from kvtrace.audit.reuse_kv import build_kv_part, build_reuse_part
from kvtrace.audit.sharing.record import SharingScope
from kvtrace.audit.sharing.scopes import build_scopes
from kvtrace.audit.sizing.build import build_sizing
from kvtrace.audit.sizing.record import Sizing
from kvtrace.audit.slo.check import lookup_slack_s
from kvtrace.audit.slo.fleets import Fleets, build_fleets
from kvtrace.audit.tables.carried import build_tables
from kvtrace.audit.tables.measured import (
    Measured,
    build_measured_tables,
    measured_validity,
    tiers_below_hbm,
)
from kvtrace.audit.tables.modelled import build_modelled_tables
from kvtrace.audit.tables.tier_rates import kv_tables
from kvtrace.audit.tables.today import add_measured, today_validity
from kvtrace.audit.thresholds import MIN_SPAN
from kvtrace.audit.uncertainty.ranges import ratio
from kvtrace.audit.uncertainty.sensitivity import prefill_factor
from kvtrace.audit.verdict.carrying import carrying_numbers
from kvtrace.audit.verdict.cases import Case
from kvtrace.audit.verdict.chances import build_uncertainty, chance_of, pair_of
from kvtrace.audit.verdict.circumstances import Circumstances
from kvtrace.audit.verdict.context import binding_today, dominant_conversation, small_pieces
from kvtrace.audit.verdict.measurements import longer_window, reuse_measurement
from kvtrace.audit.verdict.rules import decide
from kvtrace.audit.verdict.shown import add_rivals, weighed_pools
from kvtrace.audit.verdict.weigh import build_case
from kvtrace.audit.verdict.weighing import Weighing, window_reusable
from kvtrace.audit.view import count, rows_of
from kvtrace.audit.what_if.build import build_what_if
from kvtrace.audit.what_if.record import WhatIf
from kvtrace.audit.window import (
    arrival_span_s,
    build_replay_window,
    deployment_validity,
    replay_validity,
)
from kvtrace.cost.deployment import Deployment
from kvtrace.errors import ModelError
from kvtrace.replay.result import ReplayResult
from kvtrace.replay.scenario import PrefillTime
from kvtrace.schema.arrays import IntArray
from kvtrace.units import NS_PER_S
from kvtrace.version import __version__


@dataclass(frozen=True, slots=True)
class _Basis:
    """What all parts of the record rest on."""

    data: Data
    reuse: Reuse
    kv: Kv
    window: ReplayWindow | None
    window_reusable: IntArray | None
    fleets: Fleets
    money: Priced
    options: list[Option]
    moves: list[MoveRow]
    links: list[LinkRow]
    sharing: list[SharingScope]


def build_audit(inputs: AuditInput) -> AuditRecord:
    """The record: all numbers that a report shows, and the verdict on them.

    Raises:
        ModelError: the replays are not of the given trace.
    """
    _check_replays(inputs)
    basis = _basis(inputs)
    data, deployment = basis.data, inputs.deployment
    measured = Measured(
        queries=inputs.queries,
        reuse=basis.reuse,
        options=basis.options,
        requests=None if basis.window is None else basis.window.requests,
        is_deployed_known=inputs.has_fleet_file,
    )
    data.validity.extend(_validity(inputs, basis, measured))
    prefill = _prefill(deployment) if inputs.is_serving_confirmed else None
    weighing = _weighing(inputs, basis)
    case = build_case(weighing)
    part = build_sizing(inputs, weighed_pools(case.pools), basis.window)
    add_rivals(basis.options, case.pools)
    fleets = _sizes(inputs, basis, measured)
    uncertainty = build_uncertainty(
        case,
        weighing,
        conversation=inputs.conversation,
        design=inputs.design,
        seed=inputs.seed,
        is_full=inputs.fleet_facts is not None and inputs.fleet_facts.is_searched,
    )
    case = replace(case, chance=chance_of(uncertainty))
    verdict = decide(case, carrying_numbers(case, weighing))
    tables = _tables(inputs, basis, measured, prefill) | part.tables
    return AuditRecord(
        schema_version=AUDIT_SCHEMA_VERSION,
        generated_at=inputs.generated_at,
        data=data,
        reuse=basis.reuse,
        kv=basis.kv,
        options=basis.options,
        verdict=verdict,
        findings=find_all(_evidence(inputs, basis, prefill)),
        assumptions=build_assumptions(inputs, basis.money.bills.prices),
        tables=tables,
        reproduce=_reproduce(inputs),
        replay_window=basis.window,
        absent_options=_absent(inputs),
        options_left_to_full=inputs.options_left_to_full,
        frontier=build_frontier(basis.options, inputs.mixes),
        fleets=fleets,
        economics=_economics(basis, pair_of(case, verdict.option, basis.money)),
        sharing=basis.sharing,
        sizing=part.sizing,
        uncertainty=uncertainty,
        what_if=_what_if(inputs, case, weighing, verdict, part.sizing, tables),
        drilldown=build_drilldown(
            inputs.trace, inputs.replays, inputs.logged, weighed=verdict.option
        ),
        fits=build_fits(
            inputs.trace, inputs.replays, inputs.logged, is_raised=inputs.fleet.is_raised
        ),
    )


def _economics(basis: _Basis, pair: Pair | None) -> Economics:
    return build_economics(
        basis.options,
        basis.money,
        pair,
        window=basis.window,
        windows_per_day=windows_per_day(basis.data, basis.window),
        as_quantity=from_constant,
    )


def _absent(inputs: AuditInput) -> list[AbsentOption]:
    """Options that cannot be replayed here."""
    return [
        AbsentOption(id=one.option_id, title=one.title, reason=one.reason)
        for one in inputs.absent_options
    ]


def _what_if(
    inputs: AuditInput,
    case: Case,
    weighing: Weighing,
    verdict: Verdict,
    sizing: Sizing,
    tables: Mapping[str, Table],
) -> WhatIf:
    """Of the pool that the verdict weighs."""
    return build_what_if(
        case,
        weighing,
        option=verdict.option,
        options=inputs.options,
        sizing=sizing,
        tables=tables,
    )


def _sizes(inputs: AuditInput, basis: _Basis, measured: Measured) -> FleetSizes | None:
    """The fleet of each option; its counts join the options, a doubt about today the data."""
    facts, span_s = inputs.fleet_facts, basis.data.span_s
    sizes = build_fleet_sizes(facts, inputs.fleet, basis.fleets, span_s)
    add_instances(basis.options, sizes)
    add_measured(sizes, measured)
    basis.data.validity.extend(today_validity(sizes))
    return sizes


def _validity(inputs: AuditInput, basis: _Basis, measured: Measured) -> Iterator[Validity]:
    """What the data and the replays can and cannot carry, beyond the data alone."""
    log = sampled_log(basis.data.sources, basis.data.notes)
    yield from sampling_validity(log, basis.reuse.reusable_ratio_tokens)
    yield from replay_validity(basis.window, inputs.replays, basis.reuse)
    yield from deployment_validity(inputs.deployment)
    yield from measured_validity(measured)


def _tables(
    inputs: AuditInput, basis: _Basis, measured: Measured, prefill: PrefillTime | None
) -> dict[str, Table]:
    """Of the queries, of the replays, and of what was measured beside what is modelled."""
    return (
        build_tables(inputs.queries)
        | build_modelled_tables(inputs.trace, inputs.replays, inputs.deployment)
        | kv_tables(inputs.deployment, inputs.trace, basis.fleets.today)
        | build_measured_tables(measured, prefill)
        | moves_table(basis.moves)
        | links_table(basis.links)
    )


def _basis(inputs: AuditInput) -> _Basis:
    data = build_data(inputs.manifest, span_s=_span_s(inputs), unconfirmed=inputs.unconfirmed)
    reuse = build_reuse_part(inputs.queries, data)
    reusable, fleets = _window_reusable(inputs, data), _fleets(inputs, arbiter=inputs.arbiter)
    window = build_replay_window(
        inputs.trace,
        inputs.replays,
        data,
        reuse,
        reusable=reusable,
        warmup_requests=inputs.warmup_requests,
        load_factor=1.0 if inputs.fleet.peak_factor is None else inputs.fleet.peak_factor.value,
    )
    kv = build_kv_part(
        inputs.queries,
        llm=inputs.deployment.llm.name,
        kv_dtype=inputs.deployment.kv_dtype,
        bytes_per_token=inputs.deployment.kv_bytes_per_token_unreplicated,
    )
    today = last_day(inputs.queries, data, inputs.generated_at, inputs.whole_trace)
    bills = build_bills(
        inputs.fleet,
        inputs.options,
        inputs.replays,
        windows_per_day=windows_per_day(data, window),
        today=today,
    )
    profile = load_profile(inputs.whole_trace or inputs.trace)
    priced = Priced(bills, gpu_worth(inputs.fleet, profile=profile, today=today), today)
    money = Money(
        fleets=_fleets(inputs, arbiter=()),
        fleet=inputs.fleet,
        bills=bills,
        worth=priced.worth,
        deployment=inputs.deployment,
        span_s=None if inputs.trace is None else arrival_span_s(inputs.trace),
        factor=prefill_factor(inputs.deployment),
        options={one.option_id: one for one in inputs.options},
        has_monthly_load=data.span_s is not None and data.span_s >= MIN_SPAN.value,
    )
    options = build_options(inputs.replays, inputs.fleet, money=money, arbiter=inputs.arbiter)
    return _Basis(
        data=data,
        reuse=reuse,
        kv=kv,
        window=window,
        window_reusable=reusable,
        fleets=fleets,
        money=priced,
        options=options,
        moves=_moves(inputs, data),
        links=link_rows(_link_sources(inputs)),
        sharing=build_scopes(inputs.queries, inputs.reuse_value),
    )


def _evidence(inputs: AuditInput, basis: _Basis, prefill: PrefillTime | None) -> Evidence:
    return Evidence(
        queries=inputs.queries,
        data=basis.data,
        reuse=basis.reuse,
        kv=basis.kv,
        options=basis.options,
        scenarios={result.scenario.option_id: result.scenario for result in inputs.replays},
        is_confirmed=not inputs.unconfirmed,
        window=basis.window,
        prefill=prefill,
        moves=basis.moves,
        links=basis.links,
        sharing=basis.sharing,
        results={result.scenario.option_id: result for result in inputs.replays},
        trace=inputs.trace,
        deployment=inputs.deployment,
        fleet=inputs.fleet,
        needs={one.scenario.option_id: one.need for one in inputs.options},
    )


def _link_sources(inputs: AuditInput) -> LinkSources:
    headline = next((s for s in inputs.manifest.sources if s.role == "headline"), None)
    return LinkSources(
        queries=inputs.queries,
        replays=inputs.replays,
        deployment=inputs.deployment,
        trace=inputs.trace,
        whole_trace=inputs.whole_trace,
        clock=None if headline is None else headline.clock,
    )


def _moves(inputs: AuditInput, data: Data) -> list[MoveRow]:
    return move_rows(
        inputs.queries,
        inputs.deployment,
        mean_prompt_tokens=ratio(data.prompt_tokens, _known_prompts(inputs)),
    )


def _known_prompts(inputs: AuditInput) -> int | None:
    """Headline requests of every status whose prompt length is known."""
    for row in rows_of(inputs.queries, "coverage/fields"):
        if row.get("field") == "prompt_tokens":
            return count(row, "known_requests")
    return None


def _window_reusable(inputs: AuditInput, data: Data) -> IntArray | None:
    served = data.requests_by_status.get("ok", data.requests) - inputs.refused_requests
    trace = inputs.trace
    return window_reusable(
        inputs.window_reusable_tokens,
        trace,
        whole=inputs.whole_trace,
        is_whole=trace is not None and trace.requests >= served,
    )


def _fleets(inputs: AuditInput, *, arbiter: Sequence[ReplayResult]) -> Fleets:
    """Where the options stand, by the better of their load decisions; without `arbiter` by one."""
    ids = [result.scenario.option_id for result in inputs.replays]
    return build_fleets(
        inputs.trace,
        inputs.replays,
        fewer=inputs.fewer,
        arbiter=arbiter,
        searched={} if inputs.fleet_facts is None else inputs.fleet_facts.at_slo,
        least={} if inputs.fleet_facts is None else inputs.fleet_facts.least,
        carried={} if inputs.fleet_facts is None else inputs.fleet_facts.carried,
        reserves={} if inputs.fleet_facts is None else inputs.fleet_facts.reserves,
        target=inputs.fleet.slo,
        spare=inputs.fleet.spare_count,
        slack_s={ident: lookup_slack_s(inputs.deployment, ident) for ident in ids},
        ends=inputs.ends,
        options=inputs.options,
    )


def _weighing(inputs: AuditInput, basis: _Basis) -> Weighing:
    facts = inputs.fleet_facts
    return Weighing(
        data=basis.data,
        reuse=basis.reuse,
        fleet=inputs.fleet,
        bills=basis.money.bills,
        worth=basis.money.worth,
        deployment=inputs.deployment,
        prefill=_prefill(inputs.deployment),
        options=basis.options,
        fleets=basis.fleets,
        trace=inputs.trace,
        whole_trace=inputs.whole_trace,
        window_reusable=basis.window_reusable,
        warmup_requests=inputs.warmup_requests,
        refused_requests=inputs.refused_requests,
        prompt_buckets=rows_of(inputs.queries, "reuse/by_prompt_bucket"),
        unconfirmed=inputs.unconfirmed,
        next_measurement=_next_measurement(inputs, basis.reuse),
        around=_circumstances(inputs),
        tiers_below_hbm=tiers_below_hbm(inputs.queries, basis.data),
        free_prefill_saves=None
        if facts is None
        else facts.options[facts.reference].free_prefill_saves,
    )


def _circumstances(inputs: AuditInput) -> Circumstances:
    facts = inputs.fleet_facts
    return Circumstances(
        dominant=dominant_conversation(inputs.queries),
        binds=binding_today(None if facts is None else facts.options[facts.reference].binding),
        pieces=small_pieces(inputs.deployment, inputs.replays),
    )


def _prefill(deployment: Deployment) -> PrefillTime | None:
    """Null where the FLOPs of the LLM are not published."""
    return deployment.prefill if knows_flops(deployment) else None


def _next_measurement(inputs: AuditInput, reuse: Reuse) -> NextMeasurement:
    if reuse.reusable_tokens is None:
        return reuse_measurement(inputs.manifest)
    return longer_window(inputs.manifest)


def _check_replays(inputs: AuditInput) -> None:
    expected = 0 if inputs.trace is None else inputs.trace.requests
    for result in (*inputs.replays, *inputs.fewer, *inputs.arbiter):
        if len(result.timeline.ttft_s) != expected:
            raise ModelError(
                "KVT-A010",
                f"the replay of {result.scenario.option_id} has "
                f"{len(result.timeline.ttft_s):,} requests, the trace {expected:,}",
                hint="give the audit the trace that was replayed",
            )
    given = inputs.window_reusable_tokens
    if given is not None and len(given) != expected:
        raise ModelError(
            "KVT-A010",
            f"reusable tokens of {len(given):,} requests, the trace has {expected:,}",
            hint="give the audit the trace that was replayed",
        )


def _span_s(inputs: AuditInput) -> float | None:
    """First to last arrival: as given, of the whole trace, or at least what the slices cover."""
    if inputs.span_s is not None:
        return inputs.span_s
    trace, totals = inputs.trace, inputs.manifest.totals
    is_whole = trace is not None and trace.requests == totals.requests_by_status.get("ok")
    if trace is not None and is_whole and (span_s := arrival_span_s(trace)) is not None:
        return span_s
    starts = [count(row, "slice_start_ns") for row in rows_of(inputs.queries, "coverage/over_time")]
    known = [start for start in starts if start is not None]
    return (max(known) - min(known)) / NS_PER_S if len(known) > 1 else None


def _reproduce(inputs: AuditInput) -> Reproduce:
    return Reproduce(
        command=inputs.command,
        kvtrace_version=__version__,
        settings={s.name: s.value for s in inputs.settings if s.name != "salt"},
        seed=inputs.seed,
        inputs={entry.path: entry.content_digest for entry in inputs.manifest.files},
        dataset_digest=inputs.manifest.digest,
    )
