"""What the references of reuse queries share: random traces, and a cache without end."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from kvtrace.duckdb_session import Session
from tests.property.test_reuse_lru import any_ids, simulate_lru, trees
from tests.traces import Traced, create_tables, tables

BLOCK = 4
SECOND = 1_000_000_000


@dataclass
class Looked:
    """One request as the reference sees it."""

    prompt: int
    blocks: int
    partial: bool
    hit: int
    arrived: int
    gaps: list[int]
    """Nanoseconds since the last use of each reusable block."""

    def tokens(self, blocks: int) -> int:
        """Prompt tokens in the first blocks."""
        return min(blocks * BLOCK, self.prompt)


def arrival(request: Traced) -> int:
    """When the request arrived, ns."""
    return int(str(request.columns["arrived_at_ns"]))


def prompt_of(request: Traced) -> int:
    """Prompt tokens of the request."""
    short = (BLOCK - request.tail_tokens) if request.tail_tokens else 0
    return len(request.blocks) * BLOCK - short


def look_up(requests: list[Traced], hits: list[int]) -> list[Looked]:
    """Each request with its hit blocks, in arrival order."""
    last_use: dict[int, int] = {}
    found = []
    for request, hit in zip(requests, hits, strict=True):
        arrived = arrival(request)
        gaps = [arrived - last_use[block] for block in request.blocks[:hit]]
        last_use |= dict.fromkeys(request.blocks, arrived)
        blocks = len(request.blocks)
        partial = request.tail_tokens > 0
        found.append(Looked(prompt_of(request), blocks, partial, hit, arrived, gaps))
    return found


@st.composite
def timed(draw: st.DrawFn, made: st.SearchStrategy[list[Traced]]) -> list[Traced]:
    """These requests and repeats of some, partial tails too, in order of arrival; none is empty."""
    requests = [request for request in draw(made) if request.blocks]
    if requests:
        repeated = draw(st.lists(st.sampled_from(requests), max_size=2))
        requests += [Traced(one.blocks, tail_tokens=one.tail_tokens) for one in repeated]
    clock = 0
    for request in requests:
        clock += draw(st.sampled_from([0, SECOND // 3, SECOND, 5 * SECOND]))
        request.columns["arrived_at_ns"] = clock
    return requests


def timed_trees() -> st.SearchStrategy[list[Traced]]:
    """Requests whose ids are chained: every block has one predecessor."""
    return timed(trees())


def timed_any() -> st.SearchStrategy[list[Traced]]:
    """Trees, and requests of any ids, repeated ones too."""
    return timed(trees() | any_ids)


def load(session: Session, requests: list[Traced]) -> None:
    """Fill the session with this trace."""
    create_tables(session, tables(requests, block_size_tokens=BLOCK))


def unlimited(requests: list[Traced]) -> list[Looked]:
    """The trace in a cache without end."""
    return look_up(requests, simulate_lru([request.blocks for request in requests], 10**9))


def leading(blocks: list[bool]) -> int:
    """How many are true before the first that is not."""
    return blocks.index(False) if False in blocks else len(blocks)
