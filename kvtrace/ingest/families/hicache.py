"""Where SGLang's HiCache served a prompt from: device, host, and a storage of many kinds.

Shapes read from the sources of SGLang 0.5.10 to 0.5.23 (`cached_tokens_details` of meta_info and of
bench_serving): `{"device": n, "host": n[, "storage": n, "storage_backend": "…"]}`, null when no
cache report is made. The backend is written as its option or as the name of its class.
"""

from __future__ import annotations

import functools
from typing import Final, Literal

import msgspec

from kvtrace.ingest.contract import ReadContext, RequestRow
from kvtrace.ingest.values.jsonfields import count_of

_DISK: Final = frozenset({"file", "hicachefile", "hicachefilestorage", "nfs", "disk", "local"})
_REMOTE: Final = ("mooncake", "hf3fs", "3fs", "aibrix", "eic", "simm", "lmcache", "redis", "s3")


class CachedDetails(msgspec.Struct, gc=False):
    """Cached tokens of one request by tier, as written."""

    device: int | None = None
    host: int | None = None
    storage: int | None = None
    storage_backend: str | None = None


@functools.lru_cache(maxsize=64)
def storage_tier(backend: str | None) -> Literal["disk", "remote"] | None:
    """The tier of a storage backend by its name; None if the name does not tell.

    A shared file system that is mounted counts as disk: the engine reads files.
    """
    name = (backend or "").strip().lower()
    if name in _DISK:
        return "disk"
    return "remote" if any(part in name for part in _REMOTE) else None


def fill_tiers(row: RequestRow, details: CachedDetails | None, context: ReadContext) -> str | None:
    """Fill the row's tiers; gives the tier that its storage tokens were put to, None if none.

    Storage of an unknown kind is counted as remote, with a note.

    Raises:
        msgspec.ValidationError: a count is negative or larger than any count.
    """
    if details is None:
        return None
    row.cached_device_tokens = count_of("cached_tokens_details.device", details.device)
    row.cached_host_tokens = count_of("cached_tokens_details.host", details.host)
    storage = count_of("cached_tokens_details.storage", details.storage)
    parts = [row.cached_device_tokens, row.cached_host_tokens, storage]
    known = [part for part in parts if part is not None]
    if row.cached_tokens is not None and sum(known) > row.cached_tokens:
        row.flags = (*row.flags, "tiers_above_cached")
    if storage is None:
        return None
    tier = storage_tier(details.storage_backend)
    if tier is None and storage:
        context.note(
            "storage_backend_unknown",
            "A storage backend of HiCache is not named or not known; its tokens are counted as"
            " remote.",
        )
    if tier == "disk":
        row.cached_disk_tokens = storage
        return "disk"
    row.cached_remote_tokens = storage
    return "remote"
