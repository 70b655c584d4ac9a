"""From what replays said about fleets to the part of the record."""

from __future__ import annotations

from typing import Final

import msgspec

from kvtrace.audit.fleet.binding import resource_words
from kvtrace.audit.fleet.facts import FleetFacts, OptionFacts
from kvtrace.audit.fleet.record import Binding, FleetSizes, FleetView, Need
from kvtrace.audit.fleet.states import build_degraded
from kvtrace.audit.fleet.surrogate import check_surrogate
from kvtrace.audit.options.kinds import is_pool
from kvtrace.audit.slo.fleets import Fleets
from kvtrace.audit.slo.stated import slo_text
from kvtrace.audit.thresholds import BUSY_DAY
from kvtrace.cost.fleet import Fleet
from kvtrace.units import counted

_BY_STRENGTH: Final[tuple[Need, ...]] = ("replayed", "enough", "surrogate", "none")


def build_fleet_sizes(
    facts: FleetFacts | None, fleet: Fleet, fleets: Fleets, span_s: float | None
) -> FleetSizes | None:
    """Needs, views and limits of all options; null where nothing could be judged."""
    if facts is None:
        return None
    reference = facts.options[facts.reference]
    needs = [need for one in facts.options.values() for need in one.needs]
    return FleetSizes(
        slo=slo_text(fleet.slo),
        is_slo_stated=fleet.slo.is_stated,
        reference=fleets.standings[facts.reference].result.scenario.title,
        instances=fleet.instances,
        gpus_per_instance=fleet.gpus_per_instance,
        is_searched=facts.is_searched,
        requests=facts.requests,
        uncached_tokens=facts.uncached_tokens,
        covers_a_day=span_s is not None and span_s >= BUSY_DAY.value,
        peak_factor=None if fleet.peak_factor is None else fleet.peak_factor.value,
        within_today=reference.on_stated.within,
        needs=needs,
        binds=[_with_reserve(one, fleets) for one in facts.options.values()],
        views=[_view(facts, one, fleet) for one in facts.options.values()],
        surrogate=check_surrogate(needs, facts.reference),
        most_any_pool_saves=reference.free_prefill_saves,
        degraded=[
            build_degraded(one, fleets.saved(one.option_id), fleet) for one in facts.degraded
        ],
        degraded_most_replayed=facts.degraded_most_replayed,
    )


def _with_reserve(option: OptionFacts, fleets: Fleets) -> Binding:
    """What binds; the reserve does where more instances are kept for it than the option needs."""
    binding, need = option.binding, option.needs[0].instances
    if not is_pool(binding.option) or need is None:
        return binding
    reserve = fleets.reserve(binding.option)
    if reserve is not None and reserve <= need:
        return binding
    kept = f"more than {fleets.instances:,}" if reserve is None else f"{reserve:,}"
    why = (
        f"with the pool the SLO is kept on {counted(need, 'instance')}; while it is down it takes "
        f"{kept} to carry the load (replayed); {binding.why}"
    )
    return msgspec.structs.replace(binding, binds="redundancy", next=binding.binds, why=why)


def _view(facts: FleetFacts, option: OptionFacts, fleet: Fleet) -> FleetView:
    reference, need = facts.options[facts.reference], option.needs[0]
    whole = None
    if need.instances is not None and reference.needs[0].instances is not None:
        whole = reference.needs[0].instances - need.instances
    load = option.load_at_slo
    return FleetView(
        option=need.option,
        gpus=need.gpus,
        groups_saved=_groups_saved(reference.load_at_slo, load, fleet.instances),
        whole_groups_saved=whole,
        basis=_weaker(reference.needs[0].basis, need.basis),
        within=option.on_stated.within,
        requests=facts.requests,
        ttft_p99_s=option.on_stated.ttft_p99_s,
        load_at_slo=load,
        load_basis="none" if load is None else "replayed" if option.is_searched else "surrogate",
        reason="" if option is reference else _why_none(reference, option, whole),
    )


def _weaker(mine: Need, other: Need) -> Need:
    return max(mine, other, key=_BY_STRENGTH.index)


def _groups_saved(reference: float | None, load: float | None, instances: int) -> float | None:
    """Formula: n / load of the reference - n / load of the option, at equal SLO on n."""
    return instances / reference - instances / load if reference and load else None


def _why_none(reference: OptionFacts, option: OptionFacts, whole: int | None) -> str:
    """Why it saves no instance over the reference, for people; empty where it does."""
    need, own, binding = option.needs[0], option.binding, reference.binding
    if whole is None:
        return need.reason
    if whole > 0:
        return ""
    if reference.free_prefill_saves == 0:
        return "even if no prefill took any time, the reference would need as many instances"
    if binding.is_missed and binding.binds != "prefill":
        return (
            f"prefill does not bind: {resource_words(binding.binds)} does, and a hit frees prefill "
            "only"
        )
    if whole < 0 or not own.is_missed:
        return need.reason
    return f"it needs as many: {resource_words(own.binds)} binds on one less"
