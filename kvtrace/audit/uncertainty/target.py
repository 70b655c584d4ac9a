"""The claim of saved instances that is asked at every sampled point."""

from __future__ import annotations

from collections.abc import Sequence

from kvtrace.audit.slo.ends import Claim
from kvtrace.audit.slo.fleets import Fleets


def target_claim(
    fleets: Fleets, option_id: str, *, against: Sequence[str] | None = None
) -> tuple[Claim, int] | None:
    """What the option saves at the middle over all of `against` (default: all that cost nothing),
    else one instance less than these need.

    With the instances that it saves where the claim holds; null where no smaller fleet can be
    asked, or where no option is left to compare with.
    """
    mine = fleets.standings[option_id]
    rivals = [fleets.standings[i] for i in against or fleets.rivals_of(option_id) if i != option_id]
    if not rivals:
        return None
    saved = fleets.saved(option_id, against=against).at_least
    if saved and mine.most is not None:
        need, instances = mine.most, saved
    else:
        is_searched = all(rival.searched is not None for rival in rivals)
        least = min(rival.least for rival in rivals) if is_searched else fleets.instances
        need, instances = min(least, fleets.instances) - 1, 1
    if need < 1:
        return None
    most = need + instances - 1
    return Claim(mine.run(need), tuple(rival.run(most) for rival in rivals)), instances
