"""For which LLMs and paths a hit loses, as a Markdown table."""

from __future__ import annotations

from kvtrace.cost import LEDGER_PATHS, build_deployment, build_ledger, find_path
from kvtrace.cost.ledger import PathLedger
from kvtrace.units import format_seconds

INSTANCES = (
    ("Llama-3.2-1B", "H100-SXM5", 1),
    ("Llama-3.1-8B", "H100-SXM5", 1),
    ("Qwen3-30B-A3B", "H100-SXM5", 1),
    ("gpt-oss-120b", "H100-SXM5", 2),
    ("Qwen3-32B", "H100-SXM5", 2),
    ("Llama-3.1-70B", "A100-SXM4-80GB", 4),
    ("Llama-3.1-70B", "H100-SXM5", 8),
    ("Qwen-72B", "H100-SXM5", 8),
    ("DeepSeek-V3", "H200-SXM", 8),
    ("Llama-3.1-405B", "B200-SXM", 8),
)
"""Small to large: dense and experts, grouped and full heads, a latent."""


def verdict_table(tokens: int, cached_tokens: int) -> str:
    """One row an instance: what it recomputes, and what a hit over each path does to the TTFT."""
    head = ("LLM", "instance", "recompute", *LEDGER_PATHS)
    lines = [_row(head), _row(["---"] * 2 + ["--:"] * (len(head) - 2))]
    for llm, hardware, tp in INSTANCES:
        deployment = build_deployment(llm, hardware, tp=tp)
        paths = [find_path(deployment, path) for path in LEDGER_PATHS]
        ledger = build_ledger(
            deployment, tokens=tokens, cached_tokens=cached_tokens, paths=paths, depth="figures"
        )
        cells = [_cell(path) for path in ledger.paths]
        lines.append(_row([llm, f"{tp} x {hardware}", format_seconds(ledger.recompute_s), *cells]))
    return "\n".join(lines)


def _cell(path: PathLedger) -> str:
    """The change of the TTFT; bold where it is a loss, and then the ways of loading that gain."""
    if path.ttft_change_s < 0:
        return format_seconds(path.ttft_change_s)
    gains = [way.way for way in path.ways if way.ttft_change_s < 0]
    return " ".join((f"**+{format_seconds(path.ttft_change_s)}**", *gains))


def _row(cells: list[str] | tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"
