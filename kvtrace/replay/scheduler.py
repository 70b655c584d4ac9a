"""What the instances of a replay do with the requests that have arrived: admit, load, step, decode.

See `kvtrace.replay.engine` for the rules.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from math import inf
from typing import Final

from kvtrace.replay.admission import Admission
from kvtrace.replay.chain import Chain, Part, Run
from kvtrace.replay.handoff import Handoff
from kvtrace.replay.loads import Loads
from kvtrace.replay.moves import Agenda, Mover
from kvtrace.replay.scenario import Scenario
from kvtrace.replay.state import Instance, Requests, Step
from kvtrace.replay.steps import step_time
from kvtrace.replay.topology import Topology
from kvtrace.replay.writes import IdealWrites

_READY: Final = 0
_AWAY: Final = 1
"""It loads."""
_BLOCKED: Final = 2
"""It finds no room in HBM."""
_LATER: Final = 3
"""It has to wait for the next step, and so does everybody behind it."""


class Scheduler:
    """The schedulers of all instances. Handlers take the time of their event; `settle` ends each.

    Wherever an instance may have become free, or its batch has changed, `settle` is to be called.
    """

    def __init__(
        self, scenario: Scenario, requests: Requests, topology: Topology, agenda: Agenda
    ) -> None:
        kv_bytes = scenario.kv_bytes_per_token
        self._requests = requests
        self._agenda = agenda
        self._kv_bytes = kv_bytes
        self._prefill_s = scenario.prefill.prefill_s
        steps = step_time(scenario)
        self._work_s = steps.work_s
        self._added_s = steps.added_s
        self._chunk = scenario.prefill_chunk_tokens
        self._shares_chunk = scenario.decode_in_chunk
        self._stages = scenario.stages
        self._admission = Admission(scenario, requests)
        self.admit = self._admission.admit
        self.run_in_hbm = self._admission.run_in_hbm
        self._preemptor = self._admission.preemptor
        self._count = requests.count
        self._queues_apart = scenario.queues_apart
        self.is_ideal = scenario.idealised
        self.is_sync = scenario.load_mode == "sync" and not scenario.idealised
        table = requests.table
        self._atoms = table.atoms
        self._offset = table.offset
        self._blocks = table.request_blocks
        self.tiers = topology.tiers
        self._takers = topology.takers
        self.mover = Mover(topology, requests, agenda, kv_bytes)
        self.chain = Chain(topology, requests, self.mover.net, scenario)
        self.loads = Loads(
            scenario,
            requests,
            topology,
            agenda,
            mover=self.mover,
            chain=self.chain,
            on_end=self._end_load,
        )
        self.begin_load = self.loads.begin
        self._stops_early = self.loads.is_stopped_early
        self.ideal_writes = (
            IdealWrites(topology, self.mover.fine) if self.mover.fine is not None else None
        )
        """Idealised: writes to tiers whose caches work block by block."""
        self.tier_hits = self.loads.tier_hits
        """(tiers, requests) tokens served."""
        self.asks_late = self.is_sync or scenario.prefetch == "off"
        """Tiers are not asked on arrival."""
        self.on_complete: Callable[[int, float], None] | None = None
        """Told of each request that has its last token, and when."""
        self.instances = [
            Instance(index, scenario, table, requests.block_tokens)
            for index in range(scenario.instances)
        ]
        self._connect(topology)
        self._handoff = self._handed_off(scenario, topology) if scenario.prefill_instances else None
        self._asks_again = self._is_asked_twice(scenario)
        self.busy_s = 0.0
        """Seconds in steps with prefill, and of sync loads."""

    def _is_asked_twice(self, scenario: Scenario) -> bool:
        is_scheduled = scenario.lookup_moment == "on_schedule" and not self.is_sync
        return is_scheduled and bool(self.tiers) and not self.is_ideal

    def _connect(self, topology: Topology) -> None:
        """Let the instances' HBM take part in moves."""
        self.mover.hbm = [instance.hbm for instance in self.instances]
        self.mover.on_room = self._on_room
        self.mover.is_worth = self.chain.is_worth_writing if self.chain.prunes else None
        if topology.below_hbm is not None:
            for instance in self.instances:
                instance.hbm.victims = []
                instance.ideal_hbm.victims = []

    def _handed_off(self, scenario: Scenario, topology: Topology) -> Handoff:
        """The way from instances that prefill to those that decode."""
        return Handoff(
            scenario,
            self._requests,
            topology,
            self._agenda,
            mover=self.mover,
            instances=self.instances,
            leave=self._leave,
            settle=self.settle,
        )

    def settle(self, instance: Instance, now: float) -> None:
        """Let the instance take its next step, and set the pace of its decode batch."""
        if not instance.is_busy and (
            instance.waiting
            or instance.loaded
            or instance.partial >= 0
            or instance.partial_long >= 0
        ):
            self._take_step(instance, now)
        if self._stops_early and not instance.is_busy:
            self.loads.stop_oldest(instance, now)
        if instance.hbm.victims:
            self.mover.demote(instance.hbm, instance.index, now)
        if instance.is_dirty:
            instance.is_dirty = False
            decode = instance.decode
            end_s = decode.next_end(instance.steps_per_s)
            if end_s < inf and end_s <= instance.until_s:
                self._agenda.add(end_s, partial(self._end_decode, instance, decode.version))
            if self._preemptor is not None and decode.size > 1 and not instance.is_busy:
                full_s = decode.time_of(self._preemptor.free_tokens(instance))
                if full_s < end_s:
                    self._agenda.add(full_s, partial(self._end_room, instance, decode.version))

    def _on_room(self, index: int, now: float) -> None:
        self.settle(self.instances[index], now)

    # ---------------------------------------------------------------- admission and load

    def _end_load(self, request: int, instance: Instance, run: Run | None, now: float) -> None:
        """What was loaded is in HBM, pinned; the request may prefill."""
        if run is not None and not self.is_ideal:
            self._admission.hold_loaded(request, instance, run)
        self._requests.answered_s[request] = now
        if self.is_sync:
            instance.is_busy = False
            self.busy_s += now - self._requests.gpu_from_s[request]
            self._take_step(instance, now, first=request)
        else:
            heappush(instance.loaded, self._requests.place[request])
        self.settle(instance, now)

    # ---------------------------------------------------------------- the next step

    def _take_step(self, instance: Instance, now: float, first: int = -1) -> None:
        """Give the free GPU its next step: `first` or the partial request, then what is ready."""
        chunk = self._chunk
        if chunk and self._shares_chunk:
            chunk = max(1, chunk - instance.decode.size)
        step = Step(chunk or inf)
        if first >= 0:
            self._begin_prefill(first, instance, now)
            self._put(first, instance, step)
        elif instance.partial >= 0:
            self._put(instance.partial, instance, step)
        if self._queues_apart:
            self._fill(instance, step, now, self._count)
            if step.room > 0 and instance.partial_long >= 0 and not instance.is_busy:
                self._put(instance.partial_long, instance, step)
        self._fill(instance, step, now)
        if step.members:
            self._run_step(instance, step, now)

    def _fill(self, instance: Instance, step: Step, now: float, end: float = inf) -> None:
        """Give the step what is ready of the requests whose place is before `end`."""
        while step.room > 0 and (instance.waiting or instance.loaded):
            request = self._next_ready(instance, step, now, end)
            if request < 0:
                return
            self._begin_prefill(request, instance, now)
            self._put(request, instance, step)

    def _next_ready(self, instance: Instance, step: Step, now: float, end: float) -> int:
        """The first request before `end` that can prefill, which now holds its HBM; -1: none can.

        Loads that turn out to be due start on the way.
        """
        waiting = instance.waiting
        loaded = instance.loaded
        count = self._count
        is_blocked = False
        while not instance.is_busy:
            if (
                waiting
                and not is_blocked
                and waiting[0] < end
                and not (loaded and loaded[0] < waiting[0])
            ):
                request = waiting[0] % count
                outcome = self._enter(request, instance, step, now)
                if outcome == _LATER:
                    return -1
                is_blocked = instance.is_blocked = outcome == _BLOCKED
                if not is_blocked:
                    heappop(waiting)
            elif loaded and loaded[0] < end:
                request = loaded[0] % count
                outcome = _READY if self.is_ideal else self._go_on(request, instance, step, now)
                if outcome == _LATER:
                    return -1
                heappop(loaded)
            else:
                return -1
            if outcome == _READY:
                return request
        return -1

    def _enter(self, request: int, instance: Instance, step: Step, now: float) -> int:
        """Admit a waiting request to the step, or start its load; says what came of it."""
        requests = self._requests
        run = self.run_in_hbm(request, instance)
        if run[2] == self._blocks[request]:
            return _READY if self.admit(request, instance, run) else _BLOCKED
        if step.members and step.computes(self._atoms[run[0]], self._requests):
            return _LATER
        if not requests.wants_lookup[request] and not self._is_due_again(request, now):
            return _READY if self.admit(request, instance, run) else _BLOCKED
        parts, lookup_s = self.chain.find(request, instance.index, run, now)
        if parts and self.is_sync and step.members:
            return _LATER
        if not self.admit(request, instance, run):
            requests.wants_lookup[request] = 1
            return _BLOCKED
        requests.wants_lookup[request] = 0
        return self._after_lookup(request, instance, step, now, parts, lookup_s)

    def _go_on(self, request: int, instance: Instance, step: Step, now: float) -> int:
        """The turn of a request whose load has ended: more may be in HBM, or to be loaded."""
        if request in self.loads.open:
            return _READY
        self._admission.extend_held(request, instance)
        requests = self._requests
        run = (requests.at[request], requests.depth[request], requests.run[request])
        if run[2] == self._blocks[request]:
            return _READY
        if step.members and step.computes(self._atoms[run[0]], self._requests):
            return _LATER
        if not self._is_due_again(request, now):
            return _READY
        parts, lookup_s = self.chain.find(request, instance.index, run, now)
        return self._after_lookup(request, instance, step, now, parts, lookup_s)

    def _is_due_again(self, request: int, now: float) -> bool:
        """Whether the tiers are asked once more: the request has queued since they answered."""
        requests = self._requests
        return (
            self._asks_again
            and not requests.asked_again[request]
            and requests.answered_s[request] < now
        )

    def _after_lookup(
        self,
        request: int,
        instance: Instance,
        step: Step,
        now: float,
        parts: list[Part],
        lookup_s: float,
    ) -> int:
        """The tiers were asked for a request that holds its HBM: load, or let the step wait.

        Sync: the GPU, and the batch that decodes on it, wait for lookup and load.
        """
        requests = self._requests
        requests.asked_again[request] = 1
        requests.lookup_s[request] += lookup_s
        if self.is_sync:
            requests.gpu_from_s[request] = now
        if not parts:
            step.lookup_s = max(step.lookup_s, lookup_s)
            return _READY
        requests.planned[request] = parts[-1].run[2]
        if self.is_sync:
            instance.is_busy = True
            instance.is_dirty = True
            instance.decode.serve(now)
            instance.steps_per_s = 0.0
        self.begin_load(request, instance, parts, now + lookup_s)
        return _AWAY

    # ---------------------------------------------------------------- prefill

    def _begin_prefill(self, request: int, instance: Instance, now: float) -> None:
        """What is to be computed is settled now."""
        requests = self._requests
        new = requests.computed[request]
        hit = requests.prompt[request] - new
        made = requests.made[request]
        if made and self._preemptor is not None:
            self._preemptor.enter(request, instance, now)
            hit = requests.spared[request]
            new = requests.prompt[request] + made - hit
        requests.todo[request] = new
        is_as_guessed = requests.guessed_hit[request] == hit
        pure_s = requests.guessed_s[request] if is_as_guessed else self._prefill_s(new, hit)
        requests.pure_s[request] = pure_s
        requests.left[request] = new

    def _put(self, request: int, instance: Instance, step: Step) -> None:
        """Give the step what is left of the request's prompt, as far as it fits.

        The first of a step may fill any number of steps; its rest then shares the one after them.
        A long prompt that queues apart fills one: short ones may come before its next.
        """
        requests = self._requests
        is_long = requests.place[request] >= self._count
        new, left = requests.todo[request], requests.left[request]
        hit = requests.prompt[request] + requests.made[request] - new
        tokens = left
        if left > step.room:
            if step.members:
                tokens = int(step.room)
            else:
                step.steps = 1 if is_long else (left - 1) // int(step.chunk)
                tokens = step.steps * int(step.chunk)
        rest = left - tokens
        done = new - left
        step.tokens += tokens
        step.work_s += self._work_s(done + tokens, hit) - (self._work_s(done, hit) if done else 0.0)
        step.is_start = step.is_start or not done
        price_s = requests.pure_s[request] * (tokens / new) if new else 0.0
        step.price_s += price_s
        step.members.append((request, price_s))
        step.room = 0 if rest or not self._chunk else step.room - tokens
        requests.left[request] = rest
        if is_long:
            instance.partial_long = request if rest else -1
        else:
            instance.partial = request if rest else -1

    def _run_step(self, instance: Instance, step: Step, now: float) -> None:
        """Start the step: its length, who pays for it, and the pace of the decoders beside it."""
        requests = self._requests
        decode = instance.decode
        steps = step.steps
        extra_s = wall_s = self._added_s(
            step.tokens,
            step.work_s,
            steps=steps,
            is_start=step.is_start,
            batch=decode.size,
        )
        start_s = now + step.lookup_s
        if decode.size:
            decode.serve(now)
            wall_s += steps * decode.step_s()
            instance.steps_per_s = steps / (step.lookup_s + wall_s)
            instance.is_dirty = True
        if self._stages > 1:
            # The next step follows through the stages; the last one of this has its way to go.
            step.drain_s = (wall_s - wall_s / self._stages) / steps
            extra_s, wall_s = extra_s / self._stages, wall_s / self._stages
        share = extra_s / step.price_s if step.price_s > 0.0 else 0.0
        for request, price_s in step.members:
            requests.gpu_s[request] += share * price_s
            if requests.started_s[request] < 0.0:
                requests.started_s[request] = start_s
                if requests.gpu_from_s[request] >= 0.0:
                    requests.gpu_s[request] += start_s - requests.gpu_from_s[request]
        self.busy_s += step.lookup_s + wall_s
        instance.is_busy = True
        instance.until_s = start_s + wall_s
        self._agenda.add(instance.until_s, partial(self._end_step, instance, step))

    def _end_step(self, instance: Instance, step: Step, now: float) -> None:
        """First tokens for all whose prompt is done; then the next step."""
        loads = self.loads
        if (loads.open or loads.waits_since) and self._awaits_load(instance, step, now):
            return
        instance.is_busy = False
        instance.until_s = inf
        instance.steps_per_s = None
        instance.decode.serve(now)
        left = self._requests.left
        for request, _ in step.members:
            if not left[request]:
                if step.drain_s > 0.0:
                    end = partial(self._end_stages, request, instance)
                    self._agenda.add(now + step.drain_s, end)
                else:
                    self._end_prefill(request, instance, now)
        if self._preemptor is not None:
            self._preemptor.relieve(instance, now)
        instance.is_dirty = instance.decode.size > 0
        self.settle(instance, now)

    def _end_stages(self, request: int, instance: Instance, now: float) -> None:
        """The last step of the prompt has passed the last stage."""
        instance.decode.serve(now)
        self._end_prefill(request, instance, now)
        instance.is_dirty = instance.decode.size > 0
        self.settle(instance, now)

    def _awaits_load(self, instance: Instance, step: Step, now: float) -> bool:
        """Whether the step has to wait for an open load; the GPU, and its batch, wait too."""
        resume = partial(self._end_step, instance, step)
        if not self.loads.is_awaited(instance, step.members, resume, now):
            self.busy_s += self.loads.end_wait(instance, step.members, now)
            return False
        instance.decode.serve(now)
        instance.until_s = inf
        instance.steps_per_s = 0.0
        instance.is_dirty = True
        self.settle(instance, now)
        return True

    def _end_prefill(self, request: int, instance: Instance, now: float) -> None:
        """First token (or the next one after a preemption): publish the blocks; decode or leave."""
        requests = self._requests
        made = requests.made[request]
        if not made:
            requests.first_token_s[request] = now
            instance.queued -= 1
            left_s = instance.queued_s - requests.guessed_s[request]
            instance.queued_s = left_s if instance.queued else 0.0
        if not self.is_ideal and self._blocks[request]:
            self._admission.publish(request, instance)
            if self.tiers and not made:
                self.mover.write(request, self.tiers, instance.index, now)
        output = requests.output[request]
        steps = output - made - 1
        if steps > 0 and self._handoff is not None:
            self._handoff.begin(request, instance, now)
        elif steps > 0:
            context = requests.prompt[request] + (output / 2 if self._preemptor is None else made)
            instance.decode.join(request, steps, context)
        else:
            self._complete(request, instance, now)

    # ---------------------------------------------------------------- decode

    def _end_decode(self, instance: Instance, version: int, now: float) -> None:
        decode = instance.decode
        if version != decode.version:
            return
        decode.serve(now)
        for request in decode.pop_first():
            self._complete(request, instance, now)
        instance.is_dirty = True
        self.settle(instance, now)

    def _end_room(self, instance: Instance, version: int, now: float) -> None:
        """HBM is full of what is generated: somebody gives way."""
        if version != instance.decode.version or self._preemptor is None:
            return
        instance.decode.serve(now)
        self._preemptor.relieve(instance, now)
        instance.is_dirty = True
        self.settle(instance, now)

    def _complete(self, request: int, instance: Instance, now: float) -> None:
        """Last token."""
        requests = self._requests
        requests.e2e_s[request] = now - requests.arrived_s[request]
        if self.on_complete is not None:
            self.on_complete(request, now)
        if self._handoff is not None and requests.output[request] > 1:
            self._handoff.end(request, instance, now)
        else:
            self._leave(request, instance)
            if self._takers and self._requests.table.generates(request):
                self.mover.write(self._count + request, self._takers, instance.index, now)

    def _leave(self, request: int, instance: Instance) -> None:
        """The request gives its HBM on the instance that computed its prompt back."""
        if not self.is_ideal:
            self._admission.leave(request, instance)

    @property
    def oversized(self) -> int:
        """Requests that were let in though no instance holds their KV."""
        return self._admission.oversized
