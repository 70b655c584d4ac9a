"""A small serving engine that answers a synthetic trace: one GPU, first come first served.

It exists so that the sample logs agree with each other; it is not the replay. What it does:

- A request waits in one queue. When its turn comes the engine looks its prefix up: the leading run
  of full blocks held in HBM costs nothing; what follows and is held by the pool is pulled over the
  network and then loaded over PCIe, one request at a time, while the GPU waits; the rest is
  computed in one go. At least the last token of a prompt is computed.
- Decoding goes on at a fixed time per token and stands still while a load or a prefill runs.
- A request is admitted when its prompt and reply fit in HBM beside the requests being decoded.
- HBM evicts least recently used blocks; the pool keeps everything that was computed.
- Sessions are closed loops: the next turn comes a pause after the reply's last token.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice

from kvtrace.synth.draws import to_ns
from kvtrace.synth.generate import BlockNames, SynthRequest, SynthTrace, sessions
from kvtrace.synth.profile import Profile
from kvtrace.units import GB, NS_PER_S


@dataclass(frozen=True, slots=True)
class StoryEngine:
    """The numbers of the engine; default: Llama-3.1-8B, bf16, one L40S, a pool over 10 Gb/s."""

    model: str = "meta-llama/Llama-3.1-8B-Instruct"
    kv_bytes_per_token: int = 131_072
    """2 (K and V) × 32 layers × 8 KV heads × 128 × 2 bytes."""
    kv_capacity_tokens: int = 131_072
    """HBM left for KV: 16.0 GiB. The card is shared: 0.72 of 44.4 GiB, less 15.0 GiB of weights."""
    weight_flops_per_token: float = 2 * 6.98e9
    """2 × active parameters without the embedding."""
    attention_flops_per_token_pair: float = 524_288.0
    """4 × 32 layers × 32 heads × 128, for each (new token, earlier token)."""
    effective_flops_per_s: float = 181e12
    """Half of the L40S's dense bf16 peak of 362 TFLOP/s; assumed."""
    prefill_overhead_s: float = 0.028
    """One pass over the weights at 864 GB/s plus scheduling; assumed."""
    lookup_s: float = 0.004
    """Asking the pool which chunks it holds; assumed."""
    pool_bytes_per_s: float = 1.1 * GB
    """TCP over 10 Gb/s Ethernet, large messages; assumed."""
    pcie_bytes_per_s: float = 24.5 * GB
    """Pinned host memory to an L40S over PCIe 4.0 x16; assumed."""
    pool_chunk_tokens: int = 256
    """The pool stores and finds whole chunks."""
    decode_s_per_token: float = 0.027
    """Weights of 16 GB at 864 GB/s and 0.75 efficiency, plus KV reads; assumed."""
    frontend_s: float = 0.002
    """From the HTTP arrival to the engine's queue, tokenisation included; assumed."""

    def prefill_s(self, *, new_tokens: int, cached_tokens: int) -> float:
        """Time to compute `new_tokens` after `cached_tokens`.

        Formula: overhead + (w·n + a·(n·p + n²/2)) / effective FLOP/s
        """
        pairs = new_tokens * cached_tokens + new_tokens * new_tokens / 2
        flops = self.weight_flops_per_token * new_tokens
        flops += self.attention_flops_per_token_pair * pairs
        return self.prefill_overhead_s + flops / self.effective_flops_per_s

    def pull_s(self, pulled_tokens: int) -> float:
        """Time to look up, pull and load `pulled_tokens`, one hop after the other."""
        if pulled_tokens == 0:
            return self.lookup_s
        moved_bytes = pulled_tokens * self.kv_bytes_per_token
        hops_s = moved_bytes / self.pool_bytes_per_s + moved_bytes / self.pcie_bytes_per_s
        return self.lookup_s + hops_s


@dataclass(frozen=True, slots=True)
class Served:
    """What happened to one request; times from the start of the trace."""

    request: SynthRequest
    arrived_at_ns: int
    queued_at_ns: int
    scheduled_at_ns: int
    first_token_at_ns: int
    last_token_at_ns: int
    device_tokens: int
    """Prompt tokens found in HBM."""
    pulled_tokens: int
    """Prompt tokens found in the pool, pulled and loaded."""
    running: int = 0
    """Requests that were being decoded when this one was scheduled."""
    running_tokens: int = 0
    """Tokens that HBM holds for them, up to their last one."""
    waiting: int = 0
    """Requests that were in the queue behind it."""
    evicted: tuple[int, ...] = ()
    """Blocks that left HBM for those of this prompt."""

    @property
    def ttft_ns(self) -> int:
        """Arrival to first token."""
        return self.first_token_at_ns - self.arrived_at_ns

    @property
    def cached_tokens(self) -> int:
        """Prompt tokens that were not computed."""
        return self.device_tokens + self.pulled_tokens


