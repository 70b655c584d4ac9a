"""LLM shapes from a Hugging Face `config.json`: a mapping, a file, its folder, or its text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kvtrace.cost.hf.experts import read_experts
from kvtrace.cost.hf.groups import read_groups, read_heads
from kvtrace.cost.hf.layers import Mixer, layer_mixers
from kvtrace.cost.hf.parameters import count_parameters
from kvtrace.cost.hf.reader import HfConfig, hidden_size
from kvtrace.cost.hf.state import read_state_layer
from kvtrace.cost.hf.weights import read_kv_dtype, read_weight_dtype
from kvtrace.cost.kv_group import KvGroup
from kvtrace.cost.llm import LlmShape
from kvtrace.errors import Location, UsageError

_NESTED: Final = ("text_config", "language_config", "llm_config", "thinker_config")
"""Keys that hold the config of the language part of a model of several parts."""
_GEMMA_3: Final[Mapping[str, object]] = {
    "vocab_size": 262_208, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
    "sliding_window": 4096, "intermediate_size": 9216,
}  # fmt: skip
_DEFAULTS: Final = {"gemma3": _GEMMA_3, "gemma3_text": _GEMMA_3}
"""What configs of a model type leave out. Source: transformers, Gemma3TextConfig."""
_MOST_BYTES: Final = 64 * 1024 * 1024
"""A config.json is a few kilobytes; a larger file is something else."""


def from_hf_config(config: Mapping[str, object] | Path | str) -> LlmShape:
    """The shape of a Hugging Face config: a mapping, a `config.json`, or its folder.

    Raises:
        UsageError: unreadable, a needed key is missing, or an architecture not covered here.
    """
    if isinstance(config, Mapping):
        return _build(config, source="config.json as given", fallback_name="config.json")
    path = Path(config)
    if path.is_dir():
        path = path / "config.json"
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise UsageError(
                "KVT-C031",
                f"`{path}` is too large for a config.json",
                where=Location(str(path)),
                hint="pass the config.json, not the weights",
            )
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(
            "KVT-C030",
            f"cannot read `{path}`",
            where=Location(str(path)),
            cause=error.strerror,
            hint="pass the path of a Hugging Face config.json, or a name that `kvtrace llm` lists",
        ) from error
    except UnicodeDecodeError as error:
        raise _not_json(str(path)) from error
    return _parse(text, source=str(path), fallback_name=_name_of(path))


def from_hf_text(text: str, *, source: str = "standard input") -> LlmShape:
    """The shape of the text of a `config.json`.

    Raises:
        UsageError: no JSON object, a needed key is missing, or an architecture not covered here.
    """
    return _parse(text, source=source, fallback_name="config.json")


def _parse(text: str, *, source: str, fallback_name: str) -> LlmShape:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _not_json(source) from error
    if not isinstance(document, dict):
        raise UsageError("KVT-C031", f"`{source}` is not a JSON object", where=Location(source))
    return _build(document, source=source, fallback_name=fallback_name)


def _not_json(source: str) -> UsageError:
    return UsageError("KVT-C031", f"`{source}` is not a JSON document", where=Location(source))


def _name_of(path: Path) -> str:
    """The file's name; of a plain `config.json` the folder's, which holds one model."""
    return path.resolve().parent.name if path.stem == "config" else path.stem


def _build(document: Mapping[str, object], *, source: str, fallback_name: str) -> LlmShape:
    keys = _flattened(document)
    config = HfConfig({**_DEFAULTS.get(str(keys.get("model_type")), {}), **keys}, source)
    mixers = layer_mixers(config)
    groups = read_groups(config, mixers)
    parameters = count_parameters(config, mixers)
    states = mixers.count("recurrent")
    state_bytes = states * read_state_layer(config).state_bytes if states else 0
    name = document.get("_name_or_path") or document.get("name") or fallback_name
    return LlmShape(
        name=str(name).rstrip("/").rsplit("/", 1)[-1],
        family=config.model_type or "unknown",
        attention=_attention(config, groups, states),
        layers=len(mixers),
        hidden=hidden_size(config),
        vocab=config.require("vocab_size"),
        parameters=float(parameters.total),
        active_parameters=float(parameters.active),
        active_nonembed_parameters=float(parameters.active_nonembed),
        native_weight_dtype=read_weight_dtype(config),
        groups=groups,
        state_bytes=float(state_bytes),
        recurrent_layers=states,
        experts=read_experts(config, mixers),
        native_kv_dtype=read_kv_dtype(config),
        kind="given",
        source=source,
        as_of="",
    )


def _flattened(document: Mapping[str, object]) -> dict[str, object]:
    """The keys with those of the language part on top."""
    keys = dict(document)
    for _ in _NESTED:
        nested = next((keys[key] for key in _NESTED if isinstance(keys.get(key), Mapping)), None)
        if not isinstance(nested, Mapping):
            return keys
        keys = {key: one for key, one in keys.items() if key not in _NESTED} | dict(nested)
    return keys


def _attention(config: HfConfig, groups: tuple[KvGroup, ...], states: int) -> str:
    """The kind of attention in the words of the built-in shapes."""
    names = {group.group for group in groups}
    if any(name.startswith("compressed") for name in names):
        return "compressed_sparse"
    is_latent = bool(config.whole("kv_lora_rank"))
    if states:
        return "hybrid_recurrent_mla" if is_latent else "hybrid_recurrent"
    if is_latent:
        return "mla_sparse_dsa" if "indexer" in names else "mla"
    if config.words("block_configs") is not None:
        return "gqa_nas"
    heads = read_heads(config, _first(groups))
    base = "mha" if heads.kv == heads.query else "mqa" if heads.kv == 1 else "gqa"
    if "indexer" in names:
        return f"{base}_block_sparse"
    if names == {"full", "window"}:
        is_chunked = bool(config.whole("attention_chunk_size")) and not config.whole(
            "sliding_window"
        )
        return f"{base}_chunked_local" if is_chunked else f"{base}_swa_hybrid"
    return f"{base}_swa" if names == {"window"} else base


def _first(groups: tuple[KvGroup, ...]) -> Mixer:
    return "window" if groups and groups[0].group == "window" else "full"
