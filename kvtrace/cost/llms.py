"""The LLMs that are known by name, and how a name or a config.json becomes a shape."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from kvtrace.cost.evidence import read_table
from kvtrace.cost.experts import Experts
from kvtrace.cost.kv_group import KvGroup
from kvtrace.cost.llm import LlmShape
from kvtrace.cost.names import build_index, find_name


def list_llms() -> tuple[str, ...]:
    """Names of the built-in LLM shapes."""
    return tuple(row["llm"] for row in read_table("llms.csv"))


def load_llm(name_or_path: str) -> LlmShape:
    """The built-in shape of a name, or the shape of an HF `config.json` (file, folder or text).

    Raises:
        UsageError: unknown name, with close ones; or a config that cannot be used.
    """
    if name_or_path.lstrip().startswith("{"):
        from kvtrace.cost.hf.config import from_hf_text

        return from_hf_text(name_or_path, source="config.json as given")
    path = Path(name_or_path)
    if path.suffix == ".json" or (path / "config.json").is_file():
        from kvtrace.cost.hf.config import from_hf_config

        return from_hf_config(path)
    name = find_name(
        name_or_path,
        _index(),
        what="LLM",
        code="KVT-C021",
        hint="`kvtrace llm` lists the built-in ones; or pass its Hugging Face config.json",
    )
    return _built_in(name)


@cache
def _index() -> dict[str, str]:
    rows = read_table("llms.csv")
    return build_index((row["llm"], filter(None, row["aliases"].split(";"))) for row in rows)


@cache
def _built_in(name: str) -> LlmShape:
    row = next(row for row in read_table("llms.csv") if row["llm"] == name)
    groups = tuple(_group(g) for g in read_table("llm_kv_groups.csv") if g["llm"] == name)
    nonembed = row["active_nonembed_parameters"]
    return LlmShape(
        name=name,
        family=row["family"],
        attention=row["attention"],
        layers=int(row["layers"]),
        hidden=int(row["hidden"]),
        vocab=int(row["vocab"]),
        parameters=float(row["parameters"]),
        active_parameters=float(row["active_parameters"]),
        active_nonembed_parameters=float(nonembed) if nonembed else None,
        native_weight_dtype=row["native_weight_dtype"],
        groups=groups,
        state_bytes=float(row["state_bytes"]),
        kind="spec" if row["kind"] == "spec" else "assumed",
        source=row["source"],
        as_of=row["as_of"],
        recurrent_layers=int(row["recurrent_layers"]),
        experts=_experts(name),
    )


def _experts(llm: str) -> Experts | None:
    row = next((row for row in read_table("llm_experts.csv") if row["llm"] == llm), None)
    if row is None:
        return None
    return Experts(
        layers=int(row["layers"]),
        routed=int(row["routed"]),
        active=int(row["active"]),
        shared=int(row["shared"]),
        width=int(row["width"]),
        input_width=int(row["input_width"]),
        matrices=int(row["matrices"]),
    )


def _group(row: dict[str, str]) -> KvGroup:
    return KvGroup(
        group=row["group"],
        layers=int(row["layers"]),
        window_tokens=int(row["window_tokens"]) if row["window_tokens"] else None,
        tokens_per_entry=int(row["tokens_per_entry"]),
        entry_elements=int(row["entry_elements"]),
        rope_elements=int(row["rope_elements"]),
        kv_shards=int(row["kv_shards"]),
        pair_flops=float(row["pair_flops"]) if row["pair_flops"] else None,
        pair_window_tokens=int(row["pair_window_tokens"]) if row["pair_window_tokens"] else None,
    )
