"""Token usage as providers and gateways write it, brought to one meaning.

A prompt count includes the cached tokens or leaves them out, depending on who wrote it;
`shapes.py` says which for every producer. Where names alone do not settle it, the numbers decide:
more cached than prompt tokens means left out; a total that fits one of the two sums means that one;
else the usual reading of the names, and `is_assumed` says so. Unknown counts are null:
`prompt_tokens_details: null` is no measured zero.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

import msgspec

from kvtrace.ingest.usage.shapes import LANGFUSE, OTEL, OTEL_SPEC_KEYS, SHAPES, Shape
from kvtrace.ingest.usage.values import count_at, parsed_count
from kvtrace.ingest.values.jsonfields import count_of

Rule = Literal[
    "documented",
    "nothing_cached",
    "cached_exceeds_prompt",
    "total",
    "rest_of_total",
    "spec",
    "usual",
    "none",
]
"""What settled the prompt count: the producer's own definition; nothing was cached, so both
readings agree; an impossible sum; the total; the total without the output, where there is no prompt
count; a convention that defines the names, which not all
writers follow; the usual reading of the names (assumed); no count."""
ASSUMED_FLAG: Final = "cache_semantics_assumed"
"""Nothing tells whether the prompt count includes the cache; it is read the usual way."""
TOTAL_MISMATCH: Final = "total_mismatch"
CONTRADICTION: Final = "usage_contradiction"


class TokenUsage(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Tokens of one request; null is unknown."""

    shape: str
    """Which producer's names these are."""
    prompt_tokens: int | None = None
    """Uncached, read from a cache and written to one."""
    cached_tokens: int | None = None
    cached_device_tokens: int | None = None
    cached_external_tokens: int | None = None
    """Fetched by a KV connector from outside HBM, of whatever kind."""
    cache_write_tokens: int | None = None
    output_tokens: int | None = None
    """Reasoning included."""
    reasoning_tokens: int | None = None
    rule: Rule = "none"
    is_inclusive: bool | None = None
    """How the prompt count was read; null where both readings agree."""
    flags: tuple[str, ...] = ()

    @property
    def is_assumed(self) -> bool:
        """Whether nothing in the record settles what the prompt count includes."""
        return self.rule == "usual"

    @property
    def is_open(self) -> bool:
        """Whether other records of the same producer may tell more than this one."""
        return self.rule in ("usual", "spec")

    @property
    def is_proof(self) -> bool:
        """Whether the numbers of the record prove what its prompt count includes."""
        return self.rule in ("cached_exceeds_prompt", "total") and self.is_inclusive is not None


def read_usage(usage: Mapping[str, object], *, is_copied: bool = False) -> TokenUsage | None:
    """The tokens of a usage object; None if it has no count of a known name.

    `is_copied`: a gateway wrote the counts of any provider under these names, so that the names
    settle nothing.

    Raises:
        msgspec.ValidationError: a count is negative, fractional, too large or no number.
    """
    shape = next((entry for entry in SHAPES if any(mark in usage for mark in entry.marks)), None)
    if shape is None:
        return None
    if shape.name == "anthropic":
        usage = _over_iterations(usage)
    found = _Counts.of(shape, usage)
    if shape.name == "deepseek":
        found.add_misses(count_at(usage, ("prompt_cache_miss_tokens",)))
    elif shape.name == "anthropic":
        found.add_ephemeral(usage)
    elif shape.name == "openai":
        found.add_places(usage)
    elif shape.name == "gemini":
        found.add_tool_prompt(usage)
    return _settled(shape, found, is_sure=not is_copied and _is_sure(shape, usage))


def read_attributes(attributes: Mapping[str, object]) -> TokenUsage | None:
    """The tokens of a flat set of OpenTelemetry attributes (`gen_ai.usage.*`); None without any.

    Covers OpenInference (`llm.token_count.*`) and OpenLLMetry (`llm.usage.*`). The conventions of
    2026 say that the prompt count includes the cache; not every instrumentation follows.

    Raises:
        msgspec.ValidationError: a count is negative, fractional, too large or no number.
    """
    found = _Counts.of(OTEL, attributes)
    if found.prompt is None and found.output is None and found.cached is None:
        return None
    usage = _settled(OTEL, found, is_sure=False)
    if usage.rule == "usual" and not OTEL_SPEC_KEYS.isdisjoint(attributes):
        return msgspec.structs.replace(usage, rule="spec")
    return usage