class _Cache:
    """HBM as an LRU of blocks, and a pool that forgets only what nobody can ask for again."""

    def __init__(self, capacity_blocks: int) -> None:
        self._capacity_blocks = capacity_blocks
        self._device: OrderedDict[int, None] = OrderedDict()
        self._pool: set[int] = set()

    def leading_blocks(self, block_ids: tuple[int, ...]) -> tuple[int, int]:
        """Leading blocks held in HBM, and leading blocks held in HBM or the pool."""
        device = 0
        while device < len(block_ids) and block_ids[device] in self._device:
            device += 1
        held = device
        while held < len(block_ids) and block_ids[held] in self._pool:
            held += 1
        return device, held

    def keep(self, block_ids: tuple[int, ...]) -> tuple[int, ...]:
        """Touch tail to head, so that a prefix outlives its tail; the blocks that had to go."""
        for block in reversed(block_ids):
            self._device[block] = None
            self._device.move_to_end(block)
        self._pool.update(block_ids)
        evicted = []
        while len(self._device) > self._capacity_blocks:
            evicted.append(self._device.popitem(last=False)[0])
        return tuple(evicted)

    def forget(self, block_ids: tuple[int, ...]) -> None:
        """Drop blocks of a session that is over from the pool."""
        self._pool.difference_update(block_ids)


