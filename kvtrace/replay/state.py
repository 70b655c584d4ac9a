"""What changes while a replay runs: one record per instance, flat lists per request."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import partial
from math import inf

from kvtrace.replay.blocks import AtomHistory, AtomTable, HbmCache, LruCache, counts_of, split_atoms
from kvtrace.replay.decode import DecodeBatch
from kvtrace.replay.generated import generated_runs
from kvtrace.replay.scenario import Scenario
from kvtrace.replay.topology import blocks_of
from kvtrace.schema.arrays import RequestTrace
from kvtrace.units import NS_PER_S


class Instance:
    """One engine instance: steps of prefill, a decode batch, and HBM."""

    __slots__ = (
        "decode",
        "freed",
        "grown",
        "hbm",
        "holders",
        "ideal_hbm",
        "index",
        "is_blocked",
        "is_busy",
        "is_dirty",
        "loaded",
        "partial",
        "partial_long",
        "queued",
        "queued_s",
        "steps_per_s",
        "until_s",
        "waiting",
    )

    def __init__(self, index: int, scenario: Scenario, table: AtomTable, block_tokens: int) -> None:
        kv_bytes = scenario.kv_bytes_per_token
        size = blocks_of(scenario.hbm_capacity_bytes, kv_bytes * block_tokens)
        self.index = index
        self.hbm = HbmCache(
            blocks_of(scenario.hbm_capacity_bytes, kv_bytes), block_tokens, table.blocks
        )
        self.ideal_hbm = LruCache(size if scenario.reuse else 0, table.blocks)
        self.decode = DecodeBatch(scenario.decode, grows=scenario.kv_admission == "as_needed")
        self.grown = 0
        """Tokens reserved in HBM for what the decode batch has generated."""
        self.freed = self.hbm.capacity_tokens
        """Tokens of room that were ever given back, the first capacity included."""
        self.waiting: list[int] = []
        """Heap of requests (by `Requests.place`) that hold no HBM yet."""
        self.loaded: list[int] = []
        """Heap of requests (by `Requests.place`) that hold their HBM and are ready to prefill."""
        self.holders = 0
        """Requests that hold HBM."""
        self.queued = 0
        self.queued_s = 0.0
        """Prefill seconds of the requests routed here that have no first token yet."""
        self.partial = -1
        """The request whose prompt is computed in part; -1: none."""
        self.partial_long = -1
        """The same of long prompts, where they queue apart."""
        self.is_busy = False
        self.is_blocked = False
        """The oldest waiting request finds no room: nobody may overtake it into HBM."""
        self.is_dirty = False
        """The decode pace must be set anew."""
        self.steps_per_s: float | None = None
        """Decode steps per second while a prefill (or a sync load) holds the GPU."""
        self.until_s = inf
        """When the present step ends, and with it the pace."""


class Step:
    """What the GPU does next: prompt tokens of some requests, in one step or several."""

    __slots__ = (
        "chunk",
        "computing",
        "drain_s",
        "is_start",
        "lookup_s",
        "marked",
        "members",
        "price_s",
        "room",
        "steps",
        "tokens",
        "work_s",
    )

    def __init__(self, chunk: float) -> None:
        self.chunk = chunk
        """Prompt tokens that fit one step."""
        self.room = chunk
        """Prompt tokens that still fit."""
        self.members: list[tuple[int, float]] = []
        """(request, price of its tokens as if it were alone in its steps)"""
        self.computing: set[int] = set()
        """Atoms that the first `marked` members compute."""
        self.marked = 0
        self.tokens = 0
        self.work_s = 0.0
        self.price_s = 0.0
        self.steps = 1
        self.is_start = False
        """A prefill begins in it."""
        self.lookup_s = 0.0
        """The step waits so long for the answers of tiers that were asked for its requests."""
        self.drain_s = 0.0
        """Seconds from the end of the step in the first stage of a pipeline to that in the last."""

    def computes(self, atom: int, requests: Requests) -> bool:
        """Whether a request of the step computes the atom."""
        at, table = requests.at, requests.table
        while self.marked < len(self.members):
            request = self.members[self.marked][0]
            self.computing.update(table.atoms[at[request] : table.offset[request + 1]])
            self.marked += 1
        return atom in self.computing


class Requests:
    """The requests from `first` on as flat arrays, and what is known of each so far.

    Arrays of numbers, not lists: a million requests take a third of the memory.
    """

    def __init__(self, trace: RequestTrace, scenario: Scenario, first: int = 0) -> None:
        count = trace.requests - first
        self.count = count
        self.block_tokens = max(1, trace.block_size_tokens)
        self.arrived_s = array("d", (trace.arrived_at_ns[first:] / NS_PER_S).tobytes())
        self.prompt = counts_of(trace.prompt_tokens[first:])
        zeros = array("q", bytes(8 * count))
        self.output = counts_of(trace.output_tokens[first:]) if trace.output_known else zeros
        self.history: AtomHistory | None = None
        """Of the requests before `first`."""
        if scenario.reuse:
            is_apart = scenario.idealised or bool(scenario.prefill_instances)
            is_kept = scenario.keeps_generated and not is_apart
            generated = generated_runs(trace) if is_kept else None
            self.history, self.table = split_atoms(trace, first, generated)
        else:
            self.table = _no_atoms(count)
        blocks = self.table.request_blocks
        size = self.block_tokens
        lacking = (max(0, b * size - p) for b, p in zip(blocks, self.prompt, strict=True))
        self.pad = array("q", lacking)
        """Tokens that the partial last block lacks; nothing of what is generated, which follows."""
        self.pad.extend([0] * (len(self.table.offset) - 1 - count))
        made = zeros if scenario.prefill_instances else self.output
        self.private = array("q", _private(scenario, self.prompt, made, [b * size for b in blocks]))
        """Tokens of room for KV that never enters a cache: prompt without block ids, and output (as
        it comes, where `kv_admission` says so; that of a preempted request is then a prompt; none
        where other instances decode)."""
        spare = 0 if scenario.idealised else 1
        self.most = array("q", (max(0, p - spare) for p in self.prompt))
        """Most tokens that a cache may serve: all but the last prompt token."""
        self.place = array("q", range(count))
        """Place in queues: by arrival, long prompts behind all others where they queue apart. The
        request is the place modulo the number of requests."""
        spec = scenario.isolation
        if spec is not None and scenario.queues_apart:
            most = spec.long_prompt_tokens
            self.place = array("q", (i + count * (p > most) for i, p in enumerate(self.prompt)))
        self._start(count)

    def _start(self, count: int) -> None:
        """Nothing has happened yet."""
        zeros, seconds = partial(_zeros, count), partial(_seconds, count)
        self.instance = zeros()
        self.lookup_s = seconds()
        self.pull_s = seconds()
        self.load_s = seconds()
        self.declined = zeros()
        self.declined_move_s = seconds()
        self.declined_recompute_s = seconds()
        """What the last decision left below: tokens, and both their prices."""
        self.stall_s = seconds()
        """Waits of its steps for loads that ran beside them."""
        self.started_s = seconds(-1.0)
        """When its first step began; negative before."""
        self.pure_s = seconds()
        """Prefill seconds of the request alone: no step shared, no decode beside it."""
        self.made = zeros()
        """Tokens generated before the last preemption."""
        self.spared = zeros()
        """Tokens of a preempted request that it finds again, at its last entry."""
        self.entered = zeros()
        """The request was the so manieth to take HBM, over all instances."""
        self.preempted: list[tuple[int, float, float]] = []
        """(request, when it was preempted, when it went on); the last is negative until then."""
        self.todo = zeros()
        """Tokens that the present prefill computes."""
        self.left = zeros()
        """Prompt tokens that no step has taken yet, once the prefill has begun."""
        self.gpu_s = seconds()
        """Its share of the seconds of the GPU."""
        self.gpu_from_s = seconds(-1.0)
        """When the GPU began to wait for its lookup and load; negative unless it does."""
        self.first_token_s = seconds()
        """Time of the first token, on the clock of `arrived_s`."""
        self.handoff_s = seconds()
        """From the first token until the KV is on the decode instance."""
        self.e2e_s = seconds()
        self._start_caches(count)

    def _start_caches(self, count: int) -> None:
        """No cache has been asked yet, and nobody holds anything."""
        zeros, seconds = partial(_zeros, count), partial(_seconds, count)
        self.hbm_hit = zeros()
        self.computed = zeros()
        self.moved_bytes = seconds()
        self.wants_lookup = bytearray(count)
        """1: the tiers below HBM are still to be looked up."""
        self.asked_again = bytearray(count)
        """1: they have been asked when the scheduler took the request."""
        self.answered_s = seconds(-1.0)
        """When the last answer, or what it let load, was there; negative before."""
        self.planned = zeros()
        """Blocks that caches will serve, as far as is known at arrival."""
        self.guessed_hit = array("q", [-1]) * count
        self.guessed_s = seconds()
        """Hit tokens and prefill seconds as estimated at arrival."""
        self.at = self.table.offset[:count]
        self.depth = zeros()
        self.run = zeros()
        """Blocks of the leading run that the request holds; ends at (at, depth)."""
        self.held = self.table.offset[:count]
        """Atoms of the request before this one are pinned by it."""

    def hold(self, request: int, run: tuple[int, int, int]) -> None:
        """The request now holds the leading run (at, depth, blocks); the rest is to be computed."""
        at, depth, blocks = run
        self.at[request] = at
        self.depth[request] = depth
        self.run[request] = blocks
        self.held[request] = at + 1 if depth else at
        if not self.made[request]:
            self.computed[request] = self.prompt[request] - self.tokens(request, blocks)

    def tokens(self, request: int, blocks: int) -> int:
        """Prompt tokens that a leading run of `blocks` serves."""
        tokens = blocks * self.block_tokens
        most = self.most[request]
        return tokens if tokens < most else most


def _zeros(count: int) -> array[int]:
    return array("q", bytes(8 * count))


def _seconds(count: int, value: float = 0.0) -> array[float]:
    return array("d", [value]) * count


def _private(
    scenario: Scenario, prompt: Sequence[int], output: Sequence[int], cached: Sequence[int]
) -> list[int]:
    """(requests,) tokens of room beside those of blocks with ids."""
    rest = [max(0, p - c) for p, c in zip(prompt, cached, strict=True)]
    if scenario.kv_admission == "as_needed":
        size = max(1, scenario.kv_block_tokens)
        return [whole_blocks(tokens, size) for tokens in rest]
    return [tokens + o for tokens, o in zip(rest, output, strict=True)]


def whole_blocks(tokens: int, block_tokens: int) -> int:
    """Tokens of the blocks that hold `tokens`."""
    return -(-tokens // block_tokens) * block_tokens


def _no_atoms(count: int) -> AtomTable:
    zeros = array("q", bytes(8 * count))
    return AtomTable(array("q", bytes(8 * (count + 1))), array("q"), array("q"), zeros)
