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
from dataclasses import dataclass, replace

from kvtrace.synth.generate import SynthRequest, SynthTrace, to_ns
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

    @property
    def ttft_ns(self) -> int:
        """Arrival to first token."""
        return self.first_token_at_ns - self.arrived_at_ns


class _Cache:
    """HBM as an LRU of blocks, and a pool that never forgets."""

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

    def keep(self, block_ids: tuple[int, ...]) -> None:
        """Touch tail to head, so that a prefix outlives its tail."""
        for block in reversed(block_ids):
            self._device[block] = None
            self._device.move_to_end(block)
        self._pool.update(block_ids)
        while len(self._device) > self._capacity_blocks:
            self._device.popitem(last=False)


class _Loop:
    """The event loop: a queue, one busy engine, and decodes that move while the engine is free."""

    def __init__(self, trace: SynthTrace, engine: StoryEngine) -> None:
        self.engine = engine
        self.block_size_tokens = trace.profile.block_size_tokens
        self.cache = _Cache(engine.kv_capacity_tokens // self.block_size_tokens)
        self.later: dict[int, deque[SynthRequest]] = defaultdict(deque)
        for request in sorted(trace.requests, key=lambda r: (r.session, r.turn)):
            self.later[request.session].append(request)
        self.arrivals = [(turns[0].arrived_at_ns, session) for session, turns in self.later.items()]
        heapq.heapify(self.arrivals)
        self.waiting: deque[tuple[int, SynthRequest]] = deque()
        self.decodes: list[tuple[int, int, Served]] = []
        """Heap of (decode clock at the last token, sequence, what is known)."""
        self.now_ns = 0
        self.decode_clock_ns = 0
        self.served: list[Served] = []

    def run(self) -> list[Served]:
        while self.arrivals or self.waiting or self.decodes:
            if self.waiting and self._has_room(self.waiting[0][1]):
                self._prefill(*self.waiting.popleft())
            else:
                self._idle_until_next()
        return sorted(self.served, key=lambda s: (s.arrived_at_ns, s.request.session))

    def _has_room(self, request: SynthRequest) -> bool:
        """Whether HBM can hold this request beside those that are being decoded."""
        if not self.decodes:
            return True
        held = sum(s.request.prompt_tokens + s.request.output_tokens for _, _, s in self.decodes)
        needed = request.prompt_tokens + request.output_tokens
        return held + needed <= self.engine.kv_capacity_tokens

    def _admit(self, until_ns: int) -> None:
        while self.arrivals and self.arrivals[0][0] <= until_ns:
            arrived_at_ns, session = heapq.heappop(self.arrivals)
            self.waiting.append((arrived_at_ns, self.later[session].popleft()))

    def _idle_until_next(self) -> None:
        """Decode until a reply ends or a request reaches the queue."""
        queue_ns = to_ns(self.engine.frontend_s)
        arrival_ns = self.arrivals[0][0] + queue_ns if self.arrivals else None
        done_ns = None
        if self.decodes:
            done_ns = self.now_ns + self.decodes[0][0] - self.decode_clock_ns
        if done_ns is not None and (arrival_ns is None or done_ns <= arrival_ns):
            self._advance(done_ns)
            self._finish(heapq.heappop(self.decodes)[2])
        elif arrival_ns is not None:
            self._advance(max(arrival_ns, self.now_ns))
            self._admit(self.now_ns - queue_ns)

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
        self.cache.keep(request.block_ids[: request.prompt_tokens // self.block_size_tokens])
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
        )
        entry = (self.decode_clock_ns + decode_ns, len(self.served) + len(self.decodes), served)
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

    def _finish(self, served: Served) -> None:
        self.served.append(replace(served, last_token_at_ns=self.now_ns))
        session = served.request.session
        turns = self.later[session]
        if turns:
            heapq.heappush(self.arrivals, (self.now_ns + turns[0].think_ns, session))


def serve(trace: SynthTrace, engine: StoryEngine | None = None) -> tuple[Served, ...]:
    """Every request of the trace as the engine served it, in order of arrival."""
    return tuple(_Loop(trace, engine or StoryEngine()).run())


def seconds(duration_ns: int) -> float:
    """Nanoseconds as seconds."""
    return duration_ns / NS_PER_S
