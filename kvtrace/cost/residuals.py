"""How far the model was off on what it was not fitted to, as a factor on its seconds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal

from kvtrace.cost.evidence import Constant, number, read_toml

ErrorKind = Literal["prefill", "decode", "moves"]
TITLES: Final[dict[ErrorKind, str]] = {
    "prefill": "prefill seconds over the model's",
    "decode": "decode seconds over the model's",
    "moves": "seconds of a move over the model's",
}
_NORMAL_P75: Final = 0.6744897501960817
_NORMAL_P95: Final = 1.6448536269514722


@dataclass(frozen=True, slots=True)
class HeldOutError:
    """Errors of one kind of prediction, over points that were left out of the fit."""

    kind: ErrorKind
    points: int
    median_error: float
    """Of |predicted / measured - 1|."""
    p90_error: float
    source: str
    as_of: str

    @property
    def sigma(self) -> float:
        """Standard deviation of the logarithm of measured over predicted.

        Formula: max(ln(1 + median) / 0.674, ln(1 + P90) / 1.645), the quantiles of |z|.
        Assumes: a lognormal factor around one; the tables hold no sign, so no bias.
        """
        by_median = math.log1p(self.median_error) / _NORMAL_P75
        return max(by_median, math.log1p(self.p90_error) / _NORMAL_P95)

    @property
    def factor(self) -> Constant:
        """The factor on the model's seconds; low and high are its 5th and 95th percentile."""
        reach = math.exp(_NORMAL_P95 * self.sigma)
        return Constant(
            id=f"model_error.{self.kind}",
            title=TITLES[self.kind],
            value=1.0,
            unit="times",
            low=1.0 / reach,
            high=reach,
            kind="fitted",
            source=f"{self.source}: {self.points} points, median error "
            f"{100 * self.median_error:.1f} %, P90 {100 * self.p90_error:.1f} %",
            as_of=self.as_of,
        )


def held_out_error(kind: ErrorKind, *, is_moe: bool) -> HeldOutError:
    """The errors of a kind; those of experts are others than those of dense LLMs."""
    rows = read_toml("residuals.toml")[kind]
    row = rows.get("all") or rows["experts" if is_moe else "dense"]
    return HeldOutError(
        kind=kind,
        points=int(number(row["points"])),
        median_error=number(row["median_error"]),
        p90_error=number(row["p90_error"]),
        source=str(row["source"]),
        as_of=str(row["as_of"]),
    )
