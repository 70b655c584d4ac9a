"""Prefill and decode on different instances: a prompt's KV moves between them.

The prefill instance makes the first token. Then the request asks for room for prompt and output on
the decode instance that has most free; where none has enough it waits, first come first served, and
keeps its KV where it is. The whole prompt moves, whatever of it came from a cache; when it is there
the prefill instance gives its room back, and the request joins the batch of its decode instance.
Decode instances keep no cache.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from kvtrace.replay.moves import Agenda, Move, Mover
from kvtrace.replay.scenario import Scenario
from kvtrace.replay.state import Instance, Requests
from kvtrace.replay.topology import Topology

Leave = Callable[[int, Instance], None]
"""The request gives its room on the instance back."""
Settle = Callable[[Instance, float], None]


class Handoff:
    """Brings prompts from the prefill instances to the decode instances."""

    def __init__(
        self,
        scenario: Scenario,
        requests: Requests,
        topology: Topology,
        agenda: Agenda,
        *,
        mover: Mover,
        instances: Sequence[Instance],
        leave: Leave,
        settle: Settle,
    ) -> None:
        self._requests = requests
        self._ways = topology.handoffs
        self._agenda = agenda
        self._mover = mover
        self._kv_bytes = scenario.kv_bytes_per_token
        self._most = scenario.running_requests
        self._decoders = instances[scenario.prefill_instances :]
        self._leave = leave
        self._settle = settle
        self._waiting: deque[tuple[int, Instance]] = deque()
        """(request, its prefill instance) that find no room."""

    def begin(self, request: int, sender: Instance, now: float) -> None:
        """The prompt is computed on `sender`."""
        self._waiting.append((request, sender))
        self._send_waiting(now)

    def end(self, request: int, taker: Instance, now: float) -> None:
        """The request has its last token: its room is free for others."""
        taker.hbm.reserved -= self._tokens(request)
        taker.holders -= 1
        self._send_waiting(now)

    def _tokens(self, request: int) -> int:
        """Tokens of KV that the request takes on its decode instance."""
        return self._requests.prompt[request] + self._requests.output[request]

    def _send_waiting(self, now: float) -> None:
        """Begin the moves of those that find room, in order."""
        waiting = self._waiting
        while waiting:
            request, sender = waiting[0]
            taker = self._room_for(request)
            if taker is None:
                return
            waiting.popleft()
            taker.hbm.reserved += self._tokens(request)
            taker.holders += 1
            way = self._ways[sender.index, taker.index]
            size = self._requests.prompt[request] * self._kv_bytes
            done = partial(self._arrive, request, sender, taker)
            move = Move(request, [(way, size)], done, is_write=False, is_booked=False)
            self._agenda.add(now, partial(self._mover.go, move))

    def _room_for(self, request: int) -> Instance | None:
        """The decode instance with most room, of equals the first; None: it has too little.

        On an instance that serves nobody there is room for everything.
        """
        most = self._most
        free = [one for one in self._decoders if not most or one.holders < most]
        taker = min(free, key=lambda one: (one.hbm.reserved, one.index), default=None)
        if taker is None or not taker.holders:
            return taker
        room = taker.hbm.capacity_tokens - taker.hbm.reserved
        return taker if room >= self._tokens(request) else None

    def _arrive(self, request: int, sender: Instance, taker: Instance, now: float) -> None:
        """The KV is on the decode instance."""
        requests = self._requests
        requests.handoff_s[request] = now - requests.first_token_s[request]
        self._leave(request, sender)
        self._settle(sender, now)
        taker.decode.serve(now)
        steps = requests.output[request] - 1
        taker.decode.join(request, steps, requests.prompt[request] + requests.output[request] / 2)
        taker.is_dirty = True
        self._settle(taker, now)
