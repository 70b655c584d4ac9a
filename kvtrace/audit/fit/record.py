"""Predicted against observed times, as the record holds them."""

from __future__ import annotations

from typing import Literal

import msgspec

Says = Literal["close", "uneven", "too_fast", "too_slow", "nothing_measured", "other_load"]


class FitBucket(msgspec.Struct, kw_only=True):
    """Requests of one bucket of prompt lengths whose time the log states."""

    prompt_bucket: int
    """Tokens: lower bound of the half-open range up to twice this."""
    requests: int
    predicted_p50_s: float
    predicted_p90_s: float
    observed_p50_s: float
    observed_p90_s: float
    ratio_p50: float
    """Median over requests of predicted / observed."""


class Fit(msgspec.Struct, kw_only=True):
    """One time of the replayed system of today against the log."""

    what: Literal["ttft", "prefill"]
    """ttft | prefill."""
    option: str
    title: str
    """Of the option that stands for the running system."""
    requests: int
    """Replayed requests whose time the log states, above zero."""
    of_requests: int
    """Replayed."""
    ratio_p50: float | None
    """Median over requests of predicted / observed: below 1 the model is too fast; null: the log
    states none."""
    ratio_p10: float | None
    ratio_p90: float | None
    says: Says
    """close | uneven (the median is close, some bucket with enough requests is not) | too_fast |
    too_slow | nothing_measured | other_load."""
    tolerance: float
    """How far from 1 the median may be to be called close."""
    buckets: list[FitBucket]
