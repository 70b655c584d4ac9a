"""Seconds of engine steps that carry prefill tokens of several requests and a decoding batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kvtrace.cost.decode import DecodeModel
from kvtrace.cost.prefill import PrefillModel

PREFILL_CHUNK_TOKENS: Final = 8192
"""Prompt tokens of one engine step. Source: vLLM 0.10 and later, `EngineArgs` defaults of
`max_num_batched_tokens` for an API server on GPUs of 70 GiB and more other than A100 (2 048
elsewhere)."""


@dataclass(frozen=True, slots=True, eq=False)
class StepModel:
    """Seconds of steps of one instance, from its prefill and decode models.

    Formula, N prefill tokens over s steps beside b sequences that decode:
        tokens = prefill model at N + s b tokens, weights read once per step; what a prefill pays
                 once (fixed overhead, saturation) only where a request starts in the step
        least  = s (decode step of b sequences, at least one, without KV)
        step   = max(tokens, least) + attention + s (KV read of the b sequences)
    In a pipeline b is the part of the batch that passes its stages together, and the seconds are
    those of the way through all stages.
    A single step of N < balance tokens, where memory is the limit, costs no more than the chord
    from `least` at 0 to `tokens` at the balance: one token after a long hit rides a decode step.
    So a lone prefill of at least the balance takes `prefill_s(new, cached)`, whatever its chunks.
    Assumes: rates fitted to whole prefills hold what chunking costs per chunk.
    """

    prefill: PrefillModel
    decode: DecodeModel

    def work_s(self, new_tokens: float, cached_tokens: float) -> float:
        """Seconds that one request adds to a step whatever it shares it with: its attention."""
        return self.prefill.attention_s(new_tokens, cached_tokens)

    def added_s(
        self, new_tokens: float, work_s: float, *, steps: int, is_start: bool, batch: int
    ) -> float:
        """Seconds that `new_tokens` and `work_s` in all add to `steps` decode steps of `batch`.

        With no batch these are the seconds of the steps.
        """
        if new_tokens <= 0:
            return work_s
        prefill = self.prefill
        part = self.decode.part_of(batch) if self.decode.stages > 1 else batch
        riding = steps * part
        least = steps * self.decode.weights_s(part or 1)
        tokens = prefill.tokens_s(new_tokens + riding, is_start=is_start, steps=steps)
        if steps == 1 and new_tokens < (balance := prefill.balance_tokens):
            top = prefill.tokens_s(balance + riding)
            tokens = min(tokens, least + (top - least) * new_tokens / balance)
        if batch:
            return work_s + (tokens - least if tokens > least else 0.0)
        return work_s + (tokens if tokens > least else least)

    def step_s(
        self,
        new_tokens: float,
        work_s: float,
        *,
        steps: int = 1,
        is_start: bool = True,
        batch: int = 0,
        context_tokens: float = 0.0,
    ) -> float:
        """Seconds of the steps with all that they carry."""
        added_s = self.added_s(new_tokens, work_s, steps=steps, is_start=is_start, batch=batch)
        return added_s + steps * self.decode.step_s(batch, context_tokens)