def read_buckets(details: Mapping[str, object]) -> TokenUsage | None:
    """The tokens of Langfuse's usageDetails: `input`, `output` and disjoint `input_*`, `output_*`.

    Many producers write an inclusive `input` beside the buckets; the total tells. Objects of other
    names go to `read_usage`.

    Raises:
        msgspec.ValidationError: a count is negative, fractional, too large or no number.
    """
    if not any(name in details for name in ("input", "output")):
        return read_usage(details)
    buckets = {
        name: parsed_count("usageDetails", value)  # the key may be anybody's text
        for name, value in details.items()
        if name.startswith(_BUCKETS)
    }
    cached = _sum_of(buckets, _is_cached)
    write = _sum_of(buckets, _is_write)
    other = _sum_of(buckets, lambda name: name.startswith("input_") and not _is_cache(name)) or 0
    reasoning = _sum_of(buckets, lambda name: name.startswith("output_"))
    found = _Counts(
        prompt=buckets.get("input"),
        cached=cached,
        write=write,
        beside=other,
        output=buckets.get("output"),
        reasoning=reasoning,
        total=buckets.get("total"),
    )
    return _settled(LANGFUSE, found, is_sure=False)


_BUCKETS: Final = ("input", "output", "total", "cache")


def _is_cached(name: str) -> bool:
    return name.startswith(("input_cached", "input_cache_read", "cache_read", "cached"))


def _is_write(name: str) -> bool:
    return name.startswith(("input_cache_creation", "input_cache_write", "cache_creation"))


def _is_cache(name: str) -> bool:
    return _is_cached(name) or _is_write(name)


def _sum_of(buckets: Mapping[str, int | None], wanted: Callable[[str], bool]) -> int | None:
    """The sum of the known buckets; None if there are none."""
    known = [count for name, count in buckets.items() if count is not None and wanted(name)]
    return sum(known) if known else None


@dataclass(slots=True)
class _Counts:
    """The counts as they stand, before anything is made of them."""

    prompt: int | None
    cached: int | None
    write: int | None
    output: int | None
    reasoning: int | None
    total: int | None
    beside: int = 0
    """Prompt tokens in buckets of their own that are no cache (audio, images)."""
    device: int | None = None
    external: int | None = None
    flags: list[str] = field(default_factory=list)
    doubted: set[str] = field(default_factory=set)
    """Counts that others of the record contradict."""

    def contradict(self, *names: str) -> None:
        """Counts do not fit each other; these are then not known."""
        self.flags.append(CONTRADICTION)
        self.doubted.update(names)

    @classmethod
    def of(cls, shape: Shape, usage: Mapping[str, object]) -> _Counts:
        return cls(
            prompt=count_at(usage, shape.prompt),
            cached=count_at(usage, shape.cached),
            write=count_at(usage, shape.write),
            output=count_at(usage, shape.output),
            reasoning=count_at(usage, shape.reasoning),
            total=count_at(usage, shape.total),
        )

    def add_misses(self, misses: int | None) -> None:
        """DeepSeek splits the prompt in hits and misses."""
        if misses is None:
            return
        if self.cached is None:
            is_part = self.prompt is not None and misses <= self.prompt
            self.cached = (self.prompt or 0) - misses if is_part else None
            return
        if self.prompt is None:
            self.prompt = self.cached + misses
        elif self.prompt != self.cached + misses:
            self.contradict("cached")

    def add_tool_prompt(self, usage: Mapping[str, object]) -> None:
        """Gemini counts what tools put into the prompt apart from it."""
        of_tools = count_at(usage, ("toolUsePromptTokenCount", "tool_use_prompt_token_count"))
        if self.prompt is not None and of_tools is not None:
            self.prompt += of_tools

    def add_ephemeral(self, usage: Mapping[str, object]) -> None:
        """Anthropic splits the writes by time to live."""
        parts = [
            count_at(usage, (f"cache_creation/ephemeral_{life}_input_tokens",))
            for life in ("5m", "1h")
        ]
        known = [part for part in parts if part is not None]
        if not known:
            return
        if self.write is None:
            self.write = sum(known)
        elif self.write != sum(known):
            self.contradict("write")

    def add_places(self, usage: Mapping[str, object]) -> None:
        """Newer vLLM says what was in HBM and what a KV connector fetched."""
        self.device = count_at(usage, ("prompt_tokens_details/local_cached_tokens",))
        self.external = count_at(usage, ("prompt_tokens_details/external_cached_tokens",))
        if self.device is None or self.external is None:
            return
        if self.cached is None:
            self.cached = self.device + self.external
        elif self.cached != self.device + self.external:
            self.contradict("cached", "device", "external")


