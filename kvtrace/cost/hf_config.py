"""LLM shapes from a Hugging Face `config.json`: MHA, GQA, MQA and MLA, dense or of experts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kvtrace.cost.llm import KvGroup, LlmShape
from kvtrace.errors import Location, UsageError

_NOT_COVERED: Final = (
    "attention_chunk_size",
    "attn_layer_period",
    "block_configs",
    "attn_layer_indices",
    "compress_ratios",
    "full_attention_interval",
    "hybrid_override_pattern",
    "index_topk",
    "layers_block_type",
    "linear_num_value_heads",
    "linear_attn_config",
    "mamba_d_state",
    "mamba_num_heads",
    "num_global_key_value_heads",
    "num_kv_shared_layers",
    "sparse_attention_config",
    "ssm_cfg",
    "swa_num_key_value_heads",
    "use_cla",
)
"""Keys of architectures whose KV this reader would get wrong."""
_UNGATED: Final = frozenset({
    "bloom", "falcon", "gpt2", "gpt_bigcode", "gpt_neo", "gpt_neox", "mpt", "nemotron", "opt",
    "phi", "starcoder2",
})  # fmt: skip
"""Model types whose feed-forward block has two matrices instead of three."""


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
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(
            "KVT-C030", f"cannot read `{path}`", where=Location(str(path)), cause=error.strerror
        ) from error
    except (ValueError, RecursionError) as error:
        raise UsageError(
            "KVT-C031", f"`{path}` is not a JSON document", where=Location(str(path))
        ) from error
    if not isinstance(document, dict):
        raise UsageError("KVT-C031", f"`{path}` is not a JSON object", where=Location(str(path)))
    return _build(document, source=str(path), fallback_name=_name_of(path))


def _name_of(path: Path) -> str:
    """The file's name; of a plain `config.json` the folder's, which holds one model."""
    return path.resolve().parent.name if path.stem == "config" else path.stem


@dataclass(frozen=True, slots=True)
class _Config:
    """A config with typed access; nested text configs are flattened first."""

    keys: Mapping[str, object]
    where: str

    def whole(self, *names: str) -> int | None:
        for name in names:
            value = self.keys.get(name)
            if isinstance(value, int) and not isinstance(value, bool):
                return value
            if value is not None and not isinstance(value, list):
                raise self.fault(f"`{name}` is not a whole number")
        return None

    def require(self, *names: str) -> int:
        value = self.whole(*names)
        if value is None or value <= 0:
            raise self.fault(f"`{names[0]}` is missing or not above zero")
        return value

    def fault(self, cause: str) -> UsageError:
        return UsageError(
            "KVT-C032",
            "this config.json cannot be used as an LLM shape",
            where=Location(self.where),
            cause=cause,
            hint="name a built-in LLM with `--llm`; `kvtrace.cost.list_llms()` lists them",
        )


def _build(document: Mapping[str, object], *, source: str, fallback_name: str) -> LlmShape:
    nested = document.get("text_config")
    keys = {**document, **nested} if isinstance(nested, Mapping) else dict(document)
    config = _Config(keys, source)
    for key in _NOT_COVERED:
        if keys.get(key) not in (None, [], {}, 0, False):
            raise config.fault(f"`{key}`: this architecture is not read from a config yet")
    groups = _groups(config)
    attention, per_layer = _attention(config)
    total_ffn, active_ffn = _feed_forward(config)
    layers, hidden = config.require("num_hidden_layers", "n_layer"), _hidden(config)
    vocab = config.require("vocab_size")
    norms = (2 * layers + 1) * hidden
    embedding = vocab * hidden * (1 if _is_tied(config) else 2)
    body = layers * per_layer + norms
    name = keys.get("_name_or_path") or keys.get("name") or fallback_name
    return LlmShape(
        name=str(name).rstrip("/").rsplit("/", 1)[-1],
        family=str(keys.get("model_type", "unknown")),
        attention=attention,
        layers=layers,
        hidden=hidden,
        vocab=vocab,
        parameters=float(body + total_ffn + embedding),
        active_parameters=float(body + active_ffn + embedding),
        active_nonembed_parameters=float(body + active_ffn),
        native_weight_dtype=_weight_dtype(config),
        groups=groups,
        state_bytes=0.0,
        kind="given",
        source=source,
        as_of="",
    )


def _hidden(config: _Config) -> int:
    return config.require("hidden_size", "n_embd", "d_model")


def _heads(config: _Config) -> tuple[int, int, int]:
    """Query heads, KV heads, head dimension."""
    query = config.require("num_attention_heads", "n_head")
    if config.keys.get("multi_query") is True and not config.keys.get("new_decoder_architecture"):
        kv = 1
    else:
        kv = config.whole("num_key_value_heads", "num_kv_heads") or query
    head_dim = config.whole("head_dim") or _hidden(config) // query
    return query, kv, head_dim


def _is_tied(config: _Config) -> bool:
    """Embedding and output head share weights; each family's default where the key is absent."""
    default = str(config.keys.get("model_type")) in ("gemma", "gemma2", "gemma3", "gpt2", "falcon")
    return bool(config.keys.get("tie_word_embeddings", default))


