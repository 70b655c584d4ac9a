"""What a point measures on: its LLM, GPUs and formats, and the seconds that the model gives."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Final, TypeVar

from kvtrace.cost.decode import DecodeModel, build_decode
from kvtrace.cost.deployment import Deployment, default_tp
from kvtrace.cost.dtypes import normalise_dtype
from kvtrace.cost.efficiency import EfficiencyTable, efficiency_table
from kvtrace.cost.hardware import HardwareProfile
from kvtrace.cost.layout import Layout
from kvtrace.cost.llm import LlmShape
from kvtrace.cost.llms import load_llm
from kvtrace.cost.placement import require_whole_heads
from kvtrace.cost.prefill import PrefillModel, build_prefill
from kvtrace.cost.profiles import load_hardware
from kvtrace.cost.step import StepModel
from kvtrace.cost.validation.paths import PathText, parse_path
from kvtrace.cost.validation.points import Point
from kvtrace.cost.validation.routes import CannotPredictError, Route, RouteContext, build_route
from kvtrace.errors import KvtraceError

_Value = TypeVar("_Value")
OUTPUT_TOKENS: Final = 1024
"""Output tokens of a run that does not say: the length of most public serving benchmarks."""
_OUTPUT: Final = re.compile(
    r"(?:\bosl|\boutput(?: tokens| length| len)?)\s*[:=]?\s*(\d+)|(\d+)\s+output tokens"
)
_ENGINES: Final = {
    "trtllm": ("trtllm", "trt-llm", "tensorrt"),
    "sglang": ("sglang", "sgl ", "hicache"),
}
"""Engines whose runs show other seconds than vLLM's, and how rows write them."""
_COPY_KINDS: Final = ("link_bw", "link_chunk_bw")


