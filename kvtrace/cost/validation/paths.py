"""The path grammar of validation points: `TIER[>[N x]LINK]>TIER [words]` into tiers and links."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

Protocol = Literal["pcie", "nvlink", "c2c", "rdma", "efa", "tcp", "cxl", "client", "gds"]
Tier = Literal["hbm", "dram", "remote_dram", "cxl", "nvme", "dfs", "nfs", "object", "pool"]

_TIERS: Final[tuple[tuple[str, Tier], ...]] = (
    (r"(remote|peer|other).*(dram|memory|host|cpu)", "remote_dram"),
    (r"hbm|gpu( memory)?|vram|device", "hbm"),
    (r"cxl", "cxl"),
    (r"nvme|ssd|disk|raid|flash", "nvme"),
    (r"object|s3|gcs|aios|blob|minio", "object"),
    (r"nfs|cloud file", "nfs"),
    (r"3fs|storage|gpfs|lustre|weka|vast|ceph|parallel fs|file ?system|\bfs\b", "dfs"),
    (r"dram|ddr|cpu|host|node|grace|lpddr|\bram\b", "dram"),
    (r"pool|mooncake|lmcache|store|redis|valkey", "pool"),
    (r"client|server", "dram"),
)  # fmt: skip
_LINKS: Final[tuple[tuple[str, Protocol], ...]] = (
    (r"nvlink-?c2c|c2c", "c2c"),
    (r"nvlink|nvswitch|xgmi|p2p", "nvlink"),
    (r"\bgds\b|gpudirect ?storage|cufile", "gds"),
    (r"pcie", "pcie"),
    (r"cxl", "cxl"),
    (r"efa", "efa"),
    (r"tcp|ethernet|\beth\b", "tcp"),
    (r"rdma|roce|\bib\b|\bib\d|infiniband|\bndr|\bxdr|\bhdr", "rdma"),
    (r"^(\d+ ?x ?)?\d+g( client)?$", "client"),
)
_CLIENT: Final = re.compile(r"^(\d+ ?x ?)?\d+g client$")
"""A client's ports stand for its memory too."""
_COUNT: Final = re.compile(r"(?:^|\s)(\d+)\s*[x×]\s*")
_SPEED: Final = re.compile(r"(\d+)\s*g(?:b(?:it)?(?:/s|ps)?)?\b")
_GENERATION: Final = re.compile(r"(?:pcie|nvlink)[ -]?(?:gen)? ?(\d)")
_PAGE: Final = re.compile(r"page\s+(\d+)\s+tokens?")
_RANKS: Final = re.compile(r"\bx(\d+)\b")


@dataclass(frozen=True, slots=True)
class PathLink:
    """A link that a path names."""

    protocol: Protocol
    count: int
    """Ports or links side by side."""
    gbit_per_s: int | None
    """Line rate of one port; null where not named."""
    generation: int | None
    """Of PCIe or NVLink; null where not named."""


@dataclass(frozen=True, slots=True)
class PathText:
    """A path as its text names it."""

    tiers: tuple[Tier, ...]
    """From where the bytes lie to where they go."""
    names: tuple[str, ...]
    """The tiers as written."""
    links: tuple[tuple[PathLink, ...], ...]
    """The links between each tier and the next; none where none is named."""
    words: frozenset[str]
    """In lower case: dma, kernel, layerwise, gpudirect, read, write, compressed, …"""
    page_tokens: int | None
    ranks: int | None
    """`x4`: ranks that load their shares at once."""
    is_per_rank: bool


def parse_path(text: str) -> PathText | str:
    """The path, or the reason why the text is none."""
    segments = [segment.strip().lower() for segment in re.split(r"\s*(?:>|->|→)\s*", text.strip())]
    if not text.strip() or not all(segments):
        return "no path" if not text.strip() else f"`{text}` has an empty part"
    tiers: list[Tier] = []
    names: list[str] = []
    links: list[tuple[PathLink, ...]] = []
    between: list[PathLink] = []
    for position, segment in enumerate(segments):
        is_end = position in (0, len(segments) - 1)
        link = None if is_end and not _CLIENT.search(segment) else _link(segment)
        tier = _tier(segment) if link is None else None
        if link is None and tier is None and position and _link(segment) is not None:
            link = _link(segment)
        if link is not None:
            between.append(link)
        elif tier is not None:
            if tiers:
                links.append(tuple(between))
            between = []
            tiers.append(tier)
            names.append(segment)
        else:
            return f"`{segment}` is neither a tier nor a link that is known"
    if between and tiers:  # `3FS>1x400G client`: into the client's memory
        links.append(tuple(between))
        tiers.append("dram")
        names.append(segments[-1])
    if not tiers:
        return f"`{text}` names no tier"
    if any("/" in name for name in names):
        return f"`{text}` leaves open which tier it is"
    return _with_words(tuple(tiers), tuple(names), tuple(links), text.lower())


def _with_words(
    tiers: tuple[Tier, ...],
    names: tuple[str, ...],
    links: tuple[tuple[PathLink, ...], ...],
    text: str,
) -> PathText:
    last = text.rsplit(">", 1)[-1]
    page, ranks = _PAGE.search(last), _RANKS.search(last)
    return PathText(
        tiers=tiers,
        names=names,
        links=links,
        words=frozenset(re.findall(r"[a-z_]+", text.replace("-", ""))),
        page_tokens=None if page is None else int(page.group(1)),
        ranks=None if ranks is None else int(ranks.group(1)),
        is_per_rank="per rank" in last or "a rank" in last,
    )


def _link(segment: str) -> PathLink | None:
    for pattern, protocol in _LINKS:
        if re.search(pattern, segment) is None:
            continue
        count, speed = _COUNT.search(segment), _SPEED.search(segment)
        generation = _GENERATION.search(segment)
        return PathLink(
            protocol=protocol,
            count=1 if count is None else max(1, int(count.group(1))),
            gbit_per_s=None if speed is None else int(speed.group(1)),
            generation=None if generation is None else int(generation.group(1)),
        )
    return None


def _tier(segment: str) -> Tier | None:
    for pattern, tier in _TIERS:
        if re.search(pattern, segment) is not None:
            return tier
    return None
