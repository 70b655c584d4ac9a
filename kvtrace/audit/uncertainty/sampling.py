"""Samples of the net value over all open inputs: scrambled Sobol sequences, replayed or fitted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from kvtrace.audit.thresholds import (
    FLEET_BUSY_SHARE,
    FLEET_BUSY_SHARE_HIGH,
    FLEET_BUSY_SHARE_LOW,
)
from kvtrace.audit.uncertainty.design import (
    ReplayedDesign,
    coordinates_of,
    sobol_shares,
    values_at,
)
from kvtrace.audit.uncertainty.predictor import (
    Predicted,
    PredictedClaim,
    claim_holds,
    predict_claim,
    predict_figure,
)
from kvtrace.audit.uncertainty.prices import PriceModel
from kvtrace.audit.uncertainty.unknowns import Unknown
from kvtrace.schema.arrays import FloatArray, IntArray

SCRAMBLES: Final = 8
"""Independent scrambles: their spread is the sampling error."""
POINTS: Final = 256
"""Of each scramble."""
_OTHERS: Final = 3
"""Dimensions beside prices and replayed inputs: sessions, busy share, the replayed point."""


@dataclass(frozen=True)
class Model:
    """The net value as a function of all open inputs."""

    prices: PriceModel
    design: ReplayedDesign
    span_s: float

    @cached_property
    def net_middle(self) -> float:
        """USD a month with every input at its value."""
        saved = self.design.instances * self.design.middle.is_claim_held
        return self.prices.net(saved, {})

    @cached_property
    def saved_usd(self) -> float:
        """USD a month that the claim's instances are worth."""
        return self.prices.net(self.design.instances, {}) - self.prices.net(0.0, {})

    @cached_property
    def claim(self) -> PredictedClaim:
        """Whether instances are saved, anywhere."""
        return predict_claim(self.design, self.saved_usd, self.net_middle)

    @cached_property
    def net_unrounded_middle(self) -> float:
        """USD a month before rounding to whole instances, with every input at its value."""
        freed = max(self.design.middle.freed_s, 0.0) / self.span_s / FLEET_BUSY_SHARE.value
        return self.prices.net(min(freed, self.prices.fleet.instances), {})

    @cached_property
    def freed(self) -> Predicted:
        """Instance-seconds freed, anywhere; the carrying number is the money that they are worth.

        Formula: carrying seconds = net value / (USD of an instance / span / busy share).
        """
        usd_per_s = self._instance_usd / self.span_s / FLEET_BUSY_SHARE.value
        carrying = self.net_unrounded_middle / usd_per_s if usd_per_s else 0.0
        return predict_figure(self.design, lambda r: r.freed_s, carrying)

    @property
    def _instance_usd(self) -> float:
        return self.prices.net(1.0, {}) - self.prices.net(0.0, {})

    @cached_property
    def extra(self) -> Predicted:
        """Hit tokens beyond the rival, anywhere."""
        middle = self.design.middle.extra_hit_tokens
        return predict_figure(self.design, lambda r: r.extra_hit_tokens, middle)

    @cached_property
    def move(self) -> Predicted | None:
        """Move over recompute, anywhere; null where a point loads nothing."""
        middle = self.design.middle.move_over_recompute
        if not middle or not all(r.move_over_recompute for r in self.design.replayed):
            return None
        return predict_figure(
            self.design, lambda r: r.move_over_recompute or 0.0, middle, is_log=True
        )

    @property
    def is_direct(self) -> bool:
        """Inputs are those of the replayed points, for no fit of the claim is good enough."""
        has_inputs = self.design.claim is not None and bool(self.design.unknowns)
        return has_inputs and not self.claim.is_surrogate


@dataclass(frozen=True, slots=True)
class Samples:
    """(scrambles, points) each."""

    net: FloatArray
    """USD a month, whole instances."""
    net_unrounded: FloatArray
    """USD a month, freed time before rounding to whole instances."""
    extra: FloatArray
    move: FloatArray | None
    inputs: Mapping[str, FloatArray]
    """By id: values, or the session shift."""
    point: IntArray
    """The replayed point that each rests on."""


def draw_samples(model: Model, seed: int) -> Samples:
    """The net value at sampled inputs; the same seed gives the same samples."""
    parts = [_scramble(model, seed, number) for number in range(SCRAMBLES)]
    return Samples(
        net=np.stack([part.net for part in parts]),
        net_unrounded=np.stack([part.net_unrounded for part in parts]),
        extra=np.stack([part.extra for part in parts]),
        move=_stacked([part.move for part in parts]),
        inputs={name: np.stack([part.inputs[name] for part in parts]) for name in parts[0].inputs},
        point=np.stack([part.point for part in parts]),
    )


