"""How the ranks of an instance share an LLM: tensor, pipeline, data and expert parallelism."""

from __future__ import annotations

from dataclasses import dataclass

from kvtrace.errors import UsageError


@dataclass(frozen=True, slots=True)
class Layout:
    """The ranks of one instance, TP x PP x DP of them.

    Each of the `dp` groups has requests of its own: `tp` ranks split its attention and its dense
    matrices, over `pp` stages. All groups of a stage share its experts.
    """

    tp: int = 1
    """Ranks that split attention and dense matrices."""
    pp: int = 1
    """Pipeline stages; each holds a part of the layers."""
    dp: int = 1
    """Groups whose attention is data-parallel."""
    ep: int = 1
    """Ranks that whole experts are spread over; below TP x DP, each expert is cut over the rest."""

    def __post_init__(self) -> None:
        for name in ("tp", "pp", "dp", "ep"):
            value = getattr(self, name)
            if value < 1:
                raise UsageError("KVT-C060", f"`--{name} {value}` is not above zero")
        if self.stage_ranks % self.ep:
            raise UsageError(
                "KVT-C067",
                f"`--ep {self.ep}` does not divide the {self.stage_ranks} ranks of a stage",
                cause=f"TP{self.tp} x DP{self.dp} ranks share the experts of each layer",
                hint=f"use `--ep {self.stage_ranks}`, or leave it out",
            )

    @property
    def gpus(self) -> int:
        """GPUs of the instance."""
        return self.tp * self.pp * self.dp

    @property
    def stage_ranks(self) -> int:
        """Ranks of one stage, which share the experts of its layers."""
        return self.tp * self.dp

    @property
    def expert_cut(self) -> int:
        """Ranks over which one expert is cut."""
        return self.stage_ranks // self.ep

    @property
    def text(self) -> str:
        """Such as `TP8` or `TP2 · PP2 · DP4 · EP8`."""
        others = (("PP", self.pp), ("DP", self.dp), ("EP", self.ep))
        return " · ".join([f"TP{self.tp}", *(f"{name}{n}" for name, n in others if n > 1)])


def default_ep(tp: int, dp: int) -> int:
    """Ranks that experts are spread over where nobody says: all with data-parallel attention."""
    return tp * dp if dp > 1 else 1
