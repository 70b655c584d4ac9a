"""Writes large logs in the literal shapes of vLLM and SGLang; the same arguments, the same bytes.

The vLLM log mixes all kinds of lines in production proportions; `--shape` says which requests it
prints: `ids` (prompt and token ids), `params` (0.11.1 and later, parameters only), `details` (the
same with `Request … details` at DEBUG) or `mixed` (a quarter with ids).
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

START = datetime(2026, 3, 2, 8, 0, 0, tzinfo=UTC)
PARAMS = (
    "SamplingParams(n=1, presence_penalty=0.0, frequency_penalty=0.0, repetition_penalty=1.0, "
    "temperature=0.7, top_p=0.95, top_k=-1, min_p=0.0, seed=None, stop=[], stop_token_ids=[], "
    "bad_words=[], include_stop_str_in_output=False, ignore_eos=False, max_tokens=512, "
    "min_tokens=0, logprobs=None, prompt_logprobs=None, skip_special_tokens=True, "
    "spaces_between_special_tokens=True, truncate_prompt_tokens=None, guided_decoding=None)"
)
WORDS = (
    "the",
    "cache",
    "holds",
    "keys",
    "and",
    "values",
    "of",
    "a",
    "prompt",
    "that",
    "many",
    "requests",
    "share",
)


def vllm_lines(rng: random.Random, shape: str) -> Iterator[str]:
    """vLLM 0.11 lines, request by request."""
    number = 0
    roots = [[rng.randrange(128_000) for _ in range(256)] for _ in range(64)]
    while True:
        number += 1
        now = START + timedelta(milliseconds=25 * number)
        stamp = now.strftime("%m-%d %H:%M:%S")
        ident = f"chatcmpl-{rng.getrandbits(128):032x}"
        api = f"(APIServer pid=1) INFO {stamp} "
        if shape == "ids" or (shape == "mixed" and number % 4 == 0):
            ids = roots[rng.randrange(64)] + [rng.randrange(128_000) for _ in range(64)]
            text = " ".join(rng.choice(WORDS) for _ in range(240))
            yield (
                f"{api}[logger.py:39] Received request {ident}: prompt: '{text}', params: {PARAMS},"
                f" prompt_token_ids: {ids}, prompt_embeds shape: None, lora_request: None.\n"
            )
        else:
            yield (
                f"{api}[logger.py:39] Received request {ident}: params: {PARAMS}, "
                "lora_request: None.\n"
            )
        if shape == "details":
            ids = roots[rng.randrange(64)] + [rng.randrange(128_000) for _ in range(64)]
            text = " ".join(rng.choice(WORDS) for _ in range(240))
            yield (
                f"(APIServer pid=1) DEBUG {stamp} [logger.py:51] Request {ident} details: prompt: "
                f"'{text}', prompt_token_ids: {ids}, prompt_embeds shape: None.\n"
            )
        yield f"{api}[async_llm.py:271] Added request {ident}.\n"
        yield '(APIServer pid=1) INFO:     10.0.0.7:51234 - "GET /health HTTP/1.1" 200 OK\n'
        yield (
            f"(APIServer pid=1) INFO:     10.0.0.{number % 250}:{40_000 + number % 20_000} - "
            '"POST /v1/chat/completions HTTP/1.1" 200 OK\n'
        )
        if number % 400 == 0:
            yield (
                f"{api}[loggers.py:127] Engine 000: Avg prompt throughput: {rng.random() * 9e3:.1f}"
                f" tokens/s, Avg generation throughput: {rng.random() * 2e3:.1f} tokens/s, "
                f"Running: {rng.randrange(90)} reqs, Waiting: {rng.randrange(9)} reqs, "
                f"GPU KV cache usage: {rng.random() * 100:.1f}%, "
                f"Prefix cache hit rate: {rng.random() * 100:.1f}%\n"
            )


def sglang_lines(rng: random.Random, _shape: str) -> Iterator[str]:
    """SGLang's JSON request log: received and finished events."""
    number = 0
    while True:
        number += 1
        arrived = START + timedelta(milliseconds=25 * number)
        ident = f"{rng.getrandbits(128):032x}"
        prompt, output = rng.randrange(50, 9_000), rng.randrange(1, 700)
        cached = rng.randrange(prompt)
        device = cached // 2
        obj = {
            "rid": ident,
            "text": " ".join(rng.choice(WORDS) for _ in range(120)),
            "sampling_params": {"max_new_tokens": 512, "temperature": 0.7, "stop": ["\n\n"]},
            "return_logprob": False,
            "stream": True,
        }
        headers = {"x-smg-routing-key": f"user-{rng.randrange(5_000)}"}
        event = {
            "timestamp": arrived.strftime("%Y-%m-%dT%H:%M:%S.%f"),
            "event": "request.received",
            "rid": ident,
            "obj": obj,
            "headers": headers,
        }
        yield json.dumps(event) + "\n"
        e2e = output * 0.02 + prompt * 1e-4
        meta = {
            "id": ident,
            "finish_reason": {"type": "length", "length": output},
            "prompt_tokens": prompt,
            "weight_version": "default",
            "num_retractions": 0,
            "reasoning_tokens": 0,
            "completion_tokens": output,
            "cached_tokens": cached,
            "cached_tokens_details": {
                "device": device,
                "host": cached - device,
                "storage": 0,
                "storage_backend": "MooncakeStore",
            },
            "dp_rank": 0,
            "e2e_latency": e2e,
            "request_received_ts": arrived.timestamp(),
            "queue_time": 0.002,
            "first_token_latency": prompt * 1e-4,
        }
        done = arrived + timedelta(seconds=e2e)
        yield (
            json.dumps(
                event
                | {
                    "timestamp": done.strftime("%Y-%m-%dT%H:%M:%S.%f"),
                    "event": "request.finished",
                    "out": {"text": obj["text"], "meta_info": meta},
                }
            )
            + "\n"
        )


KINDS: dict[str, Callable[[random.Random, str], Iterator[str]]] = {
    "vllm": vllm_lines,
    "sglang": sglang_lines,
}


def write_log(path: Path, kind: str, byte_size: int, *, shape: str = "mixed", seed: int = 1) -> int:
    """Write at least `byte_size` bytes of whole lines; the number of lines."""
    lines = 0
    written = 0
    with path.open("w", encoding="utf-8", buffering=1 << 20) as out:
        for line in KINDS[kind](random.Random(seed), shape):
            written += out.write(line)
            lines += 1
            if written >= byte_size:
                return lines
    return lines


def main() -> None:
    """Command line: KIND PATH --mb N."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=sorted(KINDS))
    parser.add_argument("path", type=Path)
    parser.add_argument("--mb", type=int, default=1000)
    parser.add_argument("--shape", choices=("ids", "params", "details", "mixed"), default="mixed")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    write_log(given.path, given.kind, given.mb * 10**6, shape=given.shape, seed=given.seed)


if __name__ == "__main__":
    main()
