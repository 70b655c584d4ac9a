"""The summary line of the Mooncake master, in all its generations.

Lines read from the sources of Mooncake of June 2025 (1), August 2025 to v0.3.9 (2), an interim
spelling of the batch part (2b), and May 2026 (3: rates a second instead of counters). An item of a
batch is an object (a page or chunk of one layer or rank), neither a token nor a request. `Exist`
succeeds when the call worked, whether the key is there or not, so it says nothing of hits.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, Literal

from kvtrace.ingest.formats.mooncake_store.units import SIZE, size_bytes
from kvtrace.ingest.values.limits import MAX_COUNT

Generation = Literal["1", "2", "2b", "3"]
ADMIN: Final = "Master Admin Metrics: "
PLAIN: Final = "Master Metrics: "
_MAX_CHARS: Final = 16_384
_N = r"([0-9]{1,19}(?:\.[0-9]{1,6})?)"
_MASTER_BLOCK = re.compile(r"role=[\w-]{1,40}, state=[\w-]{1,40}(?:, [\w-]{1,40}=[\w-]{1,40})?, ")
_STORAGE = re.compile(rf"({SIZE}|infinite) / ({SIZE}|infinite)(?: \(([0-9.]{{1,8}})%\))?")
_KEYS = re.compile(r"([0-9]{1,19})(?: \(soft-pinned: [0-9]{1,19}\))?")
_BATCH_GET = re.compile(
    rf"(?:^|[ ,:])Get(?::\(Req={_N}/{_N}/{_N}, Item={_N}/{_N}\)|={_N}\+{_N}/{_N}\|{_N}/{_N})"
    r"(?=,|$| )"
)
_EVICTION = re.compile(
    rf"Success/Attempts=([0-9]{{1,19}})/([0-9]{{1,19}}), (?:AllocFail=([0-9]{{1,19}}), )?"
    rf"(?:PartialAlloc=[0-9]{{1,19}}, )?keys=([0-9]{{1,19}}), size=({SIZE})"
)
_PUT = re.compile(r"(?:^|[ ,])(?:PutStart|Put)=([0-9]{1,19})/([0-9]{1,19})(?=,|$)")
_SECTION = re.compile(r"([A-Z][\w -]{1,40}?)(?: \([^()]{1,120}\))?: ?(.*)", re.DOTALL)
_SHARE_SLACK: Final = 0.02
_NEEDED: Final = ("Keys", "Requests", "Eviction")


class DamagedSummary(ValueError):
    """The line is cut or spliced; the text names the part."""


@dataclass(frozen=True, slots=True)
class MasterSummary:
    """One summary line. Counters run since start (1, 2, 2b); in 3 they are of the interval."""

    generation: Generation
    used_bytes: float
    capacity_bytes: float | None
    usage_ratio: float | None
    ssd_used_bytes: float | None
    ssd_capacity_bytes: float | None
    has_ssd: bool
    objects: int
    clients: int | None
    found_items: float | None
    """Of batch gets; a rate a second in generation 3."""
    asked_items: float | None
    evicted_objects: int
    evicted_bytes: float
    failed_allocations: int | None
    puts: int | None
    """Put calls since start: a counter that shows a restart."""


def parse_master(message: str) -> MasterSummary:
    """The values of a summary line.

    Raises:
        DamagedSummary: it is not whole.
    """
    if len(message) > _MAX_CHARS:
        raise DamagedSummary("longer than any summary")
    is_admin = message.startswith(ADMIN)
    body = _admin_block(message[len(ADMIN) :]) if is_admin else message[len(PLAIN) :]
    sections = _sections(body)
    storage = sections.get("Mem Storage", sections.get("Storage"))
    if storage is None or any(name not in sections for name in _NEEDED):
        raise DamagedSummary("a part is missing")
    used, capacity, usage = _storage(storage)
    if used is None or not _agrees(used, capacity, usage):
        raise DamagedSummary("storage")
    ssd = sections.get("SSD Storage")
    ssd_used, ssd_capacity, _ = _storage(ssd) if ssd is not None else (None, None, None)
    batch = sections.get("Batch Requests")
    found, asked, is_interim = _batch_get(batch)
    evicted, failed, evicted_bytes = _eviction(sections["Eviction"])
    clients = sections.get("Clients")
    put = _PUT.search(sections["Requests"])
    generation: Generation = "3" if is_admin else "2b" if is_interim else "2" if batch else "1"
    return MasterSummary(
        generation=generation,
        used_bytes=used,
        capacity_bytes=capacity,
        usage_ratio=usage,
        ssd_used_bytes=ssd_used,
        ssd_capacity_bytes=ssd_capacity,
        has_ssd=ssd is not None,
        objects=_whole("keys", _KEYS.fullmatch(sections["Keys"])),
        clients=None if clients is None else _whole("clients", _KEYS.fullmatch(clients)),
        found_items=found,
        asked_items=asked,
        evicted_objects=evicted,
        evicted_bytes=evicted_bytes,
        failed_allocations=failed,
        puts=None if put is None or is_admin else _count("puts", put[2]),
    )


def _admin_block(body: str) -> str:
    """What stands in `master={…}`; what follows names hosts and is not looked at."""
    head = _MASTER_BLOCK.match(body)
    start = "master={"
    if head is None or not body.startswith(start, head.end()):
        raise DamagedSummary("head")
    end = body.find("}", head.end())
    if end < 0 or not body.startswith(", ha={", end + 1) or "}" not in body[end + 7 :]:
        raise DamagedSummary("its end")
    return body[head.end() + len(start) : end]


def _sections(body: str) -> dict[str, str]:
    """The parts between bars by name; counters of unknown parts are left alone."""
    found: dict[str, str] = {}
    for part in body.split(" | "):
        match = _SECTION.fullmatch(part.strip(" "))
        if match is None or match[1] in found:
            raise DamagedSummary("a part")
        found[match[1]] = match[2].rstrip(", ")
    return found


def _storage(text: str) -> tuple[float | None, float | None, float | None]:
    """(used, capacity, printed share)"""
    match = _STORAGE.fullmatch(text)
    if match is None:
        raise DamagedSummary("storage")
    share = None if match[3] is None else _decimal("share", match[3]).scaleb(-2)
    return size_bytes(match[1]), size_bytes(match[2]), None if share is None else float(share)


def _agrees(used: float, capacity: float | None, usage: float | None) -> bool:
    """Whether the printed share is that of the two sizes, all being rounded."""
    return not capacity or usage is None or abs(used / capacity - usage) <= _SHARE_SLACK


def _batch_get(text: str | None) -> tuple[float | None, float | None, bool]:
    """(items found, items asked for, whether in the interim spelling); None without that part."""
    if text is None:
        return None, None, False
    match = _BATCH_GET.search(text)
    if match is None:
        raise DamagedSummary("batch requests")
    is_interim = match[4] is None
    found, asked = (match[9], match[10]) if is_interim else (match[4], match[5])
    if Decimal(found) > Decimal(asked):
        raise DamagedSummary("more items found than asked for")
    return float(found), float(asked), is_interim


def _eviction(text: str) -> tuple[int, int | None, float]:
    match = _EVICTION.fullmatch(text)
    size = None if match is None else size_bytes(match[5])
    if match is None or size is None:
        raise DamagedSummary("eviction")
    failed = None if match[3] is None else _count("failed allocations", match[3])
    return _count("evicted keys", match[4]), failed, size


def _whole(name: str, match: re.Match[str] | None) -> int:
    if match is None:
        raise DamagedSummary(name)
    return _count(name, match[1])


def _count(name: str, text: str) -> int:
    value = int(text)
    if value > MAX_COUNT:
        raise DamagedSummary(name)
    return value


def _decimal(name: str, text: str) -> Decimal:
    try:
        return Decimal(text)
    except ArithmeticError:
        raise DamagedSummary(name) from None
