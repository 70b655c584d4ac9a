"""ARC over prefixes: two LRU lists of leaves, and ghosts of both that shift room between them."""

from __future__ import annotations

from heapq import heappop, heappush

from kvtrace.reuse.policies.kernels import Bools, Ints


def arc_hits(
    block: Ints,
    offset: Ints,
    weight: Ints,
    admitted: Bools,
    room: int,
    state: Ints,
    stamp: Ints,
    parent: Ints,
    kids: Ints,
    owner: Ints,
    ghost_place: Ints,
    ghosts: Ints,
    hit: Ints,
    stored: Ints,
) -> None:
    """Fill `hit` and `stored` (requests,) under ARC; the other arrays are scratch.

    A block is in T1 (asked for once of late), in T2 (more often), or a ghost of either (B1, B2):
    states 1 to 4, 0 elsewhere. A missing block that is a ghost moves the target size of T1 and
    enters T2, any other enters T1. The victim is the least recent leaf of the list that the target
    names, or of the other where that one has no leaf of another request. `ghosts` (2 x refs + 2,)
    holds both ghost queues; `stamp`, `parent`, `owner` come as -1, the rest as 0.

    Source: Megiddo and Modha, ARC, FAST 2003, figure 4.
    """
    once, often = [(0, 0)], [(0, 0)]
    once.pop()
    often.pop()
    in_once, in_often, ghost_once, ghost_often, target = 0, 0, 0, 0, 0.0
    old_once, new_once, old_often, new_often = 0, 0, len(block) + 1, len(block) + 1
    for request in range(len(offset) - 1):
        start, end = offset[request], offset[request + 1]
        place = start
        while place < end and 1 <= state[block[place]] <= 2:
            place += 1
        hit[request] = place - start
        for i in range(end - 1, start - 1, -1):
            held = block[i]
            if 1 <= state[held] <= 2:
                owner[held] = request
                stamp[held] = start + end - 1 - i
                if state[held] == 1:
                    state[held] = 2
                    in_once -= weight[held]
                    in_often += weight[held]
        place, last = start, -1
        while place < end:
            new = block[place]
            if state[new] == 0 or state[new] > 2:
                if not admitted[place]:
                    break
                size, ghost = weight[new], state[new]
                if ghost == 3:
                    target = min(float(room), target + size * max(1.0, ghost_often / ghost_once))
                elif ghost == 4:
                    target = max(0.0, target - size * max(1.0, ghost_once / ghost_often))
                while in_once + in_often + size > room:
                    leaves_ghost = True
                    if ghost == 0 and in_once + ghost_once + size > room:
                        if ghost_once == 0:
                            leaves_ghost = False
                        else:
                            while state[ghosts[old_once]] != 3 or (
                                ghost_place[ghosts[old_once]] != old_once
                            ):
                                old_once += 1
                            state[ghosts[old_once]] = 0
                            ghost_once -= weight[ghosts[old_once]]
                            old_once += 1
                    elif (
                        ghost == 0
                        and ghost_often > 0
                        and (in_once + ghost_once + in_often + ghost_often + size > 2 * room)
                    ):
                        while state[ghosts[old_often]] != 4 or (
                            ghost_place[ghosts[old_often]] != old_often
                        ):
                            old_often += 1
                        state[ghosts[old_often]] = 0
                        ghost_often -= weight[ghosts[old_often]]
                        old_often += 1
                    wanted = 2
                    if not leaves_ghost or (
                        in_once > 0 and (in_once > target or (ghost == 4 and in_once == target))
                    ):
                        wanted = 1
                    victim = -1
                    for _ in range(2):
                        leaves = once if wanted == 1 else often
                        while victim < 0 and len(leaves) > 0:
                            when, leaf = heappop(leaves)
                            if (
                                stamp[leaf] == when
                                and state[leaf] == wanted
                                and kids[leaf] == 0
                                and owner[leaf] != request
                            ):
                                victim = leaf
                        if victim >= 0:
                            break
                        wanted = 3 - wanted
                    if victim < 0:
                        break
                    state[victim] = 0
                    if wanted == 1:
                        in_once -= weight[victim]
                        if leaves_ghost:
                            state[victim] = 3
                            ghost_once += weight[victim]
                            ghosts[new_once] = victim
                            ghost_place[victim] = new_once
                            new_once += 1
                    else:
                        in_often -= weight[victim]
                        state[victim] = 4
                        ghost_often += weight[victim]
                        ghosts[new_often] = victim
                        ghost_place[victim] = new_often
                        new_often += 1
                    above = parent[victim]
                    if above >= 0:
                        kids[above] -= 1
                        if kids[above] == 0 and owner[above] != request:
                            heappush(once if state[above] == 1 else often, (stamp[above], above))
                if in_once + in_often + size > room:
                    break
                ghost = state[new]
                if ghost == 3:
                    ghost_once -= size
                elif ghost == 4:
                    ghost_often -= size
                if ghost == 0:
                    state[new] = 1
                    in_once += size
                else:
                    state[new] = 2
                    in_often += size
                stamp[new] = start + end - 1 - place
                parent[new] = last
                owner[new] = request
                if last >= 0:
                    kids[last] += 1
            last = new
            place += 1
        stored[request] = place - start
        for i in range(start, end):
            held = block[i]
            if 1 <= state[held] <= 2 and kids[held] == 0:
                heappush(once if state[held] == 1 else often, (stamp[held], held))
