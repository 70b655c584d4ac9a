"""From what LMCache said of one request to its row: what the engine held and what was loaded.

Local = `C` if printed, else `H - L`; where the whole prompt was found, one token less was to be
loaded, so that the engine has one to compute. A load that came short is recomputed from there on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from kvtrace.ingest.contract import RequestRow
from kvtrace.ingest.formats.lmcache_text.book import Seen
from kvtrace.ingest.formats.lmcache_text.messages import Found, Lookup
from kvtrace.ingest.formats.lmcache_text.moves import PooledMove

Tier = Literal["host", "disk", "remote"]
BACKEND_TIERS: Final[dict[str, Tier]] = {
    "LocalCPUBackend": "host",
    "LocalDiskBackend": "disk",
    "GdsBackend": "disk",
    "RemoteBackend": "remote",
    "P2PBackend": "remote",
}


@dataclass(frozen=True, slots=True)
class Layout:
    """What the log says of where KV lies and how large its units are."""

    key_tokens: int
    """Tokens that one key of the multiprocess server stands for."""
    chunk_tokens: int
    only_tier: Tier | None
    """The tier of the only backend that was made."""


@dataclass(slots=True)
class _External:
    """Tokens from outside HBM, by tier as far as known."""

    tokens: int
    host: int | None = None
    disk: int | None = None
    remote: int | None = None


def request_row(seen: Seen, layout: Layout) -> RequestRow | None:
    """The row of one request; None if it was never looked up."""
    if seen.lookup is None:
        return None if seen.found is None else _found_row(seen, seen.found, layout)
    lookup, flags = seen.lookup, list[str]()
    if lookup.hit_tokens is None:
        return RequestRow(
            offset=seen.offset,
            line=seen.line,
            request_id=seen.request_id,
            prompt_tokens=lookup.prompt_tokens,
            status="open",
            flags=("lookup_pending",),
        )
    device = _device_tokens(lookup)
    external = _external(seen, lookup, layout, flags)
    if device + external.tokens > lookup.prompt_tokens:
        external = _External(lookup.prompt_tokens - device)
        flags.append("more_loaded_than_prompt")
    return RequestRow(
        offset=seen.offset,
        line=seen.line,
        request_id=seen.request_id,
        prompt_tokens=lookup.prompt_tokens,
        cached_tokens=device + external.tokens,
        cached_device_tokens=device,
        cached_host_tokens=external.host,
        cached_disk_tokens=external.disk,
        cached_remote_tokens=external.remote,
        computed_tokens=lookup.prompt_tokens - device - external.tokens,
        flags=tuple(flags),
    )


def _device_tokens(lookup: Lookup) -> int:
    """What the engine itself held of the prompt."""
    if lookup.computed_tokens is not None:
        return lookup.computed_tokens
    hit = lookup.hit_tokens or 0
    is_whole = hit == lookup.prompt_tokens and hit > 0
    return max(0, hit - lookup.load_tokens - is_whole)


def _external(seen: Seen, lookup: Lookup, layout: Layout, flags: list[str]) -> _External:
    """What was really loaded of what was to be loaded."""
    wanted = max(0, lookup.load_tokens)
    if wanted == 0:
        return _External(0, 0, 0, 0)
    tokens = wanted
    if seen.load is None:
        flags.append("load_not_confirmed")
    elif seen.load.missing_tokens > 0:
        flags.append("partial_load")
        tokens = max(0, wanted - seen.load.missing_tokens)
    external = _External(tokens)
    if tokens == 0:
        return _External(0, 0, 0, 0)
    tier = load_tier(seen.load, layout)
    found = seen.found
    if tier is None and found is not None and found.host_keys is not None:
        if found.remote_keys == 0:
            tier = "host"
        elif found.host_keys == 0:
            tier = "remote"
    if tier is not None:
        external.host = external.disk = external.remote = 0
        setattr(external, tier, tokens)
    return external


def load_tier(load: PooledMove | None, layout: Layout) -> Tier | None:
    """Where all of a load came from; None where the log leaves it open."""
    if load is not None and load.backend is not None:
        tier = BACKEND_TIERS.get(load.backend)
        covers = load.fetched_chunks * layout.chunk_tokens >= load.tokens
        return tier if covers else None
    return layout.only_tier


def _found_row(seen: Seen, found: Found, layout: Layout) -> RequestRow:
    """A look-up of the multiprocess server: the length of the prompt is not said.

    Its prefix is counted from the first token, so what the engine held itself is in it: only a
    load tells how much was needed of it.
    """
    tokens = found.found_keys * layout.key_tokens
    row = RequestRow(
        offset=seen.offset, line=seen.line, request_id=seen.request_id, flags=("found_in_chunks",)
    )
    if tokens == 0:
        row.cached_host_tokens = row.cached_disk_tokens = row.cached_remote_tokens = 0
        return row
    host = None if found.host_keys is None else found.host_keys * layout.key_tokens
    remote = None if found.remote_keys is None else found.remote_keys * layout.key_tokens
    if seen.load is None:
        row.cached_tokens, row.cached_host_tokens, row.cached_remote_tokens = tokens, host, remote
        row.flags = (*row.flags, "load_not_confirmed")
        return row
    loaded = min(tokens, seen.load.tokens)
    row.cached_tokens, row.cached_device_tokens = tokens, tokens - loaded
    if loaded == tokens:
        row.cached_host_tokens, row.cached_remote_tokens = host, remote
    elif remote == 0:
        row.cached_host_tokens, row.cached_remote_tokens = loaded, 0
    return row
