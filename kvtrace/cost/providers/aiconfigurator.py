"""Seconds from the kernel measurements of the package `aiconfigurator-core` (0.12), as a provider.

Its database holds measured kernels by GPU, engine and number format; an engine step is their sum.
What they leave out is the host: scheduling, sampling, tokens to text. No interval is known.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module, metadata
from types import ModuleType
from typing import Final, Protocol, TypeVar, cast

from kvtrace.cost.evidence import Constant
from kvtrace.cost.layout import Layout
from kvtrace.cost.llm import LlmShape
from kvtrace.cost.names import normalise
from kvtrace.cost.providers.pricing import Pricing
from kvtrace.errors import ModelError, UsageError

PACKAGE: Final = "aiconfigurator_core"
DISTRIBUTION: Final = "aiconfigurator-core"
SYSTEMS: Final = {
    "A100-SXM4-80GB": "a100_sxm",
    "H100-SXM5": "h100_sxm",
    "H200-SXM": "h200_sxm",
    "B200-SXM": "b200_sxm",
    "B300-SXM": "b300_sxm",
    "GB200": "gb200",
    "GB300": "gb300",
    "L40S": "l40s",
    "RTX-PRO-6000-Server": "rtx_pro_6000_server",
    "Intel-Arc-Pro-B60": "b60",
}
"""GPUs here and the package's name of each. Source: its systems/ of 0.12.0, those with tables."""
_WEIGHTS: Final = {
    "bf16": ("bfloat16", "bfloat16"),
    "fp16": ("bfloat16", "bfloat16"),
    "fp8": ("fp8", "fp8"),
    "nvfp4": ("nvfp4", "nvfp4"),
    "int4": ("int4_wo", "int4_wo"),
}
"""GEMM and expert format of weights that differ from the checkpoint's."""
_KV: Final = {"bf16": "bfloat16", "fp16": "bfloat16", "fp8": "fp8", "int8": "int8"}
_QUANTISED: Final = ("fp8", "fp4")
_MS: Final = 1e-3
"""Seconds of the package's unit."""
_SHOWN_TOKENS: Final = 2048
_SHOWN_BATCH: Final = 32
T = TypeVar("T")


class Engine(Protocol):
    """What is used of the package's `EngineHandle`; milliseconds."""

    def predict_prefill_latency(self, bs: int, isl: int, prefix: int = 0) -> float:
        """One step of `bs` prompts of `isl` tokens, `prefix` of them cached."""
        ...

    def predict_decode_latency(self, bs: int, isl: int, osl: int = 2) -> float:
        """One step of `bs` sequences of `isl` tokens (with `osl` 2)."""
        ...

    def mixed_step_breakdown(
        self, ctx_tokens: int, gen_tokens: int, isl: int, osl: int, prefix: int = 0
    ) -> tuple[float, float, float, float]:
        """A step of `ctx_tokens` prompt tokens beside `gen_tokens` sequences.

        In all, without attention, attention of the prompts, attention of the sequences.
        """
        ...


@dataclass(frozen=True, slots=True, eq=False)
class KernelPrefill:
    """Prefill seconds of one instance by measured kernels."""

    engine: Engine
    evidence: tuple[Constant, ...]

    def prefill_s(self, new_tokens: float, cached_tokens: float) -> float:
        """Seconds of a step of `new_tokens` after `cached_tokens`, both rounded to tokens.

        Raises:
            ModelError: a table that the step needs is missing.
        """
        if new_tokens <= 0:
            return 0.0
        new, cached = _whole(new_tokens), round(cached_tokens)
        return _MS * _asked(lambda: self.engine.predict_prefill_latency(1, new + cached, cached))


@dataclass(frozen=True, slots=True, eq=False)
class KernelDecode:
    """Decode seconds of one instance by measured kernels."""

    engine: Engine
    evidence: tuple[Constant, ...]

    def step_s(self, batch: float, context_tokens: float) -> float:
        """Seconds of one step, the context spread evenly over the sequences.

        Raises:
            ModelError: a table that the step needs is missing.
        """
        if batch <= 0:
            return 0.0
        size, each = _whole(batch), _whole(context_tokens / batch)
        return _MS * _asked(lambda: self.engine.predict_decode_latency(size, each))


