"""How much of a profile an unlimited cache would catch, and how to make it a stated share."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Final

from kvtrace.errors import UsageError
from kvtrace.synth.generate import Session, sessions
from kvtrace.synth.profile import Profile

PILOT_REQUESTS: Final = 100_000
"""Requests that are drawn to measure a profile."""
_STEPS: Final = 14
TOLERANCE: Final = 0.002


class Pilot:
    """The first requests of a profile in an open loop, drawn once."""

    def __init__(self, profile: Profile, requests: int | None = None) -> None:
        limit = PILOT_REQUESTS if requests is None else min(requests, PILOT_REQUESTS)
        self._size = profile.block_size_tokens
        self._turns = list(islice(_turns(profile, endless=requests is not None), limit))

    def reuse_ratio(self, sharing: float) -> float:
        """Reusable / prompt tokens with an unlimited cache."""
        size = self._size
        shared_until: dict[str, int] = {}
        own_until: dict[int, int] = {}
        reusable = prompts = 0
        for session, turn in self._turns:
            texts = session.shared_texts(sharing)
            known = _reusable_blocks(session, texts, turn, size, shared_until, own_until)
            reusable += known * size
            prompts += session.turns[turn].prompt_tokens
        return reusable / prompts if prompts else 0.0

    def reach(self) -> tuple[float, float]:
        """The least and the most reuse that `sharing` can give."""
        return self.reuse_ratio(-1.0), self.reuse_ratio(1.0)


def _reusable_blocks(
    session: Session,
    texts: tuple[tuple[str, int], ...],
    turn: int,
    size: int,
    shared_until: dict[str, int],
    own_until: dict[int, int],
) -> int:
    """Leading blocks of a prompt that are known; afterwards all of its full blocks are."""
    full = session.turns[turn].prompt_tokens // size
    known, place, is_whole = 0, 0, True
    for name, tokens in texts:
        until = min(tokens // size, full)
        if until <= place:
            continue
        held = shared_until.get(name, 0)
        if is_whole:
            known = max(known, min(held, until))
            is_whole = known == until
        shared_until[name] = max(held, until)
        place = until
    if is_whole:
        known = max(known, min(own_until.get(session.number, 0), full))
    if turn + 1 == len(session.turns):
        own_until.pop(session.number, None)
    else:
        own_until[session.number] = full
    return known


def _turns(profile: Profile, *, endless: bool) -> Iterator[tuple[Session, int]]:
    """(session, turn) in order of open-loop arrival."""
    coming = sessions(profile, endless=endless)
    following = next(coming, None)
    due: list[tuple[int, int, int, Session]] = []
    while due or following is not None:
        while following is not None and (not due or following.start_ns <= due[0][0]):
            heapq.heappush(due, (following.start_ns, following.number, 0, following))
            following = next(coming, None)
        _, number, turn, session = heapq.heappop(due)
        yield session, turn
        if turn + 1 < len(session.turns):
            arrival_ns = session.turns[turn + 1].arrived_at_ns
            heapq.heappush(due, (arrival_ns, number, turn + 1, session))


def with_reuse(
    profile: Profile, target: float, requests: int | None = None, *, takes_nearest: bool = False
) -> Profile:
    """The profile with `sharing` such that an unlimited cache catches the share `target`.

    Lengths and arrivals stay: part of the first messages becomes shared text, or so many sessions
    get a shared prefix of their own. `takes_nearest`: the nearest share that can be had will do.

    Raises:
        UsageError: KVT-U062, the lengths do not allow it.
    """
    low, high = -1.0, 1.0
    pilot = Pilot(profile, requests)
    least, most = pilot.reach()
    if not least - TOLERANCE <= target <= most + TOLERANCE and not takes_nearest:
        raise UsageError(
            "KVT-U062",
            f"a reuse of {target:.1%} cannot be reached with these sessions",
            cause=f"with nothing shared it is {least:.1%}, with every first message shared"
            f" {most:.1%}",
            hint="change `turns`, `prefixes` or the lengths of the profile, or `reuse`",
        )
    for _ in range(_STEPS):
        middle = (low + high) / 2
        found = pilot.reuse_ratio(middle)
        if abs(found - target) <= TOLERANCE / 4:
            return _sharing(profile, middle)
        low, high = (middle, high) if found < target else (low, middle)
    return _sharing(profile, (low + high) / 2)


def _sharing(profile: Profile, share: float) -> Profile:
    workloads = tuple(replace(one, sharing=share) for one in profile.workloads)
    return replace(profile, workloads=workloads)