def _over_iterations(usage: Mapping[str, object]) -> Mapping[str, object]:
    """Anthropic's counts summed over `iterations`, which the top level does not always contain."""
    entries = usage.get("iterations")
    if not isinstance(entries, Sequence) or isinstance(entries, str):
        return usage
    parts = [entry for entry in entries if isinstance(entry, Mapping)]
    names = (
        "input_tokens",
        "cache_read_input_tokens",
        "cache_creation_input_tokens",
        "output_tokens",
    )
    summed: dict[str, object] = {}
    for name in names:
        known = [count for part in parts if (count := count_at(part, (name,))) is not None]
        if known and len(known) == len(entries):
            summed[name] = sum(known)
    if "cache_creation_input_tokens" in summed:
        summed["cache_creation"] = None  # the split of the last iteration alone
    return {**usage, **summed}


def _is_sure(shape: Shape, usage: Mapping[str, object]) -> bool:
    """Whether only a producer with this definition writes such an object."""
    if shape.settled_by is None:
        return False
    return not shape.settled_by or any(name in usage for name in shape.settled_by)


def _settled(shape: Shape, found: _Counts, *, is_sure: bool) -> TokenUsage:
    """The counts with one meaning."""
    flags = found.flags
    is_inclusive, output, rule = _reading(shape, found, is_sure=is_sure)
    prompt = found.prompt
    if prompt is not None and is_inclusive is not True:
        prompt += (found.cached or 0) + (found.write or 0) + found.beside
    if None not in (found.total, prompt, output) and found.total != (prompt or 0) + (output or 0):
        flags.append(TOTAL_MISMATCH)
    is_known = found.cached or found.write or found.beside
    for name in found.doubted:
        setattr(found, name, None)
    return TokenUsage(
        shape=shape.name,
        prompt_tokens=count_of("prompt_tokens", prompt),
        cached_tokens=found.cached,
        cached_device_tokens=found.device,
        cached_external_tokens=found.external,
        cache_write_tokens=found.write,
        output_tokens=count_of("output_tokens", output),
        reasoning_tokens=found.reasoning,
        rule=rule,
        is_inclusive=is_inclusive if is_known else None,
        flags=tuple(dict.fromkeys(flags)),
    )


def _reading(
    shape: Shape, found: _Counts, *, is_sure: bool
) -> tuple[bool | None, int | None, Rule]:
    """(whether the prompt count includes the cache, output with reasoning, what settled it)."""
    outputs = _outputs(shape, found)
    output = outputs[0]
    if found.prompt is None:
        if found.total is None or output is None or output > found.total:
            return None, output, "none"
        found.prompt = found.total - output
        return True, output, "rest_of_total"
    held = (found.cached or 0) + (found.write or 0) + found.beside
    of_total = _by_total(found, outputs, held)
    if of_total is not None:
        output = of_total[1]
    if held == 0:
        return None, output, "nothing_cached"
    if held - found.beside > found.prompt and not (is_sure and of_total and of_total[0]):
        if of_total and of_total[0]:
            found.contradict()
        return False, output, "cached_exceeds_prompt"
    if is_sure and not shape.is_inclusive:
        return False, output, "documented"  # a total of input and output is what clients add up
    if of_total is not None:
        return of_total[0], output, "total"
    return shape.is_inclusive, output, "documented" if is_sure else "usual"


def _outputs(shape: Shape, found: _Counts) -> list[int | None]:
    """The output with reasoning as the producer defines it, then as others write it."""
    if found.reasoning is None:
        return [found.output]
    if found.output is None:
        return [found.reasoning if shape.is_reasoning_apart else None]
    both = found.output + found.reasoning
    return [both, found.output] if shape.is_reasoning_apart else [found.output, both]


def _by_total(
    found: _Counts, outputs: Sequence[int | None], held: int
) -> tuple[bool, int | None] | None:
    """(whether the prompt count includes the cache, the output) where a total fits just one sum."""
    if found.total is None or found.prompt is None:
        return None
    for output in outputs:
        rest = found.total - (output or 0)
        if output is not None and rest in (found.prompt, found.prompt + held):
            return rest == found.prompt, output
    return None