def _stacked(parts: list[FloatArray | None]) -> FloatArray | None:
    known = [part for part in parts if part is not None]
    return np.stack(known) if len(known) == len(parts) else None


def _scramble(model: Model, seed: int, number: int) -> Samples:
    design = model.design
    prices, replayed = model.prices.unknowns, design.unknowns
    width = len(prices) + len(replayed)
    shares = sobol_shares(width + _OTHERS, POINTS, seed, number + 1)
    sessions, busy, place = shares[:, width], shares[:, width + 1], shares[:, width + 2]
    values = values_at(replayed, shares[:, len(prices) : width])
    point = np.minimum((place * len(design.points)).astype(np.int64), len(design.points) - 1)
    if model.is_direct:
        values = design.values[point]
    else:
        point = _nearest(design, values)
    where = coordinates_of(replayed, values)
    priced = values_at(prices, shares[:, : len(prices)])
    money = model.prices
    instance_usd, cost = _amounts(money, prices, priced)
    draw = _draws(design, sessions)
    instances = design.instances * _claim(model, where, point, draw)
    freed_s = model.freed.at(where, point) * _factor(design, "freed", draw)
    unrounded = np.maximum(freed_s, 0.0) / model.span_s / _busy_share().at(busy)
    most = float(money.fleet.instances)
    return Samples(
        net=money.given_back(instances) * instance_usd - cost,
        net_unrounded=money.given_back(np.minimum(unrounded, most)) * instance_usd - cost,
        extra=model.extra.at(where, point) * _factor(design, "extra", draw),
        move=None if model.move is None else model.move.at(where, point),
        inputs={
            **{one.id: priced[:, i] for i, one in enumerate(prices)},
            **{one.id: values[:, i] for i, one in enumerate(replayed)},
            **_session_input(design, draw),
        },
        point=point,
    )


def _amounts(
    model: PriceModel, unknowns: tuple[Unknown, ...], priced: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """(n,) USD a month of one instance, and of the option."""
    names = [one.id for one in unknowns]
    rows = [model.amounts(dict(zip(names, row, strict=True))) for row in priced.tolist()]
    both = np.array(rows, dtype=np.float64)
    return both[:, 0], both[:, 1]


def _nearest(design: ReplayedDesign, values: FloatArray) -> IntArray:
    """(n,) the drawn point that is nearest to each sample."""
    mine = coordinates_of(design.unknowns, values)
    theirs = coordinates_of(design.unknowns, design.values)
    far = np.square(mine[:, None, :] - theirs[None, :, :]).sum(axis=2)
    return np.asarray(far.argmin(axis=1), dtype=np.int64)


def _draws(design: ReplayedDesign, shares: FloatArray) -> IntArray | None:
    if design.shifts is None:
        return None
    count = len(design.shifts.freed)
    return np.minimum((shares * count).astype(np.int64), count - 1)


def _claim(model: Model, where: FloatArray, point: IntArray, draw: IntArray | None) -> FloatArray:
    margins = model.claim.margins(where, point)
    shifts = model.design.shifts
    if draw is not None and shifts is not None and margins.shape[1]:
        margins = margins + shifts.margins[draw]
    return claim_holds(margins).astype(np.float64)


def _factor(design: ReplayedDesign, name: str, draw: IntArray | None) -> FloatArray | float:
    if draw is None or design.shifts is None:
        return 1.0
    return np.asarray(getattr(design.shifts, name)[draw], dtype=np.float64)


def _session_input(design: ReplayedDesign, draw: IntArray | None) -> dict[str, FloatArray]:
    """The shift that decides: of the pool's margin, else of the freed time."""
    if draw is None or design.shifts is None:
        return {}
    return {SESSIONS: session_shift(design)[draw]}


SESSIONS: Final = "sessions"
"""Id of the input that stands for which sessions were logged."""


def session_shift(design: ReplayedDesign) -> FloatArray:
    """(draws,) what drawing sessions again does to what decides; empty without draws."""
    shifts = design.shifts
    if shifts is None:
        return np.zeros(0)
    return np.exp(shifts.margins[:, 0]) if shifts.margins.shape[1] else shifts.freed


def _busy_share() -> Unknown:
    return Unknown(
        id=FLEET_BUSY_SHARE.id,
        title="share of its time for which the fleet is kept busy",
        unit="ratio",
        low=FLEET_BUSY_SHARE_LOW.value,
        value=FLEET_BUSY_SHARE.value,
        high=FLEET_BUSY_SHARE_HIGH.value,
        distribution="triangular",
        kind="assumed",
        source=FLEET_BUSY_SHARE.source,
    )
