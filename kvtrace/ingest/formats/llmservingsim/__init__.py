"""Files of LLMServingSim: workloads (JSON lines) and results of simulations (CSV).

Shapes read from casys-kaist/LLMServingSim, releases 1 and 2 (`workloads`, the pages on the JSONL
format and on reading the output). The runs of vLLM that it records are those of `vllm_timing`.
"""

from __future__ import annotations

from kvtrace.ingest.contract import Format, Guess, Head
from kvtrace.ingest.formats.llmservingsim.requests import read_requests
from kvtrace.ingest.formats.llmservingsim.results import RESULT_COLUMNS, read_results
from kvtrace.ingest.values.cells import sniff_columns

_PRODUCTION = "logs of your own service (this is a workload for a simulator)"
_VERSIONS = "casys-kaist/LLMServingSim 1 and 2: "


def _sniff_requests(head: Head) -> Guess | None:
    objects = head.json_objects
    ours = sum(
        "arrival_time_ns" in entry and ("input_toks" in entry or "sub_requests" in entry)
        for entry in objects
    )
    if not ours or 2 * ours < len(objects):
        return None
    return Guess(
        0.97,
        f"{ours} of {len(objects)} objects have arrival_time_ns and input_toks or sub_requests",
    )


def _sniff_results(head: Head) -> Guess | None:
    return sniff_columns(head, RESULT_COLUMNS)


FORMATS: tuple[Format, ...] = (
    Format(
        name="llmservingsim",
        title="LLMServingSim workload (JSON lines)",
        framing="lines",
        best_grade="A",
        supplies=(
            "request_id",
            "session_id",
            "turn",
            "arrived_at_ns",
            "prompt_tokens",
            "output_tokens",
            "block_keys",
        ),
        missing={
            "production": _PRODUCTION,
            "reuse": "input_tok_ids: make the workload with a tokenizer",
            "cached_tokens": "usage logs with cached_tokens (vLLM: --enable-prompt-tokens-details)",
            "ttft": "a workload has lengths only; requests.jsonl of `bench run` has vLLM's times",
        },
        versions=_VERSIONS + "flat and agentic workloads",
        sniff=_sniff_requests,
        read=read_requests,
        is_benchmark=True,
        enable_hint="the generators in `workloads`; with a tokenizer they write input_tok_ids",
    ),
    Format(
        name="llmservingsim_results",
        title="LLMServingSim results of a simulation (CSV)",
        framing="csv",
        best_grade="L",
        supplies=(
            "request_id",
            "llm",
            "arrived_at_ns",
            "prompt_tokens",
            "output_tokens",
            "queue_ns",
            "ttft_ns",
            "tpot_ns",
            "e2e_ns",
        ),
        missing={
            "production": "logs of your own service (these times are simulated)",
            "reuse": "the workload that was simulated, with input_tok_ids",
            "cached_tokens": "hits stand in the simulator's output as a total only",
            "sessions": "the workload that was simulated",
        },
        versions=_VERSIONS + "the CSV of `--output`, all times in ns",
        sniff=_sniff_results,
        read=read_results,
        is_benchmark=True,
        enable_hint="`--output FILE` of the simulator",
    ),
)
