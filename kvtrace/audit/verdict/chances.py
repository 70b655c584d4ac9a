"""What the money of a verdict rests on: its pool over its rival, and how sure that is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kvtrace.audit.money.build import Priced
from kvtrace.audit.money.pool_over_rival import Pair
from kvtrace.audit.slo.fleets import Fleets
from kvtrace.audit.uncertainty.design import ReplayedDesign
from kvtrace.audit.uncertainty.listing import as_record, ranked
from kvtrace.audit.uncertainty.prices import PriceModel
from kvtrace.audit.uncertainty.record import Spread, Uncertainty
from kvtrace.audit.uncertainty.resampled import Draws, pool_spreads, reuse_spread
from kvtrace.audit.uncertainty.sampled import sampled_uncertainty
from kvtrace.audit.uncertainty.sampling import Model
from kvtrace.audit.uncertainty.sessions import resampling_units
from kvtrace.audit.uncertainty.swings import Swing, swing
from kvtrace.audit.uncertainty.unknowns import Unknown
from kvtrace.audit.verdict.cases import Case, Chance, PoolCase
from kvtrace.audit.verdict.weighing import Weighing
from kvtrace.replay.result import ReplayResult
from kvtrace.schema.arrays import IntArray, RequestTrace

_QUICK: Final = (
    "Prices are exact arithmetic: each was moved alone to its ends. What replays depend on stayed "
    "where it is; `--depth full` replays it at sampled values and gives P10, P50, P90 and the "
    "chance that the pool pays"
)

_NONE_SAMPLED: Final = (
    "Prices are exact arithmetic: each was moved alone to its ends. The weighed pool could not be "
    "replayed at sampled values, so that nothing that replays depend on was sampled"
)
_OTHER_PAIR: Final = (
    "Prices are exact arithmetic: each was moved alone to its ends. The samples were replayed for "
    "another pool or rival than the verdict weighs in the end, and are left out"
)


@dataclass(frozen=True, slots=True)
class Weighed:
    """The pool that the verdict names, and what it is weighed against."""

    pool: PoolCase
    result: ReplayResult
    rival: ReplayResult
    trace: RequestTrace
    span_s: float


def build_uncertainty(
    case: Case,
    weighing: Weighing,
    *,
    conversation: IntArray | None,
    design: ReplayedDesign | None,
    seed: int,
    is_full: bool = False,
) -> Uncertainty | None:
    """How sure the money of the verdict is; null where no money a month is given."""
    weighed = _weighed(case, weighing)
    if weighed is None:
        return None
    draws = Draws(resampling_units(weighed.trace, conversation), seed)
    pool, against = weighed.pool, weighed.rival.scenario
    prices = PriceModel(
        pool.option_id,
        weighing.bills,
        weighing.worth,
        net_of=None if pool.net_of is None else against.option_id,
    )
    if design is not None and design.points and _is_of(design, weighed, weighing.fleets):
        model = Model(prices, design, design.span_s or weighed.span_s)
        found = sampled_uncertainty(
            model,
            rival=against.title,
            seed=seed,
            is_same_rival=design.rival_id == against.option_id,
        )
    else:
        note = _NONE_SAMPLED if is_full else _QUICK
        if design is not None:
            note = design.why_few or _OTHER_PAIR
        is_done = is_full or design is not None
        found = _from_ends(weighed, prices, draws, note, is_full=is_done)
    if weighing.window_reusable is not None:
        reuse = reuse_spread(draws, weighing.window_reusable, weighed.trace.prompt_tokens)
        found.spreads += [] if reuse is None else [reuse]
    return found


def _is_of(design: ReplayedDesign, weighed: Weighed, fleets: Fleets) -> bool:
    """The design samples the weighed pool, against its rival, or any of those that cost nothing:
    its claim is then over all of these.
    """
    pool, rival_id = weighed.pool, weighed.rival.scenario.option_id
    alike = fleets.rivals_of(pool.option_id) if pool.net_of is None else ()
    return design.option_id == pool.option_id and design.rival_id in (rival_id, *alike)


def chance_of(uncertainty: Uncertainty | None) -> Chance | None:
    """What the verdict asks of the samples; null: there are none."""
    if uncertainty is None or uncertainty.p_pays is None:
        return None
    known = [one for one in uncertainty.inputs if one.worth_usd_per_month]
    best = max(known, key=lambda one: (one.worth_usd_per_month or 0.0, one.id), default=None)
    return Chance(
        pays=uncertainty.p_pays,
        samples=uncertainty.samples,
        most_open="" if best is None else best.title,
    )


def pair_of(case: Case, option: str | None, money: Priced) -> Pair | None:
    """The pool that the verdict weighs, over the option that it is weighed against.

    Null without either, or where the log does not stand for a month.
    """
    pool = next((one for one in case.pools if one.option_id == option), None)
    if pool is None or pool.rival is None or not case.has_monthly_load:
        return None
    return Pair(
        option=pool.option_id,
        title=pool.title,
        rival=pool.rival.option_id,
        rival_title=pool.rival.title,
        saving=pool.saving,
        instances=pool.instances_saved,
        bills=money.bills,
        worth=money.worth,
        today=money.today,
    )


def _weighed(case: Case, weighing: Weighing) -> Weighed | None:
    pool, trace = case.best_pool, weighing.trace
    rival = None if pool is None else weighing.rival_of(pool)
    span_s = weighing.arrival_span_s
    if pool is None or rival is None or trace is None or not span_s:
        return None
    if not (case.has_monthly_load and pool.is_feasible):
        return None
    result = weighing.fleets.standings[pool.option_id].result
    return Weighed(pool, result, rival, trace, span_s)


def _from_ends(
    weighed: Weighed, prices: PriceModel, draws: Draws, note: str, *, is_full: bool
) -> Uncertainty:
    saved = weighed.pool.instances_saved
    swings = [_price_swing(prices, one, saved.value) for one in prices.unknowns]
    instances = _instances(weighed.pool, is_full=is_full)
    if instances is not None:
        swings.append(swing(instances, lambda value: prices.net(value, {})))
    net = prices.net(saved.value, {})
    return Uncertainty(
        option=weighed.pool.option_id,
        rival=weighed.rival.scenario.title,
        net_middle=net,
        spreads=[
            Spread(
                id="value_minus_cost_usd_per_month",
                title="monthly value less cost of the pool",
                unit="USD/month",
                middle=net,
                method="ends",
                says="not sampled: the ends of each input alone stand below",
            ),
            *pool_spreads(draws, weighed.result, weighed.rival, span_s=weighed.span_s),
        ],
        inputs=[as_record(one) for one in ranked(swings)],
        resampled=draws.units.unit,
        resampled_units=draws.units.count,
        seed=draws.seed,
        notes=[note],
    )


def _price_swing(prices: PriceModel, unknown: Unknown, instances: float) -> Swing:
    return swing(unknown, lambda value: prices.net(instances, {unknown.id: value}))


def _instances(pool: PoolCase, *, is_full: bool) -> Unknown | None:
    """What replays give back, as one input: its low is by the ends, its high the estimate.

    Nothing more is to be had where all was replayed already.
    """
    saved = pool.instances_saved
    if saved.low == saved.high:
        return None
    return Unknown(
        id="instances_saved",
        title="instances that the pool gives back",
        unit="instances",
        low=saved.low,
        value=saved.value,
        high=saved.high,
        distribution="triangular",
        kind="modelled",
        source="replays on fewer instances; the low at the ends of the constants, the high is the "
        "freed prefill time before rounding",
        settle="a calibration, or a smaller window for the samples"
        if is_full
        else "replays at sampled constants",
        line="kvtrace cost calibrate" if is_full else "--depth full",
    )
