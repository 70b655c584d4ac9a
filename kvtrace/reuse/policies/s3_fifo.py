"""S3-FIFO over prefixes: a small queue that sieves, a main queue with second chances, ghosts."""

from __future__ import annotations

from typing import Final

from kvtrace.reuse.policies.kernels import Bools, Ints

SMALL_SHARE: Final = 10
"""One part in so many of the room is the small queue's."""
PROMOTE_FROM: Final = 2
"""Uses in the small queue from which a block goes on to the main queue."""
MOST_USES: Final = 3
"""Uses that the main queue remembers: two bits."""


def s3_fifo_hits(
    block: Ints,
    offset: Ints,
    weight: Ints,
    admitted: Bools,
    room: int,
    small_room: int,
    ghost_room: int,
    state: Ints,
    uses: Ints,
    parent: Ints,
    kids: Ints,
    owner: Ints,
    ghost_place: Ints,
    small: Ints,
    main: Ints,
    ghosts: Ints,
    hit: Ints,
    stored: Ints,
) -> None:
    """Fill `hit` and `stored` (requests,) under S3-FIFO; the other arrays are scratch.

    A block enters the small queue, or the main one if it is a ghost (or if small is full while
    nothing was evicted yet). Small lets its oldest go, to main if it was used twice meanwhile; main
    gives its oldest another round for each use. A block with cached blocks after it, or of the
    request itself, takes another round in its queue whatever its uses. States: 1 small, 2 main,
    3 ghost.
    `small` and `main` are rings of (blocks + 1,), `ghosts` (refs + 1,); `parent` and `owner` come
    as -1, the rest as 0.

    Source: Yang, Zhang, Qiu, Yue, Vinayak, FIFO queues are all you need, SOSP 2023, section 4.
    """
    ring = len(small)
    in_small, in_main, in_ghosts = 0, 0, 0
    small_out, small_in, main_out, main_in, ghost_out, ghost_in = 0, 0, 0, 0, 0, 0
    was_full = False
    for request in range(len(offset) - 1):
        start, end = offset[request], offset[request + 1]
        place = start
        while place < end and 1 <= state[block[place]] <= 2:
            place += 1
        hit[request] = place - start
        for i in range(end - 1, start - 1, -1):
            if 1 <= state[block[i]] <= 2:
                owner[block[i]] = request
                uses[block[i]] += 1
        place, last = start, -1
        while place < end:
            new = block[place]
            if state[new] == 0 or state[new] == 3:
                if not admitted[place]:
                    break
                size = weight[new]
                is_ghost = state[new] == 3
                if is_ghost:
                    state[new] = 0
                    in_ghosts -= size
                while in_small + in_main + size > room:
                    was_full, gone = True, -1
                    is_small = in_small > 0 and in_main <= room - small_room
                    for _ in range(2):
                        looks = small_in - small_out if is_small else 4 * (main_in - main_out)
                        while gone < 0 and looks > 0:
                            looks -= 1
                            if is_small:
                                oldest = small[small_out % ring]
                                small_out += 1
                            else:
                                oldest = main[main_out % ring]
                                main_out += 1
                            is_bound = kids[oldest] > 0 or owner[oldest] == request
                            if is_small and uses[oldest] >= PROMOTE_FROM:
                                state[oldest] = 2
                                uses[oldest] = 0
                                in_small -= weight[oldest]
                                in_main += weight[oldest]
                                main[main_in % ring] = oldest
                                main_in += 1
                            elif is_small and is_bound:
                                small[small_in % ring] = oldest
                                small_in += 1
                            elif not is_small and (is_bound or uses[oldest] > 0):
                                uses[oldest] = max(0, min(uses[oldest], MOST_USES) - 1)
                                main[main_in % ring] = oldest
                                main_in += 1
                            else:
                                gone = oldest
                        if gone >= 0:
                            break
                        is_small = not is_small
                    if gone < 0:
                        break
                    state[gone] = 0
                    if parent[gone] >= 0:
                        kids[parent[gone]] -= 1
                    if not is_small:
                        in_main -= weight[gone]
                        continue
                    in_small -= weight[gone]
                    if weight[gone] <= ghost_room:
                        state[gone] = 3
                        ghosts[ghost_in] = gone
                        ghost_place[gone] = ghost_in
                        ghost_in += 1
                        in_ghosts += weight[gone]
                    while in_ghosts > ghost_room:
                        out = ghosts[ghost_out]
                        if state[out] == 3 and ghost_place[out] == ghost_out:
                            state[out] = 0
                            in_ghosts -= weight[out]
                        ghost_out += 1
                if in_small + in_main + size > room:
                    break
                if is_ghost or (not was_full and in_small >= small_room):
                    state[new] = 2
                    in_main += size
                else:
                    state[new] = 1
                    in_small += size
                uses[new] = 0
                parent[new] = last
                owner[new] = request
                ghost_place[new] = -1
                if last >= 0:
                    kids[last] += 1
            last = new
            place += 1
        stored[request] = place - start
        for i in range(place - 1, start - 1, -1):
            if ghost_place[block[i]] == -1:
                ghost_place[block[i]] = 0
                if state[block[i]] == 1:
                    small[small_in % ring] = block[i]
                    small_in += 1
                else:
                    main[main_in % ring] = block[i]
                    main_in += 1
