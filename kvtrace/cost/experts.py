"""Experts of an LLM: how many, how wide, and how much of them a step of some tokens reads."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Experts:
    """The routed experts of an LLM; what every token uses beside them counts as dense."""

    layers: int
    """Layers that have experts."""
    routed: int
    """Experts of a layer that the router chooses from."""
    active: int
    """Of these, those that one token uses."""
    shared: int
    """Experts of a layer that every token uses; 0 where there are none."""
    width: int
    """Inner width of one routed expert."""
    input_width: int
    """Width of what an expert takes in: the hidden size, or a latent's."""
    matrices: int
    """Of one expert: 3 with a gate, else 2."""

    @property
    def expert_parameters(self) -> float:
        """Parameters of one routed expert.

        Formula: matrices x input width x width.
        """
        return float(self.matrices * self.input_width * self.width)

    @property
    def routed_parameters(self) -> float:
        """Parameters of all routed experts of all layers."""
        return self.layers * self.routed * self.expert_parameters

    @property
    def active_parameters(self) -> float:
        """Parameters of the routed experts that one token uses."""
        return self.layers * self.active * self.expert_parameters

    @property
    def rows_share(self) -> float:
        """Rows that one expert gets of each token of a step: active / routed."""
        return self.active / self.routed

    def touched(self, tokens: float) -> float:
        """Distinct experts of a layer that `tokens` tokens use, expected.

        Formula: E (1 - (1 - k / E)^n): one token leaves a given expert out with probability
        1 - k / E, and expectations add whatever the dependence.
        Assumes: the router spreads tokens evenly; a skewed one touches fewer.
        """
        if tokens <= 0:
            return 0.0
        return self.routed * (1.0 - math.pow(1.0 - self.rows_share, tokens))


@dataclass(frozen=True, slots=True)
class ExpertTimes:
    """Seconds of the routed experts of a step, by its tokens; all 0 for a dense LLM.

    Formula: read + compute n, with read = all - (all - one) (1 - k / E)^(n - 1): `one` for a single
    token, `all` for many. They add: in measured kernels (aiconfigurator-core's moe tables, H200 and
    B200) what is left at few rows an expert is the read of its weights.
    """

    one_s: float = 0.0
    """Reading the experts of one token."""
    all_s: float = 0.0
    """Reading all experts."""
    missed_share: float = 0.0
    """1 - k / E."""
    token_s: float = 0.0
    """Computing, per token."""

    def read_s(self, tokens: float) -> float:
        """Seconds to read the experts that `tokens` touch; those of one token are the least."""
        more = self.all_s - self.one_s
        if more <= 0.0:
            return self.all_s
        return self.all_s - more * math.pow(self.missed_share, max(tokens, 1.0) - 1.0)

    def seconds(self, tokens: float) -> float:
        """Seconds of a step of `tokens`."""
        return self.read_s(tokens) + self.token_s * tokens