def _attention(config: _Config) -> tuple[str, int]:
    """Kind of attention and the parameters of one layer's projections."""
    hidden = _hidden(config)
    latent = config.whole("kv_lora_rank")
    if latent is not None:
        heads = config.require("num_attention_heads")
        rope = config.require("qk_rope_head_dim")
        nope = config.require("qk_nope_head_dim")
        value = config.require("v_head_dim")
        rank = config.whole("q_lora_rank")
        query_out = heads * (nope + rope)
        query = hidden * query_out if rank is None else rank * (hidden + query_out)
        kv = hidden * (latent + rope) + latent * heads * (nope + value)
        return "mla", query + kv + heads * value * hidden
    query_heads, kv_heads, head_dim = _heads(config)
    kind = "mha" if kv_heads == query_heads else "mqa" if kv_heads == 1 else "gqa"
    return kind, 2 * hidden * head_dim * (query_heads + kv_heads)


def _feed_forward(config: _Config) -> tuple[int, int]:
    """Feed-forward parameters of all layers: all of them, and those that a token uses."""
    hidden = _hidden(config)
    layers = config.require("num_hidden_layers", "n_layer")
    matrices = 2 if str(config.keys.get("model_type")) in _UNGATED else 3
    width = config.whole("intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size")
    dense = matrices * hidden * (width or 4 * hidden)
    experts = config.whole("n_routed_experts", "num_local_experts", "num_experts") or 0
    if experts <= 1:
        return layers * dense, layers * dense
    expert_width = config.whole("moe_intermediate_size") or config.require("intermediate_size")
    expert = matrices * hidden * expert_width
    top = config.require("num_experts_per_tok", "num_experts_per_token", "top_k_experts")
    shared_width = config.whole("shared_expert_intermediate_size")
    if shared_width is None:
        shared_width = (config.whole("n_shared_experts") or 0) * expert_width
    always = matrices * hidden * shared_width + hidden * experts
    sparse = _sparse_layers(config, layers)
    total = sparse * (experts * expert + always) + (layers - sparse) * dense
    return total, sparse * (top * expert + always) + (layers - sparse) * dense


def _sparse_layers(config: _Config, layers: int) -> int:
    first = config.whole("first_k_dense_replace") or 0
    step = config.whole("decoder_sparse_step", "moe_layer_freq") or 1
    listed = config.keys.get("mlp_only_layers")
    dense_only = set(listed) if isinstance(listed, list) else set()
    return sum(
        1
        for layer in range(first, layers)
        if layer not in dense_only and (layer + 1 if step > 1 else layer) % step == 0
    )


def _groups(config: _Config) -> tuple[KvGroup, ...]:
    layers = config.require("num_hidden_layers", "n_layer")
    latent = config.whole("kv_lora_rank")
    if latent is not None:
        rope = config.require("qk_rope_head_dim")
        dims = config.require("qk_nope_head_dim") + rope + config.require("v_head_dim")
        flops = 2.0 * config.require("num_attention_heads") * dims * layers
        return (KvGroup("latent", layers, None, 1, latent + rope, rope, 1, flops, None),)
    query, kv, head_dim = _heads(config)
    value_dim = config.whole("v_head_dim") or head_dim
    windowed, window = _windows(config, layers)
    entry = kv * (head_dim + value_dim)
    pair = 2.0 * query * (head_dim + value_dim)
    groups = []
    if windowed < layers:
        full = layers - windowed
        groups.append(KvGroup("full", full, None, 1, entry, 0, kv, pair * full, None))
    if windowed:
        groups.append(KvGroup("window", windowed, window, 1, entry, 0, kv, pair * windowed, window))
    return tuple(groups)


def _windows(config: _Config, layers: int) -> tuple[int, int | None]:
    """Layers with a sliding window, and the window."""
    window = config.whole("sliding_window")
    types = config.keys.get("layer_types")
    if isinstance(types, list):
        unknown = sorted({str(kind) for kind in types} - {"full_attention", "sliding_attention"})
        if unknown:
            raise config.fault(f"`layer_types` holds {', '.join(unknown)}: not read yet")
        windowed = types.count("sliding_attention")
        if windowed and window is None:
            raise config.fault("`sliding_window` is missing, and `layer_types` needs it")
        return windowed, window
    if window is None or config.keys.get("use_sliding_window") is False:
        return 0, None
    pattern = config.whole("sliding_window_pattern")
    if pattern is None and str(config.keys.get("model_type")) == "gemma2":
        pattern = 2
    return (layers if pattern is None else layers - layers // pattern), window


def _weight_dtype(config: _Config) -> str:
    quantised = config.keys.get("quantization_config")
    if isinstance(quantised, Mapping):
        method = str(quantised.get("quant_method", "")).lower()
        text = f"{method} {quantised.get('quant_algo', '')}".lower()
        for name in ("nvfp4", "mxfp4", "fp8"):
            if name in text:
                return name
        if method in ("awq", "gptq"):
            return "int4" if quantised.get("bits", 4) == 4 else "int8"
    given = str(config.keys.get("torch_dtype") or config.keys.get("dtype") or "bfloat16")
    return {"float32": "fp32", "float16": "fp16"}.get(given, "bf16")
