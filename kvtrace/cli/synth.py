"""`kvtrace synth`: synthetic traces and logs, from a seed, a profile or a dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kvtrace.cli import options as opt
from kvtrace.cli.completing import completes
from kvtrace.cli.voice import note, result

_FORMAT_HELP = "A format of `kvtrace formats` that can be written, or all; repeat for more."


def synth(
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder to write into.")],
    profile: Annotated[
        Path | None, typer.Option(help="Profile TOML: arrivals, lengths, sessions, sharing.")
    ] = None,
    source: Annotated[
        Path | None, typer.Option("--from", help="Dataset whose statistics make the profile.")
    ] = None,
    formats: Annotated[
        list[str] | None,
        typer.Option(
            "--format",
            help=_FORMAT_HELP,
            autocompletion=completes("synth"),
        ),
    ] = None,
    requests: Annotated[
        int | None, typer.Option(help="Exactly so many; workloads never end.", min=1)
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Same seed, same bytes [the profile's, else 7].", min=0)
    ] = None,
    as_json: opt.Json = False,
) -> None:
    """Write synthetic traces and logs that tell one story, whatever their format.

    Without --profile, --from and --format: the sample logs of a small service. With --from, the
    profile is written too, and how like the dataset the story is stands on stderr.

    Formats that are written: agentic_mooncake, aibrix_text, aibrix_trace, aiperf, apisix,
    azure, bailian, burstgpt, cloudflare_ai_gateway, dynamo_request_trace, envoy_ai_gateway,
    genai_perf, generic_usage, guidellm, helicone, helicone_csv, higress, inference_perf,
    jaeger, kong, kv_events, langfuse, litellm, litellm_spend_logs, llmperf, llmservingsim,
    llmservingsim_results, lmcache_hashes, lmcache_text, mooncake, nginx_access, nim_response,
    ollama_text, openai_batch, openrouter, otlp_genai, portkey, prometheus, provider_usage,
    sglang_bench, sglang_request_metrics, sglang_text, splitwise, tabbyapi_text, tair_kvcache,
    tgi_text, tracelab, trtllm_request_metrics, vidur, vllm_bench, vllm_text, vllm_timing, weka.

    Not written (docs/synth.md says why of each): made of prompt texts: baseten, chat_text,
    lmcache_agent, openai_batch_input, sagemaker_capture, sglang_dump; totals or distributions:
    prometheus_api, servegen, vllm_timeseries; the insides of engines, routers and stores:
    llamacpp_text, llmd_text, lmcache_trace, mooncake_store, trtllm_stats, trtllm_text; told by
    others that are written: codex_rollout, dynamo_text, lmcache_cache_events, trtllm_kv_events.

    \b
    Examples:
      kvtrace synth -o sample --seed 7
      kvtrace synth --profile chat.toml --format vllm_text --format mooncake --requests 500 -o chat
      kvtrace synth --from reports/chat --requests 2000 -o like-chat
    """
    from kvtrace import api

    done = api.synthesise(
        output, seed=seed, profile=profile, like=source, formats=formats or (), requests=requests
    )
    result(done.to_json() if as_json else "\n".join(map(str, done.paths)))
    if not as_json:
        note("\n".join(done.notes))
