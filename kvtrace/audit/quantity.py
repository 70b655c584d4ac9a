"""A number of the record that carries weight: parts of the record in their own modules use it."""

from __future__ import annotations

from typing import Literal

import msgspec

OriginState = Literal["stated", "logs", "public", "fitted", "calibrated", "estimated"]
"""stated: by the user (flag, environment, file); logs: read from the logs; public: a data sheet or
a published measurement, with its source; fitted: by kvtrace to published measurements; estimated:
by kvtrace, and nobody confirmed it."""


class Quantity(msgspec.Struct, kw_only=True):
    """A number that carries weight: with unit, interval and source.

    `low` and `high` are null where no interval is known; `interval_reason` then says why the value
    is exact or why no interval can be given.
    """

    id: str
    value: float | int | str | None
    unit: str
    low: float | int | None = None
    high: float | int | None = None
    source: str
    title: str = ""
    """Short phrase for people."""
    kind: Literal["measured", "modelled", "spec", "fitted", "assumed", "given"] = "measured"
    origin: str = ""
    """Where a setting came from: flag, environment, config, logs, default."""
    origin_state: OriginState | None = None
    """Who stands behind an assumption; null for results."""
    is_confirmed: bool = True
    """False for an estimate of kvtrace that nobody stated and no source gives; highlighted."""
    interval_reason: str = ""