@dataclass(frozen=True)
class Bench:
    """The set-up of one point; each part raises CannotPredictError where the row leaves it open."""

    point: Point
    table: EfficiencyTable

    @cached_property
    def llm(self) -> LlmShape:
        """The LLM's shape."""
        if not self.point.model:
            raise CannotPredictError("no LLM is named")
        return _resolved(lambda: _llm(self.point.model))

    @cached_property
    def hardware(self) -> HardwareProfile:
        """The GPU in its usual host."""
        if not self.point.gpu:
            raise CannotPredictError("no GPU is named")
        return _resolved(lambda: _hardware(self.point.gpu))

    def check_ranks(self) -> None:
        """Refuse a stated TP that no engine runs the LLM on.

        Raises:
            CannotPredictError: it is zero, or the KV heads cannot be shared by so many ranks.
        """
        tp = self.point.tp
        if tp == 0:
            raise CannotPredictError("`tp` is 0: the cell stays empty where it is not known")
        if tp and self.point.model and self.point.kind not in _COPY_KINDS:
            _resolved(lambda: require_whole_heads(self.llm, tp))

    @cached_property
    def tp(self) -> int:
        """Tensor-parallel ranks: as named, else the GPUs of the run, else what holds the LLM."""
        if self.point.tp:
            return self.point.tp
        if self.point.n_gpus and self.point.n_gpus > 1:
            return self.point.n_gpus
        return _resolved(
            lambda: default_tp(self.llm, self.hardware.gpu, weight_dtype=self.weight_dtype)
        )

    @cached_property
    def weight_dtype(self) -> str:
        """Number format of the weights; as published where the row is silent."""
        text = self.point.weight_dtype or self.llm.native_weight_dtype
        return _resolved(lambda: normalise_dtype(_first_word(text)))

    @cached_property
    def kv_dtype(self) -> str:
        """Number format of the KV; 16 bits where the row is silent."""
        return _resolved(lambda: normalise_dtype(_first_word(self.point.kv_dtype or "bf16")))

    @cached_property
    def layout(self) -> Layout:
        """The ranks; experts on several GPUs without a stated TP have data-parallel attention."""
        gpus = self.point.n_gpus or 1
        if self.llm.is_moe and self.point.tp is None and gpus > 1:
            return Layout(dp=gpus, ep=gpus)
        return Layout(tp=self.tp)

    @cached_property
    def prefill(self) -> PrefillModel:
        """The prefill model."""
        return _resolved(
            lambda: build_prefill(
                self.llm,
                self.hardware,
                layout=self.layout,
                weight_dtype=self.weight_dtype,
                kv_dtype=self.kv_dtype,
                table=self.table,
            )
        )

    @cached_property
    def decode(self) -> DecodeModel:
        """The decode model."""
        return _resolved(
            lambda: build_decode(
                self.llm,
                self.hardware,
                layout=self.layout,
                weight_dtype=self.weight_dtype,
                kv_dtype=self.kv_dtype,
                table=self.table,
            )
        )

    @cached_property
    def deployment(self) -> Deployment:
        """The instance, for what it holds in HBM."""
        return _resolved(
            lambda: Deployment(self.llm, self.hardware, self.tp, self.weight_dtype, self.kv_dtype)
        )

    @property
    def batch(self) -> int:
        """Requests at once, at least one."""
        return max(1, self.point.concurrency or 1)

    @property
    def new_tokens(self) -> int:
        """Tokens that are computed.

        Raises:
            CannotPredictError: the row has no such tokens.
        """
        if not self.point.new_tokens:
            raise CannotPredictError("no new_tokens")
        return self.point.new_tokens

    @property
    def cached_tokens(self) -> int:
        """Tokens that are there already; 0 where the row is silent."""
        return self.point.cached_tokens or 0

    @property
    def stated_output_tokens(self) -> int | None:
        """Output tokens of each request as the note has them; null where it has none."""
        found = _OUTPUT.search(self.point.words)
        return int(found.group(1) or found.group(2)) if found else None

    @property
    def output_tokens(self) -> int:
        """Output tokens of each request, from the note, else `OUTPUT_TOKENS`."""
        return self.stated_output_tokens or OUTPUT_TOKENS

    def frontend_s(self, prompt_tokens: float) -> float:
        """Seconds in front of the engine: the text made tokens, and hashed block by block."""
        if self.point.is_untokenised:
            return 0.0
        shared, engine = self.table.shared, self._engine
        seconds = shared["frontend_s"].value + shared["frontend_token_s"].value * prompt_tokens
        return seconds + (shared[f"frontend_{engine}_s"].value if engine else 0.0)

    def engine_s(self, new_tokens: float, cached_tokens: float) -> float:
        """Seconds of the engine's steps for a prompt on its own, its host costs with them."""
        step = StepModel(self.prefill, self.decode)
        work = step.work_s(new_tokens, cached_tokens)
        least = self.prefill.host_s + self.decode.weights_s(1) + work
        return self.software("prefill") * max(least, step.step_s(new_tokens, work))

    @property
    def _engine(self) -> str | None:
        words = self.point.engine.lower()
        return next(
            (name for name, keys in _ENGINES.items() if any(key in words for key in keys)), None
        )

    def software(self, phase: str) -> float:
        """Seconds of the engine that a row names over vLLM's, for `prefill` or `decode`."""
        engine = self._engine
        return self.table.shared[f"{phase}_{engine}"].value if engine else 1.0

    @property
    def step_s(self) -> float:
        """Seconds of one decode step of the row's batch at its mean context."""
        tokens = (self.point.new_tokens or 0) + self.cached_tokens + self.output_tokens / 2
        return self.software("decode") * self.decode.step_s(self.batch, self.batch * tokens)

    def ttft_s(self, new_tokens: float, cached_tokens: float) -> float:
        """Seconds to the first token of a prompt on its own, nothing moved."""
        seconds = self.frontend_s(new_tokens + cached_tokens)
        seconds += self.engine_s(new_tokens, cached_tokens)
        return seconds + self.split_s(new_tokens + cached_tokens)

    def split_s(self, tokens: float) -> float:
        """What a split of prefill and decode adds: proxy, transfer of the KV, a decode step."""
        if re.search(r"\bpd\b|1p1d|\d+p\d+d|disagg", self.point.words) is None:
            return 0.0
        text = f"HBM>{self.tp}xRDMA200G>HBM GPUDirect"
        named = self.hardware.rdma.port.link.rpartition("_")[2]
        parsed = parse_path(text.replace("200G", named.upper()))
        if isinstance(parsed, str):
            raise CannotPredictError(parsed)
        moved = self.llm.kv_bytes(int(tokens), kv_dtype=self.kv_dtype, tp=self.tp)
        seconds = self.route_of(parsed).seconds(moved) + self.decode.weights_s(1)
        return seconds + self.table.shared["split_s"].value

    @property
    def path(self) -> PathText:
        """The path of the row.

        Raises:
            CannotPredictError: there is none, or it cannot be expressed.
        """
        parsed = parse_path(self.point.path)
        if isinstance(parsed, str):
            raise CannotPredictError(parsed)
        return parsed

    @property
    def route(self) -> Route:
        """The stages of the row's path."""
        return self.route_of(self.path)

    def route_of(self, path: PathText) -> Route:
        """The stages of a path for this point's ranks and chunks."""
        point = self.point
        hardware = self.hardware if point.gpu else None
        ranks = point.tp or point.n_gpus or 1
        return build_route(
            path,
            RouteContext(
                hardware=hardware,
                ranks=ranks,
                chunk_bytes=self._chunk_bytes(path),
                words=point.words,
                is_bare=point.kind in _COPY_KINDS,
            ),
        )

    def _chunk_bytes(self, path: PathText) -> int | None:
        """Bytes of one operation: as stated, or a page's; page-first keeps all layers together."""
        if self.point.chunk_bytes:
            return self.point.chunk_bytes
        if path.page_tokens is None or not self.point.model:
            return None
        ranks = self.point.tp or 1
        whole = self.llm.kv_bytes(path.page_tokens, kv_dtype=self.kv_dtype, tp=ranks) // ranks
        is_whole = {"pagefirst", "page_first"} & path.words
        return max(1, whole if is_whole else whole // (2 * self.llm.layers))

    def moved_bytes(self, tokens: int) -> int:
        """Bytes that move: as stated, else the KV of `tokens` over all ranks."""
        if self.point.bytes:
            return self.point.bytes
        return self.llm.kv_bytes(tokens, kv_dtype=self.kv_dtype, tp=self.point.tp or 1)


@cache
def _llm(name: str) -> LlmShape:
    return load_llm(name)


@cache
def _hardware(name: str) -> HardwareProfile:
    """A GPU by the name of a row, which may say how many: `8x H100`."""
    return load_hardware(re.sub(r"^\d+\s*[xX×]\s*", "", name))


def build_bench(point: Point, table: EfficiencyTable | None = None) -> Bench:
    """The set-up of a point."""
    return Bench(point, table or efficiency_table())


def _first_word(text: str) -> str:
    """`fp8 (window layers bf16)` is fp8 for the layers that grow with the context."""
    return text.split("(", 1)[0].strip()


def _resolved(make: Callable[[], _Value]) -> _Value:
    """What `make` returns; the model's own refusals become reasons."""
    try:
        return make()
    except KvtraceError as error:
        raise CannotPredictError(error.message) from error
