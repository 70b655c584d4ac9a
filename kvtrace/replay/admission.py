"""The HBM of running requests: taken as they enter, filled as they compute or load, given back."""

from __future__ import annotations

from kvtrace.replay.chain import Run
from kvtrace.replay.preemption import Preemptor
from kvtrace.replay.scenario import Scenario
from kvtrace.replay.state import Instance, Requests


class Admission:
    """Who may enter an instance, and what it holds there."""

    def __init__(self, scenario: Scenario, requests: Requests) -> None:
        self._requests = requests
        self._most = scenario.running_requests
        table = requests.table
        self._atoms = table.atoms
        self._offset = table.offset
        self._blocks = table.request_blocks
        as_needed = scenario.kv_admission == "as_needed" and not scenario.idealised
        self.preemptor = Preemptor(requests, scenario) if as_needed else None
        """Where HBM is taken as it is needed."""
        self._entries = 0
        self.oversized = 0
        """Requests that were let in though no instance holds their KV."""

    def run_in_hbm(self, request: int, instance: Instance) -> Run:
        """The leading run of the request that HBM of the instance holds.

        What the batch has generated takes its room first: it may push out a part of the run.
        """
        if self.preemptor is not None:
            self.preemptor.take(instance)
        offset = self._offset
        return instance.hbm.extend(self._atoms, offset[request], 0, offset[request + 1])

    def admit(self, request: int, instance: Instance, run: Run) -> bool:
        """Take HBM for the KV of the request; False when there is no room now.

        A request that does not fit an instance on which nobody holds HBM never will: it is let in
        and counted.
        """
        if self._most and instance.holders >= self._most:
            return False
        requests = self._requests
        hbm = instance.hbm
        spare = 0
        if self.preemptor is not None:
            self.preemptor.take(instance)
            spare = instance.decode.size
        at, depth, blocks = run
        lo = self._offset[request]
        held = at + 1 if depth else at
        rest = self._blocks[request] - blocks
        room = rest * requests.block_tokens + requests.private[request]
        if not hbm.fits(room + spare, self._atoms, lo, held):
            if instance.holders or hbm.writes:
                return False
            self.oversized += 1
        hbm.pin(self._atoms, lo, held)
        hbm.reserve(room)
        instance.holders += 1
        requests.hold(request, run)
        self._entries += 1
        requests.entered[request] = self._entries
        if not requests.made[request]:
            requests.hbm_hit[request] = requests.tokens(request, blocks)
        return True

    def hold_loaded(self, request: int, instance: Instance, run: Run) -> None:
        """What was loaded is in HBM, pinned."""
        requests = self._requests
        at, depth, blocks = run
        hbm = instance.hbm
        hbm.reserved -= (blocks - requests.run[request]) * requests.block_tokens
        hbm.fill(self._atoms, requests.at[request], requests.held[request], at, depth)
        requests.hold(request, run)

    def extend_held(self, request: int, instance: Instance) -> None:
        """Use what others have put into HBM while the request waited with its load."""
        requests = self._requests
        start = requests.at[request]
        at, depth, gained = instance.hbm.extend(
            self._atoms, start, requests.depth[request], self._offset[request + 1]
        )
        if gained:
            held = at + 1 if depth else at
            blocks = requests.run[request] + gained
            instance.hbm.pin(self._atoms, requests.held[request], held)
            instance.hbm.reserved -= gained * requests.block_tokens
            before = requests.tokens(request, requests.run[request])
            requests.hbm_hit[request] += requests.tokens(request, blocks) - before
            requests.hold(request, (at, depth, blocks))

    def publish(self, request: int, instance: Instance) -> None:
        """The prompt's blocks are computed: usable in HBM from now on."""
        requests = self._requests
        end = self._offset[request + 1]
        rest = self._blocks[request] - requests.run[request]
        instance.hbm.reserved -= rest * requests.block_tokens
        instance.hbm.fill(self._atoms, requests.at[request], requests.held[request], end)
        requests.held[request] = end

    def leave(self, request: int, instance: Instance) -> None:
        """The request gives back what it holds."""
        requests = self._requests
        if self.preemptor is not None:
            self.preemptor.take(instance)
            self.preemptor.leave(request, instance)
        lo, held = self._offset[request], requests.held[request]
        room = requests.private[request]
        if requests.table.generates(request):
            self._keep_generated(request, instance, room)
            room = 0
        instance.hbm.let_go(self._atoms, lo, held, room)
        instance.holders -= 1

    def _keep_generated(self, request: int, instance: Instance, room: int) -> None:
        """The full blocks of its output stay, in the room that it held; they go before its prompt.

        A block counts once, however many requests generate it.
        """
        made = self._requests.count + request
        lo, end = self._offset[made], self._offset[made + 1]
        hbm = instance.hbm
        hbm.reserved -= room
        hbm.fill(self._atoms, lo, lo, end)
        hbm.let_go(self._atoms, lo, end, 0)
