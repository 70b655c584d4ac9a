"""Workloads and traces that simulators and studies of agents read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kvtrace.synth.formats.gateways import Fields
from kvtrace.synth.formats.scene import (
    START_NS,
    Scene,
    e2e_ns,
    gaps_us,
    hashed,
    json_line,
    ms_of,
    seconds_of,
    session_name,
    zulu_stamp,
)
from kvtrace.synth.generate import sessions
from kvtrace.synth.story import Served
from kvtrace.units import NS_PER_MS, NS_PER_US

_SIGN: Final = 1 << 63

SPLITWISE: Final = (
    "request_id,request_type,application_id,arrival_timestamp,batch_size,prompt_size,token_size"
)


def splitwise(scene: Scene) -> Iterator[str]:
    """A trace of splitwise-sim: requests are numbered, seconds from the start."""
    yield SPLITWISE
    for number, one in enumerate(scene.served()):
        request = one.request
        arrival = seconds_of(one.arrived_at_ns)
        yield f"{number},2,0,{arrival},1,{request.prompt_tokens},{request.output_tokens}"


VIDUR: Final = "arrived_at,num_prefill_tokens,num_decode_tokens"


def vidur_cells(one: Served, _scene: Scene) -> tuple[object, ...]:
    """A request of Vidur: seconds from the start."""
    request = one.request
    return seconds_of(one.arrived_at_ns), request.prompt_tokens, request.output_tokens


def llmservingsim(scene: Scene) -> Iterator[str]:
    """A workload of LLMServingSim: ns from the start, lengths alone."""
    for one in scene.served():
        yield json_line(
            {
                "input_toks": one.request.prompt_tokens,
                "output_toks": one.request.output_tokens,
                "arrival_time_ns": one.arrived_at_ns,
            }
        )


def llmservingsim_results(scene: Scene) -> Iterator[str]:
    """Results of LLMServingSim, in ns, as if it had simulated the story."""
    yield (
        "instance id,request id,model,input,output,arrival,end_time,latency,queuing_delay,TTFT,"
        "TPOT,ITL"
    )
    for number, one in enumerate(scene.served()):
        request = one.request
        gaps = [gap * NS_PER_US for gap in gaps_us(one)]
        per_token = sum(gaps) // len(gaps) if gaps else 0
        cells = (
            *(0, number, scene.engine.model, request.prompt_tokens, request.output_tokens),
            *(one.arrived_at_ns, one.last_token_at_ns, e2e_ns(one)),
            *(one.scheduled_at_ns - one.arrived_at_ns, one.ttft_ns, per_token),
        )
        yield f'{",".join(map(str, cells))},"{gaps}"'


def aibrix_trace(one: Served, scene: Scene) -> Fields:
    """A moment of AIBrix's benchmark workload with its one request: whole ms, no prompt."""
    request = {
        "prompt_length": one.request.prompt_tokens,
        "output_length": one.request.output_tokens,
        "prompt": None,
        "session_id": session_name(one),
        "model": scene.engine.model,
    }
    return {"timestamp": one.arrived_at_ns // NS_PER_MS, "requests": [request]}


def tair_kvcache(one: Served, _scene: Scene) -> Fields:
    """A look-up of tair-kvcache's optimizer trace: microseconds, signed hashes of blocks."""
    keys = [(hashed(block) ^ _SIGN) - _SIGN for block in one.request.block_ids]
    return {
        "instance_id": "synthetic",
        "trace_id": one.request.request_id,
        "timestamp_us": (START_NS + one.arrived_at_ns) // NS_PER_US,
        "keys": keys,
        "input_len": one.request.prompt_tokens,
        "output_len": one.request.output_tokens,
        "query_type": "prefix_match",
    }


def tracelab(one: Served, scene: Scene) -> Fields:
    """A round of TraceLab: whole ms, what the provider's cache held."""
    request = one.request
    new = request.prompt_tokens - one.cached_tokens
    events = (("user_message", one.arrived_at_ns), ("text", one.last_token_at_ns))
    return {
        "provider": "claude",
        "project": "synthetic",
        "session_id": f"claude:{session_name(one)}",
        "round_index": request.turn,
        "round_id": request.request_id,
        "model": scene.engine.model,
        "input_tokens_total": request.prompt_tokens,
        "prefix_tokens": one.cached_tokens,
        "newly_append_tokens": new,
        "claude_uncached_input_tokens": new,
        "claude_cache_creation_input_tokens": 0,
        "claude_cache_read_input_tokens": one.cached_tokens,
        "output_tokens": request.output_tokens,
        "timing_events": [
            {"event_type": kind, "timestamp": zulu_stamp(at_ns)} for kind, at_ns in events
        ],
    }


_PLAY: Final = "synthetic"


def agentic_mooncake(scene: Scene) -> Iterator[str]:
    """Dynamo's agentic Mooncake trace: one play, turns wait for the turn before."""
    yield json_line(
        {
            "schema": "dynamo.agentic_mooncake",
            "version": 2,
            "block_size": scene.block_size_tokens,
            "hash_id_scope": "local",
            "source": {"format": "kvtrace synth"},
        }
    )
    before: dict[int, Served] = {}
    for one, is_last in _with_ends(scene):
        request = one.request
        dependencies = []
        last = before.pop(request.session, None)
        if last is not None:
            waited = {
                "request_id": last.request.request_id,
                "trigger": "completion",
                "relation": "sequence",
                "delay_ms": ms_of(one.arrived_at_ns - last.last_token_at_ns),
            }
            dependencies.append(waited)
        if not is_last:
            before[request.session] = one
        yield json_line(
            {
                "request_id": request.request_id,
                "play_id": _PLAY,
                "session_id": session_name(one),
                "model": scene.engine.model,
                "input_length": request.prompt_tokens,
                "output_length": request.output_tokens,
                "hash_ids": request.block_ids,
                "not_before_ms": ms_of(one.arrived_at_ns),
                "recorded_api_time_ms": ms_of(e2e_ns(one)),
                "dependencies": dependencies,
            }
        )


def weka(scene: Scene) -> Iterator[str]:
    """Weka / AgentX conversations, one a line when it has ended: seconds from its first request."""
    for turns in _conversations(scene):
        start_ns = turns[0].arrived_at_ns
        yield json_line(
            {
                "id": session_name(turns[0]),
                "models": [scene.engine.model],
                "block_size": scene.block_size_tokens,
                "hash_id_scope": "global",
                "requests": [_weka_request(one, start_ns, scene) for one in turns],
            }
        )


def _weka_request(one: Served, start_ns: int, scene: Scene) -> Fields:
    request = one.request
    whole = request.prompt_tokens // scene.block_size_tokens
    return {
        "t": seconds_of(one.arrived_at_ns - start_ns),
        "type": "s",
        "model": scene.engine.model,
        "in": request.prompt_tokens,
        "out": request.output_tokens,
        "hash_ids": request.block_ids[:whole],
        "api_time": seconds_of(e2e_ns(one)),
        "ttft": seconds_of(one.ttft_ns),
    }


def _conversations(scene: Scene) -> Iterator[list[Served]]:
    """The turns of each session, together; in order of the last one's arrival."""
    held: dict[int, list[Served]] = {}
    for one, is_last in _with_ends(scene):
        held.setdefault(one.request.session, []).append(one)
        if is_last:
            yield held.pop(one.request.session)
    yield from held.values()


def _with_ends(scene: Scene) -> Iterator[tuple[Served, bool]]:
    """The requests in order of arrival, and whether each is the last of its session."""
    plan = sessions(scene.profile, endless=scene.story.requests is not None)
    left: dict[int, int] = {}
    for one in scene.served():
        session = one.request.session
        while session not in left:
            following = next(plan)
            left[following.number] = len(following.turns)
        left[session] -= 1
        is_last = left[session] == 0
        if is_last:
            del left[session]
        yield one, is_last
