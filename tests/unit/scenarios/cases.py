"""Scenario documents of tests, on one small deployment."""

from __future__ import annotations

import tomllib
from functools import cache

from kvtrace.cost.deployment import Deployment, build_deployment
from kvtrace.cost.fleet import Fleet, default_fleet
from kvtrace.replay.scenario import Scenario
from kvtrace.scenarios.build import build_scenario
from kvtrace.scenarios.document import Document
from kvtrace.scenarios.plan import read_plan

BLOCK_TOKENS = 16


def document(text: str, name: str = "ours") -> Document:
    """A file `NAME.toml` with this text."""
    return Document(name, f"{name}.toml", text, tomllib.loads(text))


@cache
def deployment() -> Deployment:
    """70B over four of the eight GPUs of a node."""
    return build_deployment("Meta-Llama-3.1-70B", "H100-SXM5", tp=4)


@cache
def fleet() -> Fleet:
    """Four such instances on two nodes."""
    return default_fleet(deployment(), 4)


def built(text: str) -> Scenario:
    """The scenario of a file."""
    return build_scenario(
        read_plan(document(text)), deployment(), fleet(), block_tokens=BLOCK_TOKENS
    )
