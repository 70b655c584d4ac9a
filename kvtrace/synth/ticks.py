"""A clock that looks at the service every few seconds: what statistics lines and scrapes see."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kvtrace.synth.story import Served


@dataclass(frozen=True, slots=True)
class Tick:
    """One look at the service."""

    at_ns: int
    before_ns: int
    """The look before this one."""
    active: tuple[Served, ...]
    """Requests that arrived by now and whose last token came after the look before."""
    looked_up: tuple[Served, ...]
    """Requests that were scheduled since the look before, in that order."""
    finished: tuple[Served, ...]
    """Requests whose last token came since the look before."""

    @property
    def running(self) -> int:
        """Requests that the engine works on."""
        return sum(one.scheduled_at_ns <= self.at_ns < one.last_token_at_ns for one in self.active)

    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        return sum(one.queued_at_ns <= self.at_ns < one.scheduled_at_ns for one in self.active)

    def prompt_tokens(self) -> int:
        """Tokens of prompts whose first token came since the look before."""
        return sum(
            one.request.prompt_tokens
            for one in self.active
            if self.before_ns < one.first_token_at_ns <= self.at_ns
        )

    def generated_tokens(self) -> int:
        """Output tokens that came since the look before."""
        return sum(
            emitted_tokens(one, self.at_ns) - emitted_tokens(one, self.before_ns)
            for one in self.active
        )

    def held_blocks(self, block_size_tokens: int) -> int:
        """Blocks of the requests that the engine works on."""
        return sum(
            -(-(one.request.prompt_tokens + emitted_tokens(one, self.at_ns)) // block_size_tokens)
            for one in self.active
            if one.scheduled_at_ns <= self.at_ns < one.last_token_at_ns
        )


def emitted_tokens(one: Served, at_ns: int) -> int:
    """Output tokens written by `at_ns`, spread evenly between the first and the last."""
    if at_ns < one.first_token_at_ns:
        return 0
    if at_ns >= one.last_token_at_ns:
        return one.request.output_tokens
    share = (at_ns - one.first_token_at_ns) / (one.last_token_at_ns - one.first_token_at_ns)
    return 1 + int((one.request.output_tokens - 1) * share)


def ticks(served: Iterable[Served], interval_ns: int) -> Iterator[Tick]:
    """Looks at requests that come in order of arrival; the last is after all have finished."""
    coming = iter(served)
    following = next(coming, None)
    active: list[Served] = []
    at_ns = last_ns = 0
    while following is not None or at_ns < last_ns + interval_ns:
        before_ns, at_ns = at_ns, at_ns + interval_ns
        while following is not None and following.arrived_at_ns <= at_ns:
            active.append(following)
            last_ns = max(last_ns, following.last_token_at_ns)
            following = next(coming, None)
        active = [one for one in active if one.last_token_at_ns > before_ns]
        new = [one for one in active if before_ns < one.scheduled_at_ns <= at_ns]
        new += [one for one in active if before_ns == 0 and one.scheduled_at_ns == 0]
        yield Tick(
            at_ns=at_ns,
            before_ns=before_ns,
            active=tuple(active),
            looked_up=tuple(sorted(new, key=lambda one: (one.scheduled_at_ns, one.arrived_at_ns))),
            finished=tuple(one for one in active if one.last_token_at_ns <= at_ns),
        )