class _Loop:
    """The event loop: a queue, one busy engine, and decodes that move while the engine is free."""

    def __init__(
        self,
        starts: Iterator[Iterator[SynthRequest]],
        engine: StoryEngine,
        block_size_tokens: int,
    ) -> None:
        self.engine = engine
        self.block_size_tokens = block_size_tokens
        self.cache = _Cache(engine.kv_capacity_tokens // block_size_tokens)
        self.starts = starts
        """Sessions in order of their first arrival; each gives its turns one by one."""
        self.later: dict[int, tuple[SynthRequest, Iterator[SynthRequest]]] = {}
        """The next turn of each open session, and those after it."""
        self.arrivals: list[tuple[int, int]] = []
        self.waiting: deque[tuple[int, SynthRequest]] = deque()
        self.decodes: list[tuple[int, int, Served]] = []
        """Heap of (decode clock at the last token, sequence, what is known)."""
        self.now_ns = 0
        self.decode_clock_ns = 0
        self.finished = 0
        self._open_sessions()

    def run(self) -> Iterator[Served]:
        """What was served, in order of the last token."""
        while self.arrivals or self.waiting or self.decodes:
            if self.waiting and self._has_room(self.waiting[0][1]):
                self._prefill(*self.waiting.popleft())
            else:
                done = self._idle_until_next()
                if done is not None:
                    yield self._finish(done)

    def _open_sessions(self) -> None:
        """Take up sessions until one is known that starts after the next arrival."""
        for turns in self.starts:
            first = next(turns)
            self.later[first.session] = (first, turns)
            heapq.heappush(self.arrivals, (first.arrived_at_ns, first.session))
            if self.arrivals[0][0] < first.arrived_at_ns:
                return

    def _pop_arrival(self) -> tuple[int, SynthRequest]:
        arrived_at_ns, session = heapq.heappop(self.arrivals)
        request, turns = self.later.pop(session)
        following = next(turns, None)
        if following is not None:
            self.later[session] = (following, turns)
        if request.arrived_at_ns == arrived_at_ns and request.turn == 0:
            self._open_sessions()
        return arrived_at_ns, request

    def _has_room(self, request: SynthRequest) -> bool:
        """Whether HBM can hold this request beside those that are being decoded."""
        if not self.decodes:
            return True
        needed = request.prompt_tokens + request.output_tokens
        return self._running_tokens() + needed <= self.engine.kv_capacity_tokens

    def _running_tokens(self) -> int:
        return sum(s.request.prompt_tokens + s.request.output_tokens for _, _, s in self.decodes)

    def _admit(self, until_ns: int) -> None:
        while self.arrivals and self.arrivals[0][0] <= until_ns:
            self.waiting.append(self._pop_arrival())

    def _idle_until_next(self) -> Served | None:
        """Decode until a reply ends, which is returned, or a request reaches the queue."""
        queue_ns = to_ns(self.engine.frontend_s)
        arrival_ns = self.arrivals[0][0] + queue_ns if self.arrivals else None
        done_ns = None
        if self.decodes:
            done_ns = self.now_ns + self.decodes[0][0] - self.decode_clock_ns
        if done_ns is not None and (arrival_ns is None or done_ns <= arrival_ns):
            self._advance(done_ns)
            return heapq.heappop(self.decodes)[2]
        if arrival_ns is not None:
            self._advance(max(arrival_ns, self.now_ns))
            self._admit(self.now_ns - queue_ns)
        return None

    def _advance(self, to_now_ns: int) -> None:
        self.decode_clock_ns += to_now_ns - self.now_ns
        self.now_ns = to_now_ns

    def _prefill(self, arrived_at_ns: int, request: SynthRequest) -> None:
        device_tokens, pulled_tokens = self._look_up(request)
        cached_tokens = device_tokens + pulled_tokens
        busy_s = self.engine.pull_s(pulled_tokens) + self.engine.prefill_s(
            new_tokens=request.prompt_tokens - cached_tokens, cached_tokens=cached_tokens
        )
        scheduled_at_ns = self.now_ns
        self.now_ns += to_ns(busy_s)
        evicted = self.cache.keep(
            request.block_ids[: request.prompt_tokens // self.block_size_tokens]
        )
        decode_ns = (request.output_tokens - 1) * to_ns(self.engine.decode_s_per_token)
        served = Served(
            request=request,
            arrived_at_ns=arrived_at_ns,
            queued_at_ns=arrived_at_ns + to_ns(self.engine.frontend_s),
            scheduled_at_ns=scheduled_at_ns,
            first_token_at_ns=self.now_ns,
            last_token_at_ns=self.now_ns,
            device_tokens=device_tokens,
            pulled_tokens=pulled_tokens,
            running=len(self.decodes),
            running_tokens=self._running_tokens(),
            waiting=len(self.waiting),
            evicted=evicted,
        )
        entry = (self.decode_clock_ns + decode_ns, self.finished + len(self.decodes), served)
        heapq.heappush(self.decodes, entry)
        self._admit(self.now_ns - to_ns(self.engine.frontend_s))

    def _look_up(self, request: SynthRequest) -> tuple[int, int]:
        """Prompt tokens found in HBM, and those found in the pool after them."""
        size = self.block_size_tokens
        findable = request.block_ids[: (request.prompt_tokens - 1) // size]
        device, held = self.cache.leading_blocks(findable)
        chunk = self.engine.pool_chunk_tokens
        pool_tokens = held * size // chunk * chunk
        return device * size, max(0, pool_tokens - device * size)

    def _finish(self, served: Served) -> Served:
        done = replace(served, last_token_at_ns=self.now_ns)
        self.finished += 1
        request = served.request
        if request.session in self.later:
            following = self.later[request.session][0]
            since_ns = done.arrived_at_ns if following.paused_from_arrival else self.now_ns
            arrival_ns = max(since_ns + following.think_ns, self.now_ns)
            heapq.heappush(self.arrivals, (arrival_ns, request.session))
        elif request.shared_blocks is not None:
            self.cache.forget(request.block_ids[request.shared_blocks :])
        return done


def serve(trace: SynthTrace, engine: StoryEngine | None = None) -> tuple[Served, ...]:
    """Every request of the trace as the engine served it, in order of arrival."""
    turns: dict[int, list[SynthRequest]] = defaultdict(list)
    for request in sorted(trace.requests, key=lambda r: (r.session, r.turn)):
        turns[request.session].append(request)
    in_order = sorted(turns.values(), key=lambda own: (own[0].arrived_at_ns, own[0].session))
    loop = _Loop(
        iter([iter(own) for own in in_order]),
        engine or StoryEngine(),
        trace.profile.block_size_tokens,
    )
    return tuple(sorted(loop.run(), key=_by_arrival))


def _by_arrival(served: Served) -> tuple[int, int]:
    return served.arrived_at_ns, served.request.session


@dataclass(frozen=True, slots=True)
class Story:
    """A profile served by an engine: read it as often as you like, it is told anew each time."""

    profile: Profile
    engine: StoryEngine
    requests: int | None = None
    """Stop after so many, with workloads that go on for ever; None: the profile's own end."""

    def served(self) -> Iterator[Served]:
        """Every request in order of arrival, with the memory of those that are under way."""
        names = BlockNames(self.profile.block_size_tokens)
        planned = sessions(self.profile, endless=self.requests is not None)
        turns = (names.requests(session) for session in planned)
        loop = _Loop(turns, self.engine, self.profile.block_size_tokens)
        told = _in_order_of_arrival(loop)
        return told if self.requests is None else islice(told, self.requests)


def _in_order_of_arrival(loop: _Loop) -> Iterator[Served]:
    """What the loop serves, held back until nothing that arrived earlier is under way."""
    held: list[tuple[int, int, Served]] = []
    unfinished: list[int] = []
    for one in loop.run():
        heapq.heappush(held, (*_by_arrival(one), one))
        unfinished = [arrived_at_ns for arrived_at_ns, _ in loop.waiting]
        unfinished += [served.arrived_at_ns for _, _, served in loop.decodes]
        unfinished += [arrived_at_ns for arrived_at_ns, _ in loop.arrivals[:1]]
        horizon_ns = min(unfinished, default=None)
        while held and (horizon_ns is None or held[0][0] < horizon_ns):
            yield heapq.heappop(held)[2]
    while held:
        yield heapq.heappop(held)[2]


def seconds(duration_ns: int) -> float:
    """Nanoseconds as seconds."""
    return duration_ns / NS_PER_S