@dataclass(frozen=True, slots=True, eq=False)
class KernelStep:
    """Seconds of steps that prompts share with a decode batch, by measured kernels.

    Formula: work = prefill(n, p) - shared(n, 0); added = s (shared(N / s, b) - shared(0, b)) + work
    over s steps, shared(n, b) what a step of n prompt tokens and b sequences takes without
    attention. A lone request takes prefill(n, p), in one step.
    """

    engine: Engine
    prefill: KernelPrefill

    def work_s(self, new_tokens: float, cached_tokens: float) -> float:
        """Seconds of one request's attention."""
        if new_tokens <= 0:
            return 0.0
        alone_s = self.prefill.prefill_s(new_tokens, cached_tokens)
        return max(0.0, alone_s - self._shared_s(_whole(new_tokens), 0))

    def added_s(
        self, new_tokens: float, work_s: float, *, steps: int, is_start: bool, batch: int
    ) -> float:
        """Seconds that `new_tokens` and `work_s` in all add to `steps` decode steps of `batch`.

        `is_start` changes nothing: kernels pay nothing once a prefill.
        """
        if new_tokens <= 0:
            return work_s
        chunk = _whole(new_tokens / max(steps, 1))
        beside_s = self._shared_s(0, batch) if batch else 0.0
        return work_s + steps * max(0.0, self._shared_s(chunk, batch) - beside_s)

    def _shared_s(self, tokens: int, batch: int) -> float:
        engine, length = self.engine, max(tokens, 1)
        return _MS * _asked(lambda: engine.mixed_step_breakdown(tokens, batch, length, 2)[1])


def build(
    llm: LlmShape, gpu: str, *, layout: Layout, weight_dtype: str, kv_dtype: str, framework: str
) -> Pricing:
    """The pricing of one instance by the package's tables.

    Raises:
        UsageError: the package is not installed.
        ModelError: it has no tables of the GPU, the LLM or the number formats.
    """
    sdk = _package()
    system = _system(gpu)
    model = _model(llm, sdk)
    formats = _formats(llm, model, weight_dtype=weight_dtype, kv_dtype=kv_dtype)
    engine = _engine(model, system, framework, (*_ranks(llm, layout), *formats))
    title = f"{DISTRIBUTION} {_version()}, kernels of {framework} on {system}, {model}"
    evidence = _evidence(engine, title)
    prefill = KernelPrefill(engine, evidence)
    return Pricing(
        prefill=prefill,
        decode=KernelDecode(engine, evidence),
        step=KernelStep(engine, prefill),
        title=title,
    )


def _evidence(engine: Engine, title: str) -> tuple[Constant, ...]:
    """A prefill and a decode step at usual sizes, with their source; also the probe of all tables.

    Raises:
        ModelError: a table is missing.
    """
    prefill_s = KernelPrefill(engine, ()).prefill_s(_SHOWN_TOKENS, 0)
    decode_s = KernelDecode(engine, ()).step_s(_SHOWN_BATCH, _SHOWN_BATCH * _SHOWN_TOKENS)
    batch = f"{_SHOWN_BATCH} sequences of {_SHOWN_TOKENS:,} tokens"
    return tuple(
        Constant(
            id=f"aiconfigurator.{key}",
            title=f"kernels of a {what}",
            value=value,
            unit="s",
            low=None,
            high=None,
            kind="measured",
            source=title,
            as_of=_version(),
        )
        for key, what, value in (
            ("prefill_s", f"prefill of {_SHOWN_TOKENS:,} tokens", prefill_s),
            ("decode_step_s", f"decode step of {batch}", decode_s),
        )
    )


def _package() -> ModuleType:
    try:
        return import_module(f"{PACKAGE}.sdk")
    except ImportError as error:
        raise UsageError(
            "KVT-C101",
            f"cost provider `aiconfigurator` needs the package {DISTRIBUTION}",
            cause=str(error),
            hint="`pip install 'kvtrace[aiconfigurator]'`, in Python 3.11 to 3.13",
        ) from error


