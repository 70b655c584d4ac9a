"""Replays at sampled inputs, as they come back: what the sampling of the net value starts from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from kvtrace.audit.slo.ends import Claim
from kvtrace.audit.uncertainty.sessions import Unit
from kvtrace.audit.uncertainty.unknowns import Unknown
from kvtrace.schema.arrays import FloatArray

_SOBOL: Final = 11
"""Names this stream of random numbers beside the others of the same seed."""


@dataclass(frozen=True, slots=True)
class Response:
    """What the replays at one point say of the pool against the best option without one."""

    margins: tuple[float, ...]
    """Of the claim's runs: the pool's, at most 0 where it keeps the SLO; then each rival's, above 0
    where it clearly misses it. Empty without a claim."""
    freed_s: float
    """Instance-seconds of prefill that the pool frees."""
    extra_hit_tokens: float
    move_over_recompute: float | None
    """Median over the loaded hits; null: nothing was loaded."""

    @property
    def is_claim_held(self) -> bool:
        """The pool keeps the SLO on fewer instances, and no rival does."""
        mine, *rivals = self.margins or (1.0,)
        return mine <= 0 and all(rival > 0 for rival in rivals)


@dataclass(frozen=True, slots=True)
class SessionShifts:
    """What drawing the sessions again does to the response at the middle; (draws,) each."""

    margins: FloatArray
    """(draws, runs) added to the margins; no column without a claim."""
    freed: FloatArray
    """Times the freed seconds."""
    extra: FloatArray
    """Times the extra hit tokens."""
    unit: Unit
    units: int


@dataclass(frozen=True, slots=True)
class Bracket:
    """Where the claim changes along one input, all others at their value, by bisection."""

    held: float
    """The value nearest to the change at which the claim holds as it does in the middle, …"""
    lost: float
    """… and the nearest one at which it does not."""
    probes: tuple[tuple[float, Response], ...]
    """Every value that was replayed on the way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedDesign:
    """Replays of the weighed pool and its rivals at the middle and at sampled inputs."""

    option_id: str
    rival_id: str
    claim: Claim | None
    """Asked at every point; null: no fleet with fewer instances can be asked."""
    instances: int
    """That the claim saves where it holds."""
    unknowns: tuple[Unknown, ...]
    """What differs from point to point."""
    values: FloatArray
    """(points, unknowns)"""
    middle: Response
    points: tuple[Response, ...]
    """At inputs that were drawn from their distributions."""
    ends: tuple[tuple[Response, Response], ...] = ()
    """By unknown: that one alone at its low and at its high; empty: not replayed."""
    brackets: Mapping[str, Bracket] = field(default_factory=dict)
    """By id, for inputs whose ends change the claim."""
    shifts: SessionShifts | None = None
    kept: tuple[str, ...] = ()
    """Inputs that stay at their value, with the reason, for people."""
    replays: int = 0
    why_few: str = ""
    """Why there are no points, for people."""
    span_s: float = 0.0
    """First to last arrival of the replayed window."""
    where: str = ""
    """What of the options' requests that window is, for people; empty: all."""

    @property
    def replayed(self) -> tuple[Response, ...]:
        """All of them: the drawn points, the middle, each end, and the steps of bisections."""
        ends = (one for pair in self.ends for one in pair)
        probes = (response for _, _, response in self._probes())
        return (*self.points, self.middle, *ends, *probes)

    @property
    def coordinates(self) -> FloatArray:
        """(replayed, unknowns) with low as -1 and high as +1."""
        middle = np.array([[one.value for one in self.unknowns]])
        rows = [self.values, middle]
        known = enumerate(self.unknowns[: len(self.ends)])
        ends = [(place, end) for place, one in known for end in (one.low, one.high)]
        for place, value in (*ends, *((place, value) for place, value, _ in self._probes())):
            moved = middle.copy()
            moved[0, place] = value
            rows.append(moved)
        return coordinates_of(self.unknowns, np.vstack(rows))

    def _probes(self) -> Iterator[tuple[int, float, Response]]:
        """Place of the input, its value, and what was replayed there."""
        for place, one in enumerate(self.unknowns):
            bracket = self.brackets.get(one.id)
            for value, response in () if bracket is None else bracket.probes:
                yield place, value, response


def coordinates_of(unknowns: Sequence[Unknown], values: FloatArray) -> FloatArray:
    """(n, unknowns) values with low as -1 and high as +1."""
    columns = [one.coordinate(values[:, i]) for i, one in enumerate(unknowns)]
    return np.column_stack(columns) if columns else np.zeros((len(values), 0))


def sobol_shares(dimensions: int, points: int, seed: int, scramble: int) -> FloatArray:
    """(points, dimensions) of a scrambled Sobol sequence in 0..1; `points` is a power of two."""
    from scipy.stats import qmc

    random = np.random.default_rng([seed, _SOBOL, scramble])
    sequence = qmc.Sobol(dimensions, scramble=True, rng=random)
    return np.asarray(sequence.random_base2(points.bit_length() - 1), dtype=np.float64)


def values_at(unknowns: Sequence[Unknown], shares: FloatArray) -> FloatArray:
    """(n, unknowns) values of the inputs at these shares of their distributions."""
    columns = [one.at(shares[:, i]) for i, one in enumerate(unknowns)]
    return np.column_stack(columns) if columns else np.zeros((len(shares), 0))
