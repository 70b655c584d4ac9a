"""Draws the requests of a profile: who asks when, how long prompts are, which blocks they share.

Only uniform doubles of numpy's PCG64 are used, and every time and length is rounded to an integer
at once, so that a seed gives the same trace on every platform and numpy release.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from kvtrace.synth.profile import Profile, Spread, Workload
from kvtrace.units import NS_PER_S, NS_PER_US

_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True)
class SynthRequest:
    """One turn of one session."""

    request_id: str
    workload: str
    session: int
    turn: int
    arrived_at_ns: int
    """Arrival in an open loop, from the start of the trace; `story` closes the loop."""
    think_ns: int
    """Pause before this turn after the previous reply; for the first turn, 0."""
    prompt_tokens: int
    output_tokens: int
    block_ids: tuple[int, ...]
    """Prefix-chained ids, one a block; the last one stands for a partial block if any."""


@dataclass(frozen=True, slots=True)
class SynthTrace:
    """A synthetic trace in order of open-loop arrival."""

    profile: Profile
    requests: tuple[SynthRequest, ...]


def to_ns(seconds: float) -> int:
    """Seconds as nanoseconds, rounded to whole microseconds so that no last bit matters."""
    return round(seconds * (NS_PER_S // NS_PER_US)) * NS_PER_US


class _Draws:
    """Random draws by inversion of uniforms."""

    def __init__(self, seed: int, stream: int) -> None:
        sequence = np.random.SeedSequence(entropy=seed, spawn_key=(stream,))
        self._generator = np.random.Generator(np.random.PCG64(sequence))

    def uniform(self) -> float:
        return float(self._generator.random())

    def below(self, count: int) -> int:
        return min(int(self.uniform() * count), count - 1)

    def spread(self, spread: Spread) -> float:
        u = min(max(self.uniform(), 1e-12), 1.0 - 1e-12)
        value = spread.median * math.exp(spread.sigma * _NORMAL.inv_cdf(u))
        return min(max(value, spread.low), spread.high)

    def tokens(self, spread: Spread) -> int:
        return max(1, round(self.spread(spread)))

    def geometric(self, mean: float, high: int) -> int:
        """A count from 1 with this mean, cut at `high`."""
        if mean <= 1.0:
            return 1
        trials = math.log1p(-self.uniform()) / math.log1p(-1.0 / mean)
        return min(1 + int(trials), high)

    def hex_id(self) -> str:
        return "".join(f"{self.below(1 << 16):04x}" for _ in range(8))


def generate(profile: Profile) -> SynthTrace:
    """The trace of a profile; equal profiles give equal traces."""
    drafts: list[SynthRequest] = []
    names = _BlockNames(profile.block_size_tokens)
    first_session = 0
    for stream, workload in enumerate(profile.workloads):
        draws = _Draws(profile.seed, stream)
        drafts.extend(_workload_requests(profile, workload, draws, names, first_session))
        first_session += workload.sessions
    ordered = sorted(drafts, key=lambda request: (request.arrived_at_ns, request.session))
    return SynthTrace(profile, tuple(ordered))


class _BlockNames:
    """Ids of blocks by what they hold: shared root, a session's own context, or a partial tail."""

    def __init__(self, block_size_tokens: int) -> None:
        self.block_size_tokens = block_size_tokens
        self._ids: dict[tuple[str, int, int, int], int] = {}

    def _id(self, kind: str, owner: int, index: int, turn: int = 0) -> int:
        return self._ids.setdefault((kind, owner, index, turn), len(self._ids))

    def prompt(
        self,
        *,
        root: tuple[str, int],
        root_tokens: int,
        session: int,
        turn: int,
        prompt_tokens: int,
    ) -> tuple[int, ...]:
        """Ids of a prompt that is the root, then the session's append-only context."""
        full, tail_tokens = divmod(prompt_tokens, self.block_size_tokens)
        shared = min(root_tokens // self.block_size_tokens, full)
        ids = [self._id(f"root of {root[0]}", root[1], index) for index in range(shared)]
        ids.extend(self._id("own", session, index) for index in range(shared, full))
        if tail_tokens:
            ids.append(self._id("tail", session, full, turn))
        return tuple(ids)


def _workload_requests(
    profile: Profile, workload: Workload, draws: _Draws, names: _BlockNames, first_session: int
) -> Iterator[SynthRequest]:
    roots = [draws.tokens(workload.root_tokens) for _ in range(workload.shared_roots)]
    end_ns = to_ns(workload.start_s + workload.duration_s)
    for offset, start_ns in enumerate(_session_starts_ns(workload, draws)):
        session = first_session + offset
        root = draws.below(workload.shared_roots)
        turns = draws.geometric(workload.turns_mean, workload.turns_max)
        context = roots[root] + draws.tokens(workload.first_tokens)
        arrived_at_ns, think_ns = start_ns, 0
        for turn in range(turns):
            if context > workload.context_max_tokens or arrived_at_ns >= end_ns:
                break
            output_tokens = draws.tokens(workload.output_tokens)
            yield SynthRequest(
                request_id=f"chatcmpl-{draws.hex_id()}",
                workload=workload.name,
                session=session,
                turn=turn,
                arrived_at_ns=arrived_at_ns,
                think_ns=think_ns,
                prompt_tokens=context,
                output_tokens=output_tokens,
                block_ids=names.prompt(
                    root=(workload.name, root),
                    root_tokens=roots[root],
                    session=session,
                    turn=turn,
                    prompt_tokens=context,
                ),
            )
            context += output_tokens + draws.tokens(workload.turn_tokens)
            think_ns = to_ns(draws.spread(workload.think_s))
            arrived_at_ns += to_ns(profile.nominal_reply_s) + think_ns


def _session_starts_ns(workload: Workload, draws: _Draws) -> list[int]:
    """Session starts in nanoseconds from the start of the trace, ascending."""
    if workload.arrivals == "even":
        positions = [(index + 0.5) / workload.sessions for index in range(workload.sessions)]
    else:
        positions = sorted(draws.uniform() for _ in range(workload.sessions))
    return [to_ns(workload.start_s + position * workload.duration_s) for position in positions]
