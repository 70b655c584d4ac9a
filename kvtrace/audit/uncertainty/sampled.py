"""The uncertainty of a verdict from samples of all inputs: spreads, chance, swings, worth."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from kvtrace.audit.thresholds import P_PAYS, SURROGATE_ERROR
from kvtrace.audit.uncertainty.design import Response, coordinates_of
from kvtrace.audit.uncertainty.listing import as_record, ranked
from kvtrace.audit.uncertainty.predictor import Predicted, PredictedClaim, claim_holds
from kvtrace.audit.uncertainty.quantiles import (
    Estimate,
    estimate,
    few_points_error,
    quantile,
    share_above_zero,
)
from kvtrace.audit.uncertainty.record import Method, Spread, Uncertainty
from kvtrace.audit.uncertainty.sampling import (
    SESSIONS,
    Model,
    Samples,
    draw_samples,
    session_shift,
)
from kvtrace.audit.uncertainty.swings import Swing, replayed_swing, swing, switch_point
from kvtrace.audit.uncertainty.unknowns import Unknown
from kvtrace.audit.uncertainty.worth import (
    worth_by_points,
    worth_of_knowing,
    worth_of_knowing_all,
)
from kvtrace.schema.arrays import FloatArray

_Fit = Predicted | PredictedClaim
_OF_THE_RIVAL: Final = ("reusable_tokens_beyond_local", "value_minus_cost_unrounded_usd_per_month")
"""Left out where another option without a pool was sampled than the verdict weighs in the end."""
_NOTES: Final = (
    "A claim of saved instances that fails in a sample counts as none saved, though fewer might be",
    "Queues of a drawn set of sessions are those of the replay; only who is counted differs",
    "How many nodes and ports the pool has is a choice and stays as stated",
)


def sampled_uncertainty(
    model: Model, *, rival: str, seed: int, is_same_rival: bool = True
) -> Uncertainty:
    """P10, P50, P90, the chance that the pool pays, swings, switch points, value of information.

    `is_same_rival`: the sampled rival is the one that the verdict weighs, not another that costs
    nothing either.
    """
    design, samples = model.design, draw_samples(model, seed)
    pays = _chance(model, samples, seed)
    shifts = design.shifts
    return Uncertainty(
        option=design.option_id,
        rival=rival,
        net_middle=model.net_middle,
        p_pays=pays.value,
        p_pays_error=pays.error,
        threshold=P_PAYS.quantity(),
        spreads=[
            one
            for one in _spreads(model, samples, seed, rival)
            if is_same_rival or one.id not in _OF_THE_RIVAL
        ],
        inputs=[
            as_record(one, worth=_worth(model, samples, one.unknown.id, seed))
            for one in ranked(_swings(model))
        ],
        kept=list(design.kept),
        worth_of_all=worth_of_knowing_all(samples.net.ravel()),
        replays=design.replays,
        samples=samples.net.size,
        resampled=None if shifts is None else shifts.unit,
        resampled_units=0 if shifts is None else shifts.units,
        seed=seed,
        notes=list(_NOTES),
    )


def _chance(model: Model, samples: Samples, seed: int) -> Estimate:
    """Share of the samples that pay; its error is never less than few replayed points give."""
    point = samples.point if model.is_direct else None
    found = estimate(samples.net, share_above_zero, point=point, seed=seed)
    if not model.is_direct:
        return found
    least = few_points_error(found.value, len(model.design.points))
    return Estimate(found.value, max(found.error, least))


def _worth(model: Model, samples: Samples, ident: str, seed: int) -> Estimate | None:
    """What knowing an input is worth; its error is the spread over scrambles, or over the points
    where the inputs are those of few replayed points.
    """
    values = samples.inputs.get(ident)
    if values is None:
        return None
    names = [one.id for one in model.design.unknowns]
    if model.is_direct and ident in names:
        at_points = model.design.values[:, names.index(ident)]
        return Estimate(
            *worth_by_points(at_points, samples.net.ravel(), samples.point.ravel(), seed)
        )
    rows = [worth_of_knowing(x, net) for x, net in zip(values, samples.net, strict=True)]
    error = float(np.std(rows, ddof=1)) / math.sqrt(len(rows))
    return Estimate(worth_of_knowing(values.ravel(), samples.net.ravel()), error)


def _spreads(model: Model, samples: Samples, seed: int, rival: str) -> Iterator[Spread]:
    middle = model.design.middle
    rows: list[tuple[str, str, str, float | None, FloatArray | None, _Fit | None]] = [
        (
            "value_minus_cost_usd_per_month",
            "monthly value less cost of the pool",
            "USD/month",
            model.net_middle,
            samples.net,
            model.claim,
        ),
        (
            "value_minus_cost_unrounded_usd_per_month",
            "the same before rounding to whole instances, by freed prefill time",
            "USD/month",
            model.net_unrounded_middle,
            samples.net_unrounded,
            model.freed,
        ),
        (
            "reusable_tokens_beyond_local",
            f"tokens that the pool adds beyond {rival}",
            "tokens",
            middle.extra_hit_tokens,
            samples.extra,
            model.extra,
        ),
        (
            "move_over_recompute_at_median_hit",
            "move over recompute time, median loaded hit",
            "times",
            middle.move_over_recompute,
            samples.move,
            model.move,
        ),
    ]
    for ident, title, unit, value, drawn, fit in rows:
        if drawn is None or fit is None:
            continue
        is_fitted = _method(model, fit) != "direct" and not model.is_direct
        point = None if is_fitted else samples.point
        low, half, high = (
            estimate(drawn, quantile(share), point=point, seed=seed) for share in (0.1, 0.5, 0.9)
        )
        yield Spread(
            id=ident,
            title=title,
            unit=unit,
            middle=value,
            p10=low.value,
            p50=half.value,
            p90=high.value,
            p10_error=low.error,
            p90_error=high.error,
            method=_method(model, fit),
            left_out_error=_finite(fit.error),
            says=f"{_how(model, fit)}{_where(model)}",
        )


def _where(model: Model) -> str:
    """The part of the requests that was replayed, where it is not all."""
    return f"; on {model.design.where}" if model.design.where else ""


def _method(model: Model, fit: _Fit) -> Method:
    if not model.design.unknowns or (
        isinstance(fit, PredictedClaim) and model.design.claim is None
    ):
        return "exact"
    return "surrogate" if fit.is_surrogate else "direct"


def _finite(error: float | None) -> float | None:
    return error if error is not None and math.isfinite(error) else None


def _how(model: Model, fit: _Fit) -> str:
    """How a spread was come by, with the leave-one-out error."""
    design = model.design
    if isinstance(fit, PredictedClaim) and design.claim is None:
        return "prices alone: the fleet has no instance that could be given back"
    if not design.unknowns:
        return "prices and sessions alone: no other input changes the replays"
    points, all_points = len(design.points), len(design.replayed)
    limit = f"{100 * SURROGATE_ERROR.value:.0f} % of the carrying number"
    if fit.error is None:
        return f"{points} replayed points: too few for a fit"
    error = "without bound" if not math.isfinite(fit.error) else f"{100 * fit.error:.1f} %"
    if fit.is_surrogate:
        return (
            f"a fit to {all_points} replayed points; leave-one-out error {error} of the carrying "
            f"number (limit {limit})"
        )
    return (
        f"{points} replayed points themselves: a fit was refused, its leave-one-out error is "
        f"{error}, above {limit}"
    )


def _swings(model: Model) -> Iterator[Swing]:
    """Prices by arithmetic, what was replayed by its replays, sessions by their draws."""
    design, prices = model.design, model.prices
    saved = float(design.instances * design.middle.is_claim_held)
    for one in prices.unknowns:
        yield swing(one, _net_of_price(model, one.id, saved))
    for place, (one, ends) in enumerate(zip(design.unknowns, design.ends, strict=False)):
        low, high = (_net_of(model, response) for response in ends)
        bracket = design.brackets.get(one.id)
        found = replayed_swing(
            one,
            (low, model.net_middle, high),
            None if bracket is None else (bracket.held, bracket.lost),
        )
        yield found if model.is_direct else _with_fit(model, found, place)
    yield from _session_swing(model)


def _with_fit(model: Model, found: Swing, place: int) -> Swing:
    """The switch point of the fit, where the replays on both sides of it agree."""
    switch = switch_point(found.unknown, _net_of_input(model, place))
    if switch is None or found.between is None:
        return found
    low, high = found.between
    return replace(found, switch=switch) if low <= switch <= high else found


def _net_of(model: Model, response: Response) -> float:
    return model.prices.net(model.design.instances * response.is_claim_held, {})


def _net_of_price(model: Model, ident: str, saved: float) -> Callable[[float], float]:
    return lambda value: model.prices.net(saved, {ident: value})


def _net_of_input(model: Model, place: int) -> Callable[[float], float]:
    """By the fitted margins, all other inputs at their value."""
    design = model.design
    values = np.array([[one.value for one in design.unknowns]])

    def net(value: float) -> float:
        moved = values.copy()
        moved[0, place] = value
        margins = model.claim.margins(coordinates_of(design.unknowns, moved), np.zeros(1, int))
        return model.prices.net(design.instances * float(claim_holds(margins)[0]), {})

    return net


def _session_swing(model: Model) -> Iterator[Swing]:
    """The 5th and 95th percentile of the draws, in the order of what decides."""
    design = model.design
    shifts, decides = design.shifts, session_shift(design)
    if shifts is None or not len(decides):
        return
    ends = [round(share * (len(decides) - 1)) for share in (0.05, 0.95)]
    low, high = (float(decides[end]) for end in ends)
    if not low < high:
        return
    margins = np.array([design.middle.margins]) + shifts.margins[ends]
    nets = [model.prices.net(design.instances * float(held), {}) for held in claim_holds(margins)]
    unknown = Unknown(
        id=SESSIONS,
        title=_SESSION_TITLES[bool(shifts.margins.shape[1])],
        unit="times",
        low=low,
        value=min(max(1.0, low), high),
        high=high,
        distribution="resampled",
        kind="measured",
        source=f"{len(decides):,} draws of {shifts.units:,} {shifts.unit.replace('_', ' ')}, "
        "each as a whole",
        settle="a longer log of the same service",
        line="kvtrace analyze LONGER_LOG --depth full",
    )
    yield replayed_swing(unknown, (nets[0], model.net_middle, nets[1]))


_SESSION_TITLES: Final[Mapping[bool, str]] = {
    True: "which sessions were logged: the pool's worst latency against its limit, over the log's",
    False: "which sessions were logged: freed prefill time, over the log's",
}