def _version() -> str:
    try:
        return metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return "of unknown version"


def _system(gpu: str) -> str:
    system = SYSTEMS.get(gpu)
    if system is None:
        raise ModelError(
            "KVT-C102",
            f"{DISTRIBUTION} has no kernels of {gpu}",
            cause=f"it has those of {', '.join(SYSTEMS)}",
            hint="`--hardware H100-SXM5`, or `--cost-provider kvtrace`",
        )
    return system


def _model(llm: LlmShape, sdk: ModuleType) -> str:
    """The package's own name of the LLM; no other is asked for, which would go to the network."""
    known = sorted(import_module(f"{sdk.__name__}.common").DefaultHFModels, key=_plain_first)
    wanted = normalise(llm.name)
    for name in known:
        if normalise(_last_part(name)) == wanted:
            return str(name)
    for name in known:
        if _last_part(name).lower().startswith(f"{llm.name.lower()}-"):
            return str(name)
    raise ModelError(
        "KVT-C103",
        f"{DISTRIBUTION} does not know the LLM {llm.name}",
        cause=f"it knows {', '.join(sorted({_last_part(str(name)) for name in known}))}",
        hint="`--cost-provider kvtrace` prices any LLM with a config.json",
    )


def _ranks(llm: LlmShape, layout: Layout) -> tuple[tuple[str, int], ...]:
    """The layout in the package's words, which prices one data-parallel group, as here."""
    dense = (("tp_size", layout.tp), ("pp_size", layout.pp), ("attention_dp_size", layout.dp))
    if not llm.is_moe:
        return dense
    return (*dense, ("moe_tp_size", layout.expert_cut), ("moe_ep_size", layout.ep))


def _plain_first(name: str) -> tuple[bool, str]:
    return any(word in name.lower() for word in _QUANTISED), name


def _last_part(name: str) -> str:
    return name.rsplit("/", 1)[-1]


def _formats(
    llm: LlmShape, model: str, *, weight_dtype: str, kv_dtype: str
) -> tuple[tuple[str, str], ...]:
    """The number formats in the package's words; weights as published follow its checkpoint."""
    kv = _KV.get(kv_dtype)
    is_published = weight_dtype == llm.native_weight_dtype and not _plain_first(model)[0]
    weights = _WEIGHTS.get(weight_dtype)
    if kv is None or (weights is None and not is_published):
        what = f"KV in {kv_dtype}" if kv is None else f"weights in {weight_dtype}"
        raise ModelError(
            "KVT-C104",
            f"{DISTRIBUTION} has no kernels for {what}",
            cause=f"weights: {', '.join(_WEIGHTS)}; KV: {', '.join(_KV)}",
            hint="`--cost-provider kvtrace`",
        )
    formats = [("kvcache_quant_mode", kv), ("fmha_quant_mode", "bfloat16")]
    if weights is not None and not is_published:
        formats += [("gemm_quant_mode", weights[0]), ("moe_quant_mode", weights[1])]
    return tuple(formats)


@cache
def _engine(
    model: str, system: str, framework: str, options: tuple[tuple[str, str | int], ...]
) -> Engine:
    """The package's engine; it reads its tables once, and then answers in microseconds."""
    logging.getLogger(PACKAGE).setLevel(logging.ERROR)
    handle = import_module(f"{PACKAGE}.sdk").EngineHandle
    made = _asked(lambda: handle.compile(model, system, framework, **dict(options)))
    return cast("Engine", made)


def _asked(question: Callable[[], T]) -> T:
    """The package's answer, its refusals in our words."""
    try:
        return question()
    except (ValueError, RuntimeError, KeyError, NotImplementedError) as error:
        raise ModelError(
            "KVT-C105",
            f"{DISTRIBUTION} cannot price this LLM on this GPU in these formats",
            cause=str(error).split(" at /", 1)[0],
            hint="another engine's kernels may be there (`--cost-provider aiconfigurator:trtllm`), "
            "another `--weight-dtype`, `--kv-dtype` or `--tp`, or `--cost-provider kvtrace`",
        ) from error


def _whole(tokens: float) -> int:
    return max(1, round(tokens))
