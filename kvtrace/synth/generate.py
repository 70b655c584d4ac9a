"""Draws the sessions of a profile: who asks when, how long prompts are, which blocks they share.

Sessions come in order of their start, one after the other, so that a trace of any length takes the
memory of its open sessions.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import accumulate, count
from typing import Final

from kvtrace.synth.draws import STEPS, Draws, EvenDraws, Popularity, to_ns, zipf_weights
from kvtrace.synth.profile import Prefix, Profile, Rhythm, Workload

_LOTS: Final = 1 << 20
"""Streams from here on are for lots, so that lengths stay when `sharing` changes."""


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
    """Pause before this turn; for the first turn, 0."""
    prompt_tokens: int
    output_tokens: int
    block_ids: tuple[int, ...]
    """Prefix-chained ids, one a block; the last one stands for a partial block if any."""
    paused_from_arrival: bool = False
    """The pause counts from the arrival of the turn before, not from its last token."""
    shared_blocks: int | None = None
    """Leading blocks that other sessions may hold too; None: any of them."""


@dataclass(frozen=True, slots=True)
class SynthTrace:
    """A synthetic trace in order of open-loop arrival."""

    profile: Profile
    requests: tuple[SynthRequest, ...]


@dataclass(frozen=True, slots=True)
class Turn:
    """The numbers of one turn."""

    request_id: str
    arrived_at_ns: int
    think_ns: int
    prompt_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Session:
    """One session: its turns, and the shared text that it begins with."""

    number: int
    workload: Workload
    turns: tuple[Turn, ...]
    segments: tuple[tuple[str, int], ...]
    """(name, tokens up to its end) of the shared texts, each beginning with the one before."""
    own_tokens: int
    """Tokens of the first message, behind them."""
    lot: float
    """0 .. 1: which sessions share nothing, where `sharing` says that some do not."""

    @property
    def start_ns(self) -> int:
        """Arrival of the first turn."""
        return self.turns[0].arrived_at_ns

    def shared_texts(self, sharing: float) -> tuple[tuple[str, int], ...]:
        """The segments with so much `sharing` in force; see the workload."""
        if sharing < 0.0 and self.lot < -sharing:
            return ()
        if sharing > 0.0:
            name, tokens = self.segments[-1] if self.segments else (self.workload.name, 0)
            return (*self.segments, (f"{name} text", tokens + int(sharing * self.own_tokens)))
        return self.segments


@dataclass(slots=True)
class BlockNames:
    """Ids of blocks by what they hold: shared text, a session's own context, or a partial tail."""

    block_size_tokens: int
    _ids: Iterator[int] = field(default_factory=count)
    _shared: dict[str, list[int]] = field(default_factory=dict)

    def requests(self, session: Session) -> Iterator[SynthRequest]:
        """The turns of a session, one after the other, as they are asked for."""
        own: list[int] = []
        for number, turn in enumerate(session.turns):
            full, tail_tokens = divmod(turn.prompt_tokens, self.block_size_tokens)
            shared = self._shared_ids(session, full)
            own.extend(next(self._ids) for _ in range(full - len(shared) - len(own)))
            tail = (next(self._ids),) if tail_tokens else ()
            yield SynthRequest(
                request_id=turn.request_id,
                workload=session.workload.name,
                session=session.number,
                turn=number,
                arrived_at_ns=turn.arrived_at_ns,
                think_ns=turn.think_ns,
                prompt_tokens=turn.prompt_tokens,
                output_tokens=turn.output_tokens,
                block_ids=(*shared, *own, *tail),
                paused_from_arrival=session.workload.pause_from == "arrival",
                shared_blocks=len(shared),
            )

    def _shared_ids(self, session: Session, full: int) -> list[int]:
        ids: list[int] = []
        for name, tokens in session.shared_texts(session.workload.sharing):
            until = min(tokens // self.block_size_tokens, full)
            known = self._shared.setdefault(name, [])
            first = len(ids)
            known.extend(next(self._ids) for _ in range(until - first - len(known)))
            ids.extend(known[: max(until - first, 0)])
        return ids


def generate(profile: Profile) -> SynthTrace:
    """The whole trace of a profile in an open loop; equal profiles give equal traces."""
    names = BlockNames(profile.block_size_tokens)
    drafts = [one for session in sessions(profile) for one in names.requests(session)]
    ordered = sorted(drafts, key=lambda request: (request.arrived_at_ns, request.session))
    return SynthTrace(profile, tuple(ordered))


def sessions(profile: Profile, *, endless: bool = False) -> Iterator[Session]:
    """The sessions of a profile in order of their start; `endless`: workloads never end."""
    streams = []
    first_session = 0
    for stream, workload in enumerate(profile.workloads):
        draws = Draws(profile.seed, stream), Draws(profile.seed, _LOTS + stream)
        streams.append(_sessions_of(profile, workload, draws, first_session, endless))
        first_session += workload.sessions
    if not endless:
        yield from heapq.merge(*streams, key=lambda session: session.start_ns)
        return
    merged = heapq.merge(*streams, key=lambda session: session.start_ns)
    for number, session in enumerate(merged):  # the numbers of endless workloads would meet
        yield replace(session, number=number)


class _Roots:
    """The shared prefixes of a workload."""

    def __init__(self, workload: Workload, draws: Draws) -> None:
        self._name = workload.name
        if workload.prefixes:
            self._prefixes: tuple[Prefix, ...] = workload.prefixes
            weights = [prefix.weight for prefix in workload.prefixes]
            self._popularity = Popularity([*weights, workload.unshared_weight])
            self._is_even = False
            return
        roots = range(workload.shared_roots)
        tokens = [draws.tokens(workload.root_tokens) for _ in roots]
        weights = zipf_weights(workload.shared_roots, workload.root_zipf)
        self._prefixes = tuple(map(Prefix, tokens, weights))
        self._is_even = workload.root_zipf == 0.0
        self._popularity = Popularity(weights)

    def pick(self, draws: Draws) -> tuple[tuple[str, int], ...]:
        """The segments of one session's prefix, outermost first."""
        if not self._prefixes:
            return ()
        index = draws.below(len(self._prefixes)) if self._is_even else self._popularity.pick(draws)
        segments: list[tuple[str, int]] = []
        step: int | None = index if index < len(self._prefixes) else None
        while step is not None:
            prefix = self._prefixes[step]
            segments.append((prefix.text or f"{self._name} {step}", prefix.tokens))
            step = prefix.within
        return tuple(reversed(segments))


def _sessions_of(
    profile: Profile,
    workload: Workload,
    streams: tuple[Draws, Draws],
    first_session: int,
    endless: bool,
) -> Iterator[Session]:
    draws, lots = streams
    lengths = _Lengths(workload, draws, lots)
    roots = _Roots(workload, draws)
    is_cut = workload.cuts_at_end and not endless
    end_ns = to_ns(workload.start_s + workload.duration_s) if is_cut else None
    starts = _endless_starts_ns(workload, draws) if endless else _starts_ns(workload, draws)
    for offset, start_ns in enumerate(starts):
        segments = roots.pick(draws)
        turns = _turn_count(workload, draws, lengths)
        own = lengths.first.tokens(workload.first_tokens)
        first = own
        if workload.first_holds_prefix:
            own = max(first - (segments[-1][1] if segments else 0), 0)
        elif segments:
            first += segments[-1][1]
        lot = lots.uniform()
        drawn = _turns(profile, workload, lengths, (start_ns, end_ns), (first, turns))
        if drawn:
            yield Session(first_session + offset, workload, drawn, segments, own, lot)


class _Lengths:
    """Where the numbers of a session come from: plain draws, or draws that fill their range."""

    def __init__(self, workload: Workload, draws: Draws, lots: Draws) -> None:
        self.plain = draws
        steps: list[Draws | EvenDraws] = [draws] * len(STEPS)
        if workload.stratified:
            steps = [EvenDraws(lots, step) for step in STEPS]
        self.first, self.turns, self.grown, self.output = steps


def _turn_count(workload: Workload, draws: Draws, lengths: _Lengths) -> int:
    if workload.turns is not None:
        return min(lengths.turns.tokens(workload.turns), workload.turns_max)
    turns = draws.geometric(workload.turns_mean, workload.turns_max)
    return max(turns, workload.turns_min)


def _turns(
    profile: Profile,
    workload: Workload,
    lengths: _Lengths,
    span_ns: tuple[int, int | None],
    first: tuple[int, int],
) -> tuple[Turn, ...]:
    """The turns of a session that starts in a span, with (tokens of the first prompt, turns)."""
    arrived_at_ns, end_ns = span_ns
    context, turns = first
    think_ns = 0
    drawn: list[Turn] = []
    for _ in range(turns):
        if context > workload.context_max_tokens:
            break
        if end_ns is not None and arrived_at_ns >= end_ns:
            break
        output_tokens = lengths.output.tokens(workload.output_tokens)
        request_id = f"chatcmpl-{lengths.plain.hex_id()}"
        drawn.append(Turn(request_id, arrived_at_ns, think_ns, context, output_tokens))
        grown = lengths.grown.tokens(workload.turn_tokens)
        context += grown + (output_tokens if workload.keeps_replies else 0)
        think_ns = to_ns(lengths.plain.value(workload.think_s))
        reply_s = profile.nominal_reply_s if workload.pause_from == "reply" else 0.0
        arrived_at_ns += to_ns(reply_s) + think_ns
    return tuple(drawn)


def _starts_ns(workload: Workload, draws: Draws) -> list[int]:
    """Session starts in nanoseconds from the start of the trace, ascending."""
    sessions_ = workload.sessions
    if workload.arrivals == "even":
        positions = [(index + 0.5) / sessions_ for index in range(sessions_)]
    elif workload.arrivals == "poisson":
        positions = sorted(draws.uniform() for _ in range(sessions_))
    else:
        ends = list(accumulate(draws.gap(workload.cv) for _ in range(sessions_ + 1)))
        positions = [end / ends[-1] for end in ends[:-1]]
    if workload.rhythm is None:
        return [to_ns(workload.start_s + p * workload.duration_s) for p in positions]
    clock = _Clock(workload.rhythm, workload.duration_s)
    return [to_ns(workload.start_s + clock.at_s(position)) for position in positions]


def _endless_starts_ns(workload: Workload, draws: Draws) -> Iterator[int]:
    """Session starts at the same rate, for ever."""
    cv = {"even": 0.0, "poisson": 1.0}.get(workload.arrivals, workload.cv)
    clock = _Clock(workload.rhythm, workload.duration_s)
    position = -0.5 / workload.sessions if cv == 0.0 else 0.0
    while True:
        position += draws.gap(cv) / workload.sessions
        yield to_ns(workload.start_s + clock.at_s(position))


class _Clock:
    """Turns even progress through a workload into time, by its rhythm."""

    def __init__(self, rhythm: Rhythm | None, duration_s: float) -> None:
        rhythm = rhythm or Rhythm(weights=(1.0,), period_s=duration_s)
        self._weights = rhythm.weights
        self._period_s = rhythm.period_s
        self._part_s = rhythm.period_s / len(rhythm.weights)
        self._sums = [0.0, *accumulate(rhythm.weights)]
        self._load = self._load_until(duration_s)

    def _load_until(self, at_s: float) -> float:
        """Arrivals up to a time, in weights × parts of the period."""
        periods, rest_s = divmod(at_s, self._period_s)
        part = min(int(rest_s / self._part_s), len(self._weights) - 1)
        within = self._weights[part] * (rest_s / self._part_s - part)
        return periods * self._sums[-1] + self._sums[part] + within

    def at_s(self, position: float) -> float:
        """The time at which this share of the workload's sessions has started."""
        periods, rest = divmod(position * self._load, self._sums[-1])
        part = min(bisect_right(self._sums, rest), len(self._weights)) - 1
        weight = self._weights[part]
        inside = (rest - self._sums[part]) / weight if weight > 0.0 else 0.0
        return periods * self._period_s + (part + inside) * self._part_s
